"""Run directories written by hand, with scores that are known."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from phimu.agents import preset
from phimu.runs.config import Dataset, RunConfig
from phimu.settings import override

VERSIONS = {"python": "3.11.7", "jax": "0.10.2", "phimu": "0.1.0", "mujoco": "3.17.0"}


def write_run(
    root: Path,
    task: str,
    agent: str,
    returns: Sequence[float],
    seed: int = 0,
    chosen: str = "small",
    changes: dict[str, Any] | None = None,
    every: int = 5_000,
    asked: int | None = None,
    offline: bool = False,
    options: dict[str, Any] | None = None,
    seconds: float | None = 3600.0,
    sha256: str = "0" * 64,
    facts: dict[str, str] | None = None,
) -> Path:
    """A run with an evaluation after each `every` steps; unfinished if more were asked for.

    `facts` are what the manifest says beyond what older versions wrote: preset, study, variant.
    """
    found = override(preset(agent, chosen, offline), changes or {})
    dataset = Dataset("d4rl", sha256, 11, 3, "Hopper-v4") if offline else None
    config = RunConfig(task, agent, *found, seed, options or {}, dataset)
    path = config.path(root, "written")
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config.to_json()))
    last = every * len(returns)
    command = ["phimu", "train", task, "--agent", agent, "--preset", chosen]
    manifest = {
        "command": [*command, "--steps", str(asked or last), "--seed", str(seed)],
        "created": "2026-01-02T03:04:05+00:00",
        "cpu_count": 2,
        "platform": "Linux-test",
        "revision": {"commit": "0123456789abcdef", "dirty": False},
        "steps": asked or last,
        "versions": VERSIONS,
        "sessions": [],
        **(facts or {}),
    }
    if seconds is not None:
        manifest["seconds"] = seconds
    (path / "manifest.json").write_text(json.dumps(manifest))
    rows: list[dict[str, Any]] = []
    for index, value in enumerate(returns, 1):
        clock = {"updates": float(every * index)} if offline else {}
        rows.append({"step": every * index, "kind": "train", "td_loss": 1.0 / index, **clock})
        score = {"score": value} if offline else {}
        rows.append(
            {"step": every * index, "kind": "evaluation", "return": value, **score, **clock}
        )
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
