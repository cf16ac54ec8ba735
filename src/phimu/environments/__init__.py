"""Environments, registered with Gymnasium when this package is imported.

`import phimu` sees to that (`phimu.registration`): `gymnasium.make("phimu/FourRooms-v0")` works
after it, or without it as `gymnasium.make("phimu:phimu/FourRooms-v0")`.
"""

from typing import Any

import gymnasium

from phimu.environments.catalogue import catalogue

_PROBES = (
    *("ConstantReward", "ObservationReward", "DelayedReward", "ActionReward"),
    *("MatchObservation", "TimeLimit", "Terminated", "ChooseObservation"),
)
_CLASSIC = ("Pendulum", "CartPole")  # the tasks of MBBL that need no MuJoCo
_CAMERAS = {"dog-fetch": 2}  # where the suite's first one does not show the body
_SPARSE_BELOW = 0.25  # of the sparse versions
_MAZES = {
    "FourRooms": {},
    "FourRoomsDense": {"reward": "dense"},
    "Serpentine": {"walls": "serpentine"},
}


def _source(task: str) -> tuple[str, dict[str, Any]]:
    """(Entry point, arguments) of an id; a string, so that nothing is imported before use."""
    suite, _, name = task.removesuffix("-v0").partition("/")
    if suite == "mbbl":
        return "mbbl.classic:Classic" if name in _CLASSIC else "mbbl.bodies:Body", {"task": name}
    if suite == "dmc":
        domain, kind, *sparse = name.split("-")
        options = {"sparse_below": _SPARSE_BELOW} if sparse else {"camera": _CAMERAS.get(name, 0)}
        return "control_suite:ControlSuite", {"domain": domain, "task": kind, **options}
    if name == "probe-Terminated":
        return "probes:TimeLimit", {"terminated": True}
    if name.startswith("probe-"):
        return f"probes:{name.removeprefix('probe-')}", {}
    return "four_rooms:FourRooms", _MAZES[name]


def register() -> None:
    """Register what is not registered yet; calling it again changes nothing."""
    limits: dict[str, int | None] = {f"phimu/probe-{probe}-v0": None for probe in _PROBES}
    limits |= {entry.task: entry.horizon for entry in catalogue()}
    for name, limit in limits.items():
        if name not in gymnasium.registry:
            entry_point, arguments = _source(name)
            gymnasium.register(
                name,
                f"phimu.environments.{entry_point}",
                # The probes and the Control Suite end their episodes themselves.
                max_episode_steps=None if name.startswith("dmc/") else limit,
                disable_env_checker=True,  # the tests check them; one wrapper less per step
                kwargs=arguments,
            )


register()
