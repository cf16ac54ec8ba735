"""MBBL's tasks pay and end as their formulas say, worked out here by hand."""

import math

import numpy as np
import pytest

from phimu.environments.task import open_task


def make(name, **kwargs):
    """The environment without its time limit; quietly, which `gymnasium.make` alone is not."""
    if name not in ("Pendulum", "CartPole"):
        pytest.importorskip("mujoco", reason="the bodies need the extra mujoco")
    return open_task(f"mbbl/{name}-v0", **kwargs).env.unwrapped


def make_without_contacts(name):
    """Nothing touches, so that what flies or falls does so as by hand."""
    mujoco = pytest.importorskip("mujoco", reason="the bodies need the extra mujoco")
    env = make(name)
    env.simulator.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    return env


# Positions, velocities, action, reward; above each the arithmetic. Hopper* is Hopper and HopperET.
ANT_LEGS = [0.0, 1.0, 0.1, -1.0, 0.2, -1.0, -0.1, 1.0]
JOINTS = [0.01 * joint for joint in range(1, 18)]
HAND = [
    # 2 - 0.1 * (0.25 + 0.25 + 1 + 1)
    (
        "HalfCheetah",
        [9, 0.1, 0.2, 0.3, -0.1, 0.05, -0.2, 0.15, 0.25],
        [2, -1, 0.5, 0, 1, -2, 3, -3, 0.25],
        [0.5, -0.5, 1, 0, 0, -1],
        1.75,
    ),
    # 1.5 - 3 * 0.1^2 - 0.1 * 1.5 + 1
    ("Hopper*", [9, 1.2, 0.1, -0.2, -0.3, 0.4], [1.5, -1, 0, 2, -11, 12], [1, -0.5, 0.5], 2.32),
    # 1.5 - 3 * 0.6^2 - 0.1 * 1.5, with the bonus where it is unconditional; 0.7 is not enough
    ("HopperET", [9, 0.7, 0, 0, 0, 0], [1.5, 0, 0, 0, 0, 0], [1, -0.5, 0.5], 0.27),
    ("Hopper", [9, 0.7, 0, 0, 0, 0], [1.5, 0, 0, 0, 0, 0], [1, -0.5, 0.5], 1.27),
    # -3 * 0.05^2, without and with the bonus: a pitch of 0.2 is too much
    ("HopperET", [0, 1.25, -0.2, 0, 0, 0], [0] * 6, [0, 0, 0], -0.0075),
    ("Hopper", [0, 1.25, -0.2, 0, 0, 0], [0] * 6, [0, 0, 0], 0.9925),
    # -2 - 3 * 0.2^2 - 0.1 * 3.5 + 1
    (
        "Walker*",
        [9, 1.1, -0.3, -0.1, -0.2, 0.3, -0.4, -0.5, 0.6],
        [-2, 1, 2, 3, 4, 5, -16, 17, 18],
        [1, 1, -1, 0, 0.5, -0.5],
        -1.47,
    ),
    # -3 * 0.7^2 without the bonus, which ends at 2.0, and with it
    ("WalkerET", [0, 2.0, 0, 0, 0, 0, 0, 0, 0], [0] * 9, [0] * 6, -1.47),
    ("Walker", [0, 2.0, 0, 0, 0, 0, 0, 0, 0], [0] * 9, [0] * 6, -0.47),
    # -3 * 0.5^2 without the bonus, which begins above 0.8
    ("WalkerET", [0, 0.8, 0, 0, 0, 0, 0, 0, 0], [0] * 9, [0] * 6, -0.75),
    # -3 * 0.1^2 without the bonus: a pitch of 1.0 is too much
    ("WalkerET", [0, 1.2, -1.0, 0, 0, 0, 0, 0, 0], [0] * 9, [0] * 6, -0.03),
    # 3 - 3 * 0.2^2 - 0.1 * 2.5 + 1
    (
        "Ant*",
        [5, 6, 0.77, 1, 0, 0, 0, *ANT_LEGS],
        [3, *range(13)],
        [1, -1, 0.5, -0.5, 0, 0, 0, 0],
        3.63,
    ),
    # -3 * 0.43^2 + 1 and -3 * 0.37^2 + 1: both limits are within
    ("Ant*", [0, 0, 1.0, 1, 0, 0, 0, *ANT_LEGS], [0] * 14, [0] * 8, 0.4453),
    ("Ant*", [0, 0, 0.2, 1, 0, 0, 0, *ANT_LEGS], [0] * 14, [0] * 8, 0.5893),
    # 1 - 3 * 0.63^2, without and with the bonus
    ("AntET", [0, 0, 1.2, 1, 0, 0, 0, *ANT_LEGS], [1, *[0] * 13], [0] * 8, -0.1907),
    ("Ant", [0, 0, 1.2, 1, 0, 0, 0, *ANT_LEGS], [1, *[0] * 13], [0] * 8, 0.8093),
    # 0.6 * 0.25 / 0.015 = 10; -0.1 * 17 * 0.4^2 = -0.272; + 5; without contacts for Humanoid
    ("SHumanoid*", [5, 6, 1.9, 1, 0, 0, 0, *JOINTS], [0.6, *range(22)], [1] * 17, 14.728),
    ("HumanoidET", [5, 6, 1.9, 1, 0, 0, 0, *JOINTS], [0.6, *range(22)], [1] * 17, 14.728),
    # the same without the 5, which is paid from 1.0 to 2.0 in both
    ("SHumanoid*", [0, 0, 2.5, 1, 0, 0, 0, *JOINTS], [0.6, *[0] * 22], [1] * 17, 9.728),
    ("SHumanoid*", [0, 0, 2.0, 1, 0, 0, 0, *JOINTS], [0.6, *[0] * 22], [1] * 17, 14.728),
    ("HumanoidET", [0, 0, 2.5, 1, 0, 0, 0, *JOINTS], [0.6, *[0] * 22], [1] * 17, 9.728),
    # -0.2^2, whatever the action
    ("IPendulum", [0.3, 0.2], [1, -1], [1], -0.04),
    # The first link ends at (0.1, 0), the second, at a right angle, at (0.1, 0.11); the goal is at
    # (0.15, -0.05). -sqrt(0.05^2 + 0.16^2) - (0.5^2 + 1^2) = -0.1676305461 - 1.25
    ("Reacher", [0, math.pi / 2, 0.15, -0.05], [3, 4, 0, 0], [0.5, -1], -1.4176305461424),
]
HAND = [
    (name, *case)
    for pattern, *case in HAND
    for name in ([pattern[:-1], pattern[:-1] + "ET"] if pattern.endswith("*") else [pattern])
]


