"""Rewards and observations of the paper's Control Suite tasks, by plain arithmetic.

It takes the simulator's raw arrays; nothing of the suite's rewards or of ours.
"""

import gymnasium
import numpy as np
import pytest

import phimu.environments  # noqa: F401  # registers the tasks

pytest.importorskip("dm_control", reason="the extra dmc is not installed")
mujoco = pytest.importorskip("mujoco", reason="the extra dmc is not installed")


def make(name, **kwargs):
    return gymnasium.make(name, **kwargs).unwrapped


def actions_for(env, steps):
    return np.random.default_rng(0).uniform(-1, 1, (steps, *env.action_space.shape))


def clip01(x):
    return min(max(x, 0.0), 1.0)


def torso_velocity(env):
    """x, y and z of the whole body's momentum over its mass."""
    physics = env.physics
    masses = physics.model.body_mass
    jacobian, total = np.zeros((3, physics.model.nv)), np.zeros(3)
    for body in range(1, physics.model.nbody):
        mujoco.mj_jacBodyCom(physics.model.ptr, physics.data.ptr, jacobian, None, body)
        total += masses[body] * jacobian @ physics.data.qvel
    return total / masses.sum()


def cheetah_reward(env, action):
    return clip01(torso_velocity(env)[0] / 10)


def walker_reward(env, action):
    height = env.physics.named.data.xpos["torso"][2]
    upright = (1 + env.physics.named.data.xmat["torso"][8]) / 2
    standing = 1.0 if height >= 1.2 else 0.1 ** (((1.2 - height) / 0.6) ** 2)
    return (3 * standing + upright) / 4 * (5 * clip01(torso_velocity(env)[0] / 8) + 1) / 6


def hopper_reward(env, action):
    centre = env.physics.named.data.xipos
    standing = 0.6 <= centre["torso"][2] - centre["foot"][2] <= 2
    return standing * clip01(torso_velocity(env)[0] / 2)


def humanoid_reward(env, action):
    head = env.physics.named.data.xpos["head"][2]
    zz = env.physics.named.data.xmat["torso"][8]
    standing = 1.0 if head >= 1.4 else 0.1 ** (((1.4 - head) / 0.35) ** 2)
    upright = 1.0 if zz >= 0.9 else 1 - (0.9 - zz) / 1.9
    control = (4 + sum(1 - a * a for a in action.tolist()) / len(action)) / 5
    vx, vy, _ = torso_velocity(env)
    return control * standing * upright * (5 * clip01((vx * vx + vy * vy) ** 0.5 / 10) + 1) / 6


def cheetah_observation(data):
    return [*data.qpos[1:9], *data.qvel[0:9]]


def walker_observation(data):
    bodies = data.xmat[1:8]
    orientations = [value for matrix in bodies for value in (matrix[0], matrix[2])]
    return [*orientations, data.xpos[1][2], *data.qvel[0:9]]


def hopper_observation(data):
    touch = np.log1p(data.sensordata[3:5])
    return [*data.qpos[1:7], *data.qvel[0:7], *touch]


def humanoid_observation(data):
    torso, names = data.xmat[1].reshape(3, 3), ["left_hand", "left_foot", "right_hand"]
    limbs = [data.xpos[data.number(name)] for name in [*names, "right_foot"]]
    extremities = [value for limb in limbs for value in torso.T @ (limb - data.xpos[1])]
    head = data.xpos[data.number("head")][2]
    return [
        *(*data.qpos[7:28], head, *extremities),
        *(*torso[2], *data.sensordata[0:3], *data.qvel[0:27]),
    ]


class Data:
    """The simulator's arrays, and the row of a body in them."""

    def __init__(self, physics):
        self.physics = physics

    def __getattr__(self, name):
        return getattr(self.physics.data, name)

    def number(self, body):
        return self.physics.model.name2id(body, "body")


