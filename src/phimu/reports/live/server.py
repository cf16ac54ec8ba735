"""The page of `phimu watch --page`: served to this machine alone, it asks for nothing but its data.

Two addresses: / is the page, /data the numbers that it draws and asks for every second.
"""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from string import Template
from typing import Any

from phimu.errors import InputError
from phimu.reports.live.watched import Watch, Watched, names

HOST = "127.0.0.1"


class Server(ThreadingHTTPServer):
    """On the loopback interface; InputError where the port is taken."""

    daemon_threads = True

    def __init__(self, watch: Watch, port: int = 0):
        self.watch, self._one = watch, threading.Lock()
        self.page, self.policy = _page()
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise InputError(
                f"port {port} cannot be had ({error.strerror}): give another, or 0 for a free one."
            ) from error

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    def data(self) -> bytes:
        """What the page draws, as it is now."""
        with self._one:  # the files are followed, which two threads at once must not
            runs = self.watch.look()
            found = [_plain(*pair) for pair in zip(names(runs), runs, strict=True)]
        return json.dumps({"runs": found}, separators=(",", ":"), allow_nan=False).encode()


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        host = self.headers.get("Host", "")
        # A page elsewhere could lead its own name here, and read what it is given.
        if host not in (
            f"{HOST}:{self.server.server_port}",
            f"localhost:{self.server.server_port}",
        ):
            self.send_error(403)
        elif self.path == "/":
            self._answer("text/html; charset=utf-8", self.server.page)
        elif self.path == "/data":
            self._answer("application/json", self.server.data())
        else:
            self.send_error(404)

    def _answer(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", self.server.policy)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """A line per second would say nothing."""


def _page() -> tuple[bytes, str]:
    """The page, and the policy under which nothing but its own script and style has an effect."""
    parts = ("live.html", "live.js", "live.css")
    html, script, style = (files(__package__).joinpath(name).read_text() for name in parts)

    def mark(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    policy = (
        f"default-src 'none'; script-src 'sha256-{mark(script)}'; "
        f"style-src 'sha256-{mark(style)}'; connect-src 'self'; img-src data:"
    )
    return Template(html).substitute(script=script, style=style).encode(), policy


def _plain(name: str, watched: Watched) -> dict[str, Any]:
    run = watched.run
    return {
        "name": name,
        "task": watched.task,
        "path": str(run.path),
        "state": run.state,
        "step": run.step,
        "steps": run.steps,
        "rate": run.rate,
        "left": run.left,
        "losses": watched.losses(),
        "series": watched.series(),
    }