@pytest.mark.parametrize(("name", "qpos", "qvel", "action", "reward"), HAND)
def test_reward_and_observation_of_a_state(name, qpos, qvel, action, reward):
    env = make_without_contacts(name)
    observation = env.set_state(np.array(qpos, float), np.array(qvel, float))
    if name == "Reacher":
        seen = [1, 0, 0, 1, 0.15, -0.05, 3, 4, -0.05, 0.16, 0]
    else:
        hidden = {"IPendulum": 0, "Ant": 2, "AntET": 2}.get(name, 2 if "Humanoid" in name else 1)
        seen = [*qpos[hidden:], *qvel]
    np.testing.assert_allclose(observation[: len(seen)], seen, rtol=0, atol=1e-15)
    assert len(seen) == observation.size or name == "HumanoidET"
    result = env.step(np.array(action, np.float32))[1]
    assert type(result) is float
    assert result == pytest.approx(reward, abs=1e-12)


@pytest.mark.parametrize(
    ("bodies", "position", "speed", "terminated"),
    [
        # In one step (0.008, 0.05 or 0.015 s) the number of qpos moves by its speed times that;
        # gravity and the other joints add less than 0.015.
        ("Hopper", {2: 0.18}, {2: 5}, True),  # 0.22
        ("Hopper", {2: -0.18}, {2: -5}, True),
        ("Hopper", {2: 0.18}, {2: -5}, False),
        ("Hopper", {1: 0.72}, {1: -5}, True),  # 0.68
        ("Hopper", {1: 0.72}, {1: 5}, False),
        ("Hopper", {1: 3.0}, {}, False),  # no limit above
        ("Walker", {2: 0.98}, {2: 5}, True),  # 1.02
        ("Walker", {2: -0.98}, {2: -5}, True),
        ("Walker", {2: 0.98}, {2: -5}, False),
        ("Walker", {1: 1.98}, {1: 5}, True),  # 2.02
        ("Walker", {1: 1.98}, {1: -5}, False),
        ("Walker", {1: 0.82}, {1: -5}, True),  # 0.78
        ("Walker", {1: 0.82}, {1: 5}, False),
        ("Ant", {2: 0.95}, {2: 2}, True),  # 1.05
        ("Ant", {2: 0.95}, {2: -2}, False),
        ("Ant", {2: 0.25}, {2: -2}, True),  # 0.15
        ("Ant", {2: 0.25}, {2: 2}, False),
        ("SHumanoid", {2: 1.98}, {2: 3}, True),  # 2.025
        ("SHumanoid", {2: 1.98}, {2: -3}, False),
        ("SHumanoid", {2: 1.02}, {2: -3}, True),  # 0.975
        ("SHumanoid", {2: 1.02}, {2: 3}, False),
    ],
)
def test_termination_is_decided_on_the_next_state(bodies, position, speed, terminated):
    names = [bodies, bodies + "ET"] + ["HumanoidET"] * (bodies == "SHumanoid")
    for name in names:
        env = make_without_contacts(name)
        qpos, qvel = env.simulator.init_qpos.copy(), env.simulator.init_qvel.copy()
        if bodies == "Ant":  # whose legs at 0 are beyond their limits
            qpos[7:] = ANT_LEGS
        qpos[list(position)] = list(position.values())
        qvel[list(speed)] = list(speed.values())
        env.set_state(qpos, qvel)
        ((joint, before),) = position.items()
        _, _, ended, truncated, _ = env.step(np.zeros(env.action_space.shape, np.float32))
        moved = env.simulator.data.qpos[joint] - before
        expected = speed.get(joint, 0) * env.simulator.dt
        assert moved == pytest.approx(expected, abs=0.015)
        assert (ended, truncated) == (terminated and name.endswith("ET"), False)
        assert type(ended) is bool


