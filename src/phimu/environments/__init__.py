"""Environments, registered with Gymnasium when this package is imported.

`gymnasium.make("phimu/FourRooms-v0")` works after `import phimu.environments`, or at once as
`gymnasium.make("phimu.environments:phimu/FourRooms-v0")`.
"""

import gymnasium

from phimu.environments import control_suite

_FOUR_ROOMS = "phimu.environments.four_rooms:FourRooms"
_PROBES = "phimu.environments.probes:"
_CONTROL_SUITE = "phimu.environments.control_suite:ControlSuite"
_MBBL_BODY = "phimu.environments.mbbl.bodies:Body"
_MBBL_CLASSIC = "phimu.environments.mbbl.classic:Classic"

# id -> (entry point, max_episode_steps, kwargs); strings, so that nothing is imported before use.
_ENVIRONMENTS: dict[str, tuple[str, int | None, dict]] = {
    "phimu/FourRooms-v0": (_FOUR_ROOMS, 200, {}),
    "phimu/FourRoomsDense-v0": (_FOUR_ROOMS, 200, {"reward": "dense"}),
    "phimu/probe-ConstantReward-v0": (_PROBES + "ConstantReward", None, {}),
    "phimu/probe-ObservationReward-v0": (_PROBES + "ObservationReward", None, {}),
    "phimu/probe-DelayedReward-v0": (_PROBES + "DelayedReward", None, {}),
    "phimu/probe-ActionReward-v0": (_PROBES + "ActionReward", None, {}),
    "phimu/probe-MatchObservation-v0": (_PROBES + "MatchObservation", None, {}),
    "phimu/probe-TimeLimit-v0": (_PROBES + "TimeLimit", None, {}),
    "phimu/probe-Terminated-v0": (_PROBES + "TimeLimit", None, {"terminated": True}),
    "mbbl/HalfCheetah-v0": (_MBBL_BODY, 1000, {"task": "HalfCheetah"}),
    "mbbl/Reacher-v0": (_MBBL_BODY, 50, {"task": "Reacher"}),
    "mbbl/HumanoidET-v0": (_MBBL_BODY, 1000, {"task": "HumanoidET"}),
    "mbbl/Pendulum-v0": (_MBBL_CLASSIC, 200, {"task": "Pendulum"}),
    "mbbl/IPendulum-v0": (_MBBL_BODY, 100, {"task": "IPendulum"}),
    "mbbl/AntET-v0": (_MBBL_BODY, 1000, {"task": "AntET"}),
    "mbbl/HopperET-v0": (_MBBL_BODY, 1000, {"task": "HopperET"}),
    "mbbl/SHumanoidET-v0": (_MBBL_BODY, 1000, {"task": "SHumanoidET"}),
    "mbbl/CartPole-v0": (_MBBL_CLASSIC, 200, {"task": "CartPole"}),
    "mbbl/WalkerET-v0": (_MBBL_BODY, 1000, {"task": "WalkerET"}),
    "mbbl/Hopper-v0": (_MBBL_BODY, 1000, {"task": "Hopper"}),
    "mbbl/Walker-v0": (_MBBL_BODY, 1000, {"task": "Walker"}),
    "mbbl/Ant-v0": (_MBBL_BODY, 1000, {"task": "Ant"}),
    "mbbl/SHumanoid-v0": (_MBBL_BODY, 1000, {"task": "SHumanoid"}),
}
_ENVIRONMENTS |= {
    name: (_CONTROL_SUITE, None, kwargs) for name, kwargs in control_suite.registrations()
}


def register() -> None:
    """Register what is not registered yet; calling it again changes nothing."""
    for name, (entry_point, max_episode_steps, kwargs) in _ENVIRONMENTS.items():
        if name not in gymnasium.registry:
            gymnasium.register(
                name,
                entry_point,
                max_episode_steps=max_episode_steps,
                disable_env_checker=True,  # the tests check them; one wrapper less per step
                kwargs=kwargs,
            )


register()