# Joint positions and x velocities to start from: fallen, crouched, upright; slow, fast, backward.
CASES = {
    "cheetah-run": (
        cheetah_reward,
        cheetah_observation,
        [({}, v) for v in (-3.0, 0.0, 1.0, 2.4, 2.7, 6.0, 14.0)],
    ),
    "walker-run": (
        walker_reward,
        walker_observation,
        # the height is above that of standing
        [
            ({"rootz": z, "rooty": pitch}, v)
            for z in (0.3, -0.4)
            for pitch in (0.0, 1.0)
            for v in (-1.0, 0.5, 3.0, 9.0)
        ],
    ),
    "hopper-hop": (
        hopper_reward,
        hopper_observation,
        # straight, or folded so that the torso is too near to the foot
        [
            ({"rootz": 0.5, "hip": -fold, "knee": fold, "ankle": 0.0}, v)
            for fold in (0.1, 2.4)
            for v in (-0.5, 0.7, 1.5, 3.0)
        ]
        + [({"rootz": -0.1}, 1.0)],  # on the floor, which the heel feels
    ),
    "humanoid-run": (
        humanoid_reward,
        humanoid_observation,
        # upright at three heights, and lying on its side
        [
            ({"root": [0, 0, z, *turn]}, v)
            for z, turn in (
                *((1.5, (1, 0, 0, 0)), (1.0, (1, 0, 0, 0))),
                *((0.7, (1, 0, 0, 0)), (1.2, (0.8, 0.6, 0, 0))),
            )
            for v in (0.0, 4.0, 13.0)
        ],
    ),
}


def put(env, joints, speed):
    env.reset(seed=0)
    with env.physics.reset_context():
        for joint, value in joints.items():
            env.physics.named.data.qpos[joint] = value
        velocity = env.physics.named.data.qvel
        if env.physics.model.nq == env.physics.model.nv:
            velocity["rootx"] = speed
        else:
            velocity["root"] = [speed, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("name", CASES)
def test_rewards_and_observations_by_hand(name):
    reward_of, observation_of, starts = CASES[name]
    env = make(f"dmc/{name}-v0")
    found = []
    for entries, speed in starts:
        put(env, entries, speed)
        action = actions_for(env, 1)[0]
        observation, reward, terminated, truncated, _ = env.step(action)
        assert reward == pytest.approx(reward_of(env, action), rel=1e-9, abs=1e-12)
        assert (terminated, truncated) == (False, False)
        np.testing.assert_allclose(observation, observation_of(Data(env.physics)), rtol=1e-12)
        found.append(reward)
    assert len({round(reward, 6) for reward in found}) >= 4  # the cases reach different branches


@pytest.mark.parametrize("name", ["cheetah-run", "walker-run"])
def test_sparse_rewards_are_the_dense_ones_from_a_quarter(name):
    reward_of, _, starts = CASES[name]
    env = make(f"dmc/{name}-sparse-v0")
    paid = []
    for entries, speed in starts:
        put(env, entries, speed)
        action = actions_for(env, 1)[0]
        _, reward, terminated, truncated, _ = env.step(action)
        dense = reward_of(env, action)
        assert reward == pytest.approx(dense if dense >= 0.25 else 0.0, rel=1e-9)
        assert (terminated, truncated) == (False, False)
        paid.append(reward > 0)
    assert {*paid} == {True, False}


@pytest.mark.parametrize("sparse", [False, True])
def test_repeated_control_steps_are_thresholded_one_by_one(sparse):
    name = "dmc/cheetah-run-sparse-v0" if sparse else "dmc/cheetah-run-v0"
    once, often = make("dmc/cheetah-run-v0"), make(name, action_repeat=20)
    for env in (once, often):
        put(env, {}, 3.2)  # slows down to below 2.5 within the repeats
    action = np.zeros(6)
    rewards = [once.step(action)[1] for _ in range(20)]
    assert max(rewards) > 0.25 > min(rewards) > 0.0
    expected = sum(r for r in rewards if r >= 0.25 or not sparse)
    observation, reward, *_, info = often.step(action)
    assert reward == pytest.approx(expected, rel=1e-12)
    assert info == {"decisions": 1, "simulator_steps": 20}
    np.testing.assert_array_equal(observation[8:], once.physics.data.qvel)


@pytest.mark.parametrize("name", ["cheetah-run", "walker-run"])
def test_a_random_episode_of_the_sparse_task_scores_nothing(name):
    env = make(f"dmc/{name}-sparse-v0")
    env.reset(seed=0)
    steps = [env.step(action) for action in actions_for(env, 1000)]
    assert sum(step[1] for step in steps) == 0
    assert steps[-1][3]