@pytest.mark.parametrize("name", ["HalfCheetah", "Reacher", "IPendulum"])
def test_some_bodies_never_terminate(name):
    env = make(name)
    qpos = np.zeros(env.simulator.model.nq)
    qpos[1] = 1.5  # the cheetah in the air, the arm bent, the pole fallen
    env.set_state(qpos, np.zeros(env.simulator.model.nv))
    assert not any(env.step(np.ones(env.action_space.shape))[2] for _ in range(20))


def test_the_last_step_of_a_fall_still_has_the_bonus():
    env = make("HopperET")
    env.set_state(np.array([0, 1.25, 0.19, 0, 0, 0]), np.array([0, 0, 5.0, 0, 0, 0]))
    _, reward, terminated, *_ = env.step(np.zeros(3))
    assert reward == pytest.approx(0.9925)  # 1 - 3 * 0.05^2
    assert terminated


@pytest.mark.parametrize(
    ("force", "cost"),
    [
        ([1000.0, 2000.0], 2.5),  # 5e-7 * (1e6 + 4e6)
        ([3000.0, 4000.0], 10.0),  # 5e-7 * 25e6 = 12.5, of which 10 count
    ],
)
def test_contact_forces_cost_the_humanoid_up_to_ten(force, cost):
    env = make("HumanoidET")
    env.set_state(env.simulator.init_qpos, env.simulator.init_qvel)
    env.simulator.data.cfrc_ext[6, 1:3] = force
    assert env.step(np.zeros(17))[1] == pytest.approx(5.0 - cost)


def test_contact_costs_are_those_of_the_observation_before_the_step():
    full, slim = make("HumanoidET"), make("SHumanoidET")
    observation, _ = full.reset(seed=0)
    slim.reset(seed=0)
    costs = []
    for _ in range(60):
        expected = min(5e-7 * float(np.sum(observation[-84:] ** 2)), 10.0)
        observation, reward, *_ = full.step(np.full(17, 0.3))
        other, slim_reward, *_ = slim.step(np.full(17, 0.3))
        np.testing.assert_array_equal(other, observation[:45])
        assert slim_reward - reward == pytest.approx(expected, abs=1e-9)
        costs.append(expected)
    assert max(costs) > 0.01


