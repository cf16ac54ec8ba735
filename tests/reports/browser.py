"""A headless Chromium, driven through its DevTools protocol; as much as the report's test needs."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find() -> str | None:
    """The first one on the PATH."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. `events` has what happened in it, by the protocol's names."""

    def __init__(self, program: str, profile: Path, width: int = 1400, height: int = 900):
        from websockets.sync.client import connect

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        flags += ["--remote-debugging-port=0", f"--user-data-dir={profile}", "--no-first-run"]
        self._process = subprocess.Popen(
            [program, *flags, f"--window-size={width},{height}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # its children end with it
        )
        self.events: list[dict[str, Any]] = []
        self._sent = 0
        self._connection = contextlib.ExitStack()
        try:
            opened = connect(_page_address(profile), max_size=2**26, open_timeout=60)
            self._socket = self._connection.enter_context(opened)
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events on the way are kept."""
        self._sent += 1
        self._socket.send(json.dumps({"id": self._sent, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("id") == self._sent:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives, as JSON."""
        found = self.call(
            "Runtime.evaluate", expression=f"JSON.stringify({expression})", returnByValue=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return json.loads(found["result"].get("value", "null"))

    def wait(self, expression: str, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while not self._holds(expression):
            if time.monotonic() > until:
                raise TimeoutError(expression)
            time.sleep(0.05)

    def _holds(self, expression: str) -> bool:
        """Not yet, where the question meets a page that is just being left or not there yet."""
        try:
            return bool(self.value(expression))
        except RuntimeError as error:
            if "navigated" in str(error) or "context" in str(error):
                return False
            raise

    def point(self, selector: str, kind: str = "click", across: float = 0.5) -> None:
        """Move the mouse to an element, `across` of its width, and click there if asked to."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{found}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        box = self._at_rest(found)
        place = {"x": box["x"] + across * box["width"], "y": box["y"] + box["height"] / 2}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **place)
        if kind == "click":
            for each in ("mousePressed", "mouseReleased"):
                self.call(
                    "Input.dispatchMouseEvent", type=each, button="left", clickCount=1, **place
                )

    def _at_rest(self, found: str) -> dict[str, float]:
        """The box of an element, once nothing scrolls it any more."""
        box, until = None, time.monotonic() + 60
        while time.monotonic() < until:
            before, box = box, self.value(f"{found}.getBoundingClientRect()")
            if box == before:
                return box
            time.sleep(0.3)
        raise TimeoutError(f"{found} does not come to rest")

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def close(self) -> None:
        try:
            self._connection.close()
        finally:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _page_address(profile: Path) -> str:
    """Where the one page listens, once the browser has said so."""
    said, until = profile / "DevToolsActivePort", time.monotonic() + 60
    while not said.exists() or not said.read_text().strip():
        if time.monotonic() > until:
            raise TimeoutError("Chromium did not start.")
        time.sleep(0.05)
    port = said.read_text().split()[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=30) as answer:
        pages = [each for each in json.load(answer) if each["type"] == "page"]
    return pages[0]["webSocketDebuggerUrl"]