def test_the_parts_of_the_humanoid_observation():
    env = make("HumanoidET")
    qvel = np.zeros(23)
    qvel[0] = 0.6
    observation = env.set_state(env.simulator.init_qpos, qvel)
    inertia, velocity, motors, contacts = np.split(observation[45:], [140, 224, 247])
    np.testing.assert_array_equal(inertia[:10], 0)  # the world is part of it
    np.testing.assert_array_equal(inertia.reshape(14, 10)[1:, 9], env.simulator.model.body_mass[1:])
    np.testing.assert_allclose(  # rotation, then translation: every body at 0.6
        velocity.reshape(14, 6)[1:], np.tile([0, 0, 0, 0.6, 0, 0], (13, 1)), atol=1e-12
    )
    np.testing.assert_array_equal([*velocity[:6], *motors, *contacts], 0)
    observation = env.step(np.eye(17)[0])[0]  # abdomen_y, the second hinge: gear 100 times 0.4
    np.testing.assert_allclose(observation[269:292], 40.0 * np.eye(23)[7])


@pytest.mark.parametrize(
    ("name", "state", "action", "reward", "next_state", "observation"),
    [
        # -(0.8660254037844387 + 0.1 * 0.5 + 0.1 * 4 + 0.001 * 1^2); the speed becomes
        # 2 + (15 * 0.5 + 3 * 1) * 0.05 and the angle 0.5235987755982988 + 0.05 * 2.525
        (
            "Pendulum",
            (math.pi / 6, 2.0),
            0.5,
            -1.3170254037844387,
            (0.6498487755982988, 2.525),
            (0.7961753, 0.6050660, 2.525),
        ),
        # -(0 + 0.1 + 0.1 * 7.9^2 + 0.001 * 2^2); 7.9 + (15 + 3 * 2) * 0.05 = 8.95 is clipped only
        # after the angle 1.5707963267948966 has moved by 0.05 * 8.95
        (
            "Pendulum",
            (math.pi / 2, 7.9),
            3.0,
            -6.345,
            (2.0182963267948966, 8.0),
            (-0.4327131, 0.9015317, 8.0),
        ),
        # 1 - 0.01 * 2^2; pull 10 / 1.1, angle_acceleration -(10 / 1.1) / (0.5 * (4/3 - 0.1 / 1.1))
        # = -600 / 41, x_acceleration 10 / 1.1 + 0.05 * (600 / 41) / 1.1 = 400 / 41
        (
            "CartPole",
            (2.0, -1.0, 0.0, 2.0),
            0.3,
            0.96,
            (1.98, -0.8048780487804879, 0.04, 1.7073170731707317),
            (1.98, -0.8048780487804879, 0.04, 1.7073170731707317),
        ),
        # cos is 0; pull (-10 + 0.05 * 4) / 1.1 = x_acceleration, angle_acceleration
        # 9.8 / (0.5 * 4/3) = 14.7; an action of 0 pushes to the left
        (
            "CartPole",
            (0.0, 0.0, math.pi / 2, 2.0),
            0.0,
            0.0,
            (0.0, -0.1781818181818182, 1.6107963267948966, 2.294),
            (0.0, -0.1781818181818182, 1.6107963267948966, 2.294),
        ),
    ],
)
def test_equations_of_motion(name, state, action, reward, next_state, observation):
    for raw_actions in (False, True):
        env = make(name, raw_actions=raw_actions)
        env.reset(seed=0)
        env.state = state
        seen, result, terminated, truncated, _ = env.step(np.array([action]))
        assert result == pytest.approx(reward, abs=1e-12)
        assert env.state == pytest.approx(next_state, abs=1e-12)
        np.testing.assert_allclose(seen, observation, atol=1e-7)
        assert (terminated, truncated) == (False, False)


@pytest.mark.parametrize(
    ("name", "action", "raw_actions", "control"),
    [
        ("IPendulum", 0.5, False, 1.5),
        ("IPendulum", 0.5, True, 0.5),
        ("IPendulum", -7.0, False, -3.0),
        ("SHumanoidET", 0.5, False, 0.2),
        ("SHumanoidET", 0.5, True, 0.5),  # which the motors clamp to 0.4
        ("HopperET", 2.0, False, 1.0),
        ("HopperET", 0.25, True, 0.25),
    ],
)
def test_actions_reach_the_motors(name, action, raw_actions, control):
    env = make(name, raw_actions=raw_actions)
    env.reset(seed=0)
    env.step(np.full(env.action_space.shape, action))
    np.testing.assert_allclose(env.simulator.data.ctrl, control, rtol=1e-15)


def test_raw_actions_are_counted_as_they_are():
    env = make("SHumanoidET", raw_actions=True)
    env.set_state(env.simulator.init_qpos, env.simulator.init_qvel)
    assert env.step(np.ones(17))[1] == pytest.approx(3.3)  # 5 - 0.1 * 17
