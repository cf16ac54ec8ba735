import os
import signal
import subprocess
import sys
from pathlib import Path

import gymnasium
import h5py
import jax
import numpy as np
import pytest

from phimu.agents.sac import Sac
from phimu.cli import main
from phimu.collection import sets
from phimu.collection.collect import collect, policy_of_run, replay_of_run
from phimu.collection.dense_policy import from_acting, from_npz, random_actions
from phimu.collection.sets import check_out, origin_of, save_set
from phimu.data.sets.opening import open_set
from phimu.data.sets.writing import Origin
from phimu.environments.task import open_task
from phimu.errors import InputError, Stopped
from phimu.normalisation import Acting, AsIs, RunningNormaliser
from phimu.planning.soft_actor_critic import SoftActorCritic
from phimu.runs import checkpoint
from phimu.runs.config import RunConfig
from phimu.runs.stopping import Stop
from phimu.settings import override
from phimu.training.online import OnlineRun
from phimu.types import Spec

SPEC = Spec(3, 2)
MAZE = "phimu/FourRooms-v0"


def acting_state(agent, normalise: bool = False, seed: int = 0) -> Acting:
    """Acting after the normaliser has seen something and the biases are not all zero."""
    policy = agent.policy(agent.init(SPEC, jax.random.PRNGKey(seed)))
    seen = 3 + 2 * jax.random.normal(jax.random.PRNGKey(1), (50, 3))
    actor = jax.tree.map(
        lambda x: x + 0.1 * jax.random.normal(jax.random.PRNGKey(x.size), x.shape),
        policy,
    )
    normaliser = RunningNormaliser(3) if normalise else AsIs()
    return Acting(normaliser.include(seen), actor)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize(("activation", "layer_norm"), [("elu", False), ("relu", True)])
def test_numpy_acts_like_the_agent(normalise: bool, activation, layer_norm: bool) -> None:
    planner = SoftActorCritic(
        "three_layer", 16, (16, 8), activation=activation, planner_layer_norm=layer_norm
    )
    acting = acting_state(Sac(planner), normalise)
    policy = from_acting(acting)
    rng = np.random.default_rng(0)
    for observation in 20 * rng.standard_normal((50, 3), np.float32):  # far ones are clipped
        mode = acting.act(observation, jax.random.PRNGKey(0), True)
        np.testing.assert_allclose(policy.mode(observation, rng), mode, atol=1e-5)
        noise = np.random.default_rng(7).standard_normal(2, np.float32)
        sample, _ = acting.policy.with_noise(acting.normaliser(observation), noise)
        sampled = policy(observation, np.random.default_rng(7))
        np.testing.assert_allclose(sampled, sample, atol=1e-5)
        assert sampled.dtype == np.float32


def test_the_uniform_share_is_kept() -> None:
    policy = from_acting(acting_state(Sac(SoftActorCritic(actor_sizes=(4,)))), uniform_mix=1.0)
    rng = np.random.default_rng(0)
    actions = np.array([policy(np.zeros(3, np.float32), rng) for _ in range(4000)])
    np.testing.assert_allclose(actions.std(axis=0), 1 / np.sqrt(3), atol=0.02)


@pytest.mark.parametrize("normalise", [False, True])
def test_numpy_chooses_like_the_agent(normalise: bool) -> None:
    """The same modes, and samples as often as their chances say; mixed, uniformly."""
    spec = Spec(3, 4, discrete=True)
    actor = Sac(SoftActorCritic(actor_sizes=(8,))).init(spec, jax.random.PRNGKey(0)).actor
    seen = RunningNormaliser(3).include(20 + jax.random.normal(jax.random.PRNGKey(1), (50, 3)))
    acting = Acting(seen if normalise else AsIs(), jax.tree.map(lambda x: 5 * x, actor))
    policy, rng = from_acting(acting), np.random.default_rng(0)
    for observation in 20 * rng.standard_normal((50, 3), np.float32):
        mode = acting.act(observation, jax.random.PRNGKey(0), True)
        np.testing.assert_array_equal(policy.mode(observation, rng), mode)
    observation = np.array([0.1, -0.2, 0.1], np.float32)
    samples = np.array([policy(observation, rng) for _ in range(4_000)])
    chances = np.exp(acting.policy(acting.normaliser(observation)))
    np.testing.assert_allclose(samples.mean(axis=0), chances, atol=0.03)
    mixed = from_acting(acting, uniform_mix=1.0)
    samples = np.array([mixed(observation, rng) for _ in range(4_000)])
    np.testing.assert_allclose(samples.mean(axis=0), 0.25, atol=0.03)
    assert (samples.sum(axis=1) == 1).all()


def npz_arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {
        "hidden_0_weight": (3, 5),
        "hidden_0_bias": (5,),
        "hidden_1_weight": (5, 4),
        "hidden_1_bias": (4,),
        "mean_weight": (4, 2),
        "mean_bias": (2,),
        "log_std_weight": (4, 2),
        "log_std_bias": (2,),
        "obs_mean": (3,),
    }
    arrays = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    texts = {"activation": np.array("relu"), "squash": np.array("tanh")}
    return arrays | texts | {"obs_std": rng.uniform(1, 2, 3).astype(np.float32)}


def by_hand(a: dict[str, np.ndarray], observation: np.ndarray, noise: np.ndarray) -> np.ndarray:
    a = {name: x.astype(np.float64) if x.dtype.kind == "f" else x for name, x in a.items()}
    x = (observation - a["obs_mean"]) / a["obs_std"]
    for number in range(2):
        x = np.maximum(x @ a[f"hidden_{number}_weight"] + a[f"hidden_{number}_bias"], 0)
    spread = np.exp(np.clip(x @ a["log_std_weight"] + a["log_std_bias"], -20, 2))
    before = x @ a["mean_weight"] + a["mean_bias"] + spread * noise
    return np.tanh(before) if a["squash"] == "tanh" else np.clip(before, -1, 1)


@pytest.mark.parametrize("squash", ["tanh", "clip"])
def test_a_policy_from_a_file(tmp_path: Path, squash: str) -> None:
    arrays = npz_arrays() | {"squash": np.array(squash)}
    np.savez(tmp_path / "p.npz", **arrays)
    policy = from_npz(tmp_path / "p.npz", SPEC)
    for seed, observation in enumerate(np.random.default_rng(1).normal(size=(20, 3))):
        noise = np.random.default_rng(seed).standard_normal(2, np.float32)
        action = policy(observation.astype(np.float32), np.random.default_rng(seed))
        np.testing.assert_allclose(action, by_hand(arrays, observation, noise), atol=1e-5)
        mode = policy.mode(observation.astype(np.float32), np.random.default_rng(seed))
        np.testing.assert_allclose(mode, by_hand(arrays, observation, np.zeros(2)), atol=1e-5)


def test_without_log_std_a_file_acts_by_its_mean(tmp_path: Path) -> None:
    arrays = npz_arrays()
    del arrays["log_std_weight"], arrays["log_std_bias"]
    np.savez(tmp_path / "p.npz", **arrays)
    policy, rng = from_npz(tmp_path / "p.npz", SPEC), np.random.default_rng(0)
    observation = np.ones(3, np.float32)
    np.testing.assert_array_equal(policy(observation, rng), policy.mode(observation, rng))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean_bias": None}, "has no mean_bias"),
        ({"mean_weight": np.zeros((4, 3), np.float32)}, r"shape \(4, 3\), but .* \(4, 2\)"),
        ({"hidden_0_weight": np.zeros((9, 5), np.float32)}, r"shape \(9, 5\), but .* \(3, 5\)"),
        ({"hidden_1_weight": np.float32(0)}, r"hidden_1_weight has shape \(\)"),
        ({"hidden_3_weight": np.zeros(1)}, "also holds hidden_3_weight, which no policy has"),
        ({"mean_bias": np.array([0, np.nan])}, "mean_bias must be finite"),
        ({"mean_bias": np.array(["a", "b"])}, "mean_bias must be finite"),
        ({"obs_std": np.array([1.0, 0.0, 1.0])}, "obs_std must be positive"),
        ({"obs_std": None}, "has no obs_std"),
        ({"activation": np.array("sin")}, "activation is sin, but must be one of relu"),
        ({"squash": None}, "squash is .absent., but must be one of tanh"),
        ({"log_std_bias": None}, "has no log_std_bias"),
        ({"mean_bias": np.array([None, 1])}, "is not an .npz of plain arrays"),
    ],
)
def test_bad_files_are_one_sentence(tmp_path: Path, change: dict, message: str) -> None:
    arrays = {name: x for name, x in (npz_arrays() | change).items() if x is not None}
    np.savez(tmp_path / "p.npz", **arrays)
    with pytest.raises(InputError, match=message):
        from_npz(tmp_path / "p.npz", SPEC)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 cut off"])
def test_what_is_no_npz_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.npz").write_bytes(content)
    with pytest.raises(InputError, match="of plain arrays: write it with np"):
        from_npz(tmp_path / "p.npz", SPEC)
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(InputError, match="of plain arrays: write it with np"):
        from_npz(tmp_path / "one.npy", SPEC)
    with pytest.raises(InputError, match="no such run directory and no such file"):
        from_npz(tmp_path / "absent.npz", SPEC)


class Counting(gymnasium.Env):
    """The observation counts steps; odd episodes terminate after 3, even ones are cut after 4."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)

    def __init__(self) -> None:
        self.episode = -1

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        self.episode, self.steps = self.episode + 1, 0
        return np.array([self.episode, 0], np.float32), {}

    def step(self, action: np.ndarray) -> tuple:
        self.steps += 1
        odd = bool(self.episode % 2)
        observation = np.array([self.episode, self.steps], np.float32)
        return observation, float(self.steps), odd and self.steps == 3, self.steps == 4, {}


def test_rows_and_borders_of_episodes() -> None:
    task = open_task(Counting())
    rows = collect(task, random_actions(task.spec), 13, 0)
    np.testing.assert_array_equal(rows.episode, [0] * 4 + [1] * 3 + [2] * 4 + [3] * 2)
    steps = [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 0, 1]
    np.testing.assert_array_equal(rows.observation, np.stack([rows.episode, steps], axis=1))
    after = np.array(steps) + 1
    np.testing.assert_array_equal(rows.next_observation, np.stack([rows.episode, after], axis=1))
    np.testing.assert_array_equal(rows.reward, after)
    assert np.flatnonzero(rows.terminated).tolist() == [6]
    assert np.flatnonzero(rows.truncated).tolist() == [3, 10, 12]  # the last one by us
    assert (np.abs(rows.action) <= 1).all()


def test_more_steps_begin_with_the_same_and_another_seed_does_not() -> None:
    def run(steps: int, seed: int):
        task = open_task(MAZE, max_episode_steps=10)
        return collect(task, random_actions(task.spec), steps, seed)

    short, long, other = run(25, 0), run(40, 0), run(25, 1)
    np.testing.assert_array_equal(short.next_observation, long.next_observation[:25])
    assert len(short.reward) == 25
    assert not np.array_equal(short.action, other.action)


@pytest.mark.parametrize(("steps", "seed", "message"), [(0, 0, "steps is 0"), (1, -1, "seed is")])
def test_bad_numbers_are_refused(steps: int, seed: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        collect(open_task(Counting()), random_actions(Spec(2, 1)), steps, seed)


def test_a_request_to_stop_is_heard() -> None:
    stop = Stop()
    stop.number = signal.SIGINT
    with pytest.raises(Stopped):
        collect(open_task(Counting()), random_actions(Spec(2, 1)), 10, 0, stop=stop)


def trained(tmp_path: Path, steps: int, buffer: int, tiny) -> tuple[OnlineRun, Path]:
    settings, schedule = override(tiny("sac"), {"buffer_size": buffer, "learning_starts": 500})
    task = open_task(MAZE, max_episode_steps=10)
    run = OnlineRun(settings, task, schedule, 0)
    while run.step < steps:
        run.advance()
    run.save(tmp_path / "checkpoint")
    return run, tmp_path


def config_of(run: OnlineRun) -> RunConfig:
    return RunConfig(MAZE, "sac", run.agent, run.schedule, run.seed)


def test_the_policy_and_the_replay_of_a_run(tmp_path: Path, tiny) -> None:
    run, path = trained(tmp_path, 47, 30, tiny)
    saved = checkpoint.load_last(path, print)
    policy = policy_of_run(config_of(run), saved, run.task.spec)
    observation = np.array([3.0, 4.0], np.float32)
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(policy.mode(observation, rng), run.policy()(observation), atol=1e-5)
    rows = replay_of_run(config_of(run), saved, run.task.spec)
    np.testing.assert_array_equal(rows.reward, run.replay.columns("rows", range(17, 47))["reward"])
    # Episodes of 10 steps, the first of which begins before the ring does.
    np.testing.assert_array_equal(rows.episode, [0] * 3 + [1] * 10 + [2] * 10 + [3] * 7)
    assert np.flatnonzero(rows.truncated).tolist() == [2, 12, 22, 29]
    assert not rows.terminated.any()
    assert len(replay_of_run(config_of(run), saved, run.task.spec, until=20).reward) == 3
    with pytest.raises(InputError, match="until is 10, but the buffer holds the steps from 17"):
        replay_of_run(config_of(run), saved, run.task.spec, until=10)


def test_the_replay_of_several_environments_is_one_after_the_other(tmp_path: Path, tiny) -> None:
    """And of a Gaussian policy: its mode, its samples, its actions as the environment got them."""
    changes = {"envs": 3, "buffer_size": 21, "batch_size": 21, "learning_starts": 0}
    settings, schedule = override(tiny("ppo"), changes | {"initial_log_std": 0.0})
    tasks = [open_task(MAZE, max_episode_steps=5) for _ in range(3)]
    run = OnlineRun(settings, tasks, schedule, 0)
    while run.step < 36:
        run.advance()
    run.save(tmp_path / "checkpoint")
    saved = checkpoint.load_last(tmp_path, print)
    config = RunConfig(MAZE, "ppo", run.agent, run.schedule, run.seed)
    rows = replay_of_run(config, saved, run.task.spec)
    for env in range(3):
        own = run.replay.latest_of(env, 7)
        np.testing.assert_array_equal(rows.observation[7 * env :][:7], own.observation)
        np.testing.assert_array_equal(rows.action[7 * env :][:7], np.clip(own.action, -1, 1))
    # Steps 6 to 12 of each environment: an episode of five, and two of the next.
    np.testing.assert_array_equal(rows.episode, np.repeat(range(6), [5, 2] * 3))
    assert np.flatnonzero(rows.truncated).tolist() == [4, 6, 11, 13, 18, 20]
    policy, observation = policy_of_run(config, saved, run.task.spec), rows.observation[3]
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(policy.mode(observation, rng), run.policy()(observation), atol=1e-5)
    samples = np.stack([policy(observation, rng) for _ in range(2_000)])
    assert np.abs(samples).max() == 1.0
    inside = np.mean(np.abs(samples) < 1, axis=0)  # of a standard deviation of 1 around about 0
    np.testing.assert_allclose(inside, 0.68, atol=0.06)


class Still(Counting):
    """Nothing ever changes: where an episode was cut cannot be seen in the observations."""

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset()
        return np.zeros(2, np.float32), {}

    def step(self, action: np.ndarray) -> tuple:
        _, *rest = super().step(action)
        return np.zeros(2, np.float32), *rest


def test_data_replay_writes_the_flags_that_the_environment_gave(tmp_path: Path) -> None:
    """Nothing is guessed; only the episode that was open ends with the dataset."""
    gymnasium.register("Still-v0", Still, disable_env_checker=True)
    run, out = tmp_path / "run", tmp_path / "replay.hdf5"
    words = "train Still-v0 --agent sac --actor-sizes 4 --critic-width 4 --learning-starts 100"
    words += " --buffer-size 30 --steps 40 --evaluate-every 0 --quiet --run-dir"
    try:
        assert main([*words.split(), str(run)]) == 0
        assert main(["data", "replay", str(run), "--out", str(out)]) == 0
    finally:
        del gymnasium.registry["Still-v0"]
    rows = open_set(out).transitions
    # Episodes of 4 and 3 steps in turn; the buffer holds the steps from 10 on.
    lengths, cut, ended = [4, 3] * 6, [], []
    for number, last in enumerate(np.cumsum(lengths) - 1):
        (ended if number % 2 else cut).append(int(last) - 10)
    assert np.flatnonzero(rows.terminated).tolist() == [row for row in ended if 0 <= row < 30]
    assert np.flatnonzero(rows.truncated).tolist() == [row for row in cut if 0 <= row < 30] + [29]


def counted_set(tmp_path: Path) -> tuple[Path, Origin]:
    task = open_task(Counting())
    return tmp_path / "counted.hdf5", origin_of(task, tmp_path / "counted.hdf5", "")


def test_the_checksum_stands_beside_the_file(tmp_path: Path) -> None:
    task = open_task(Counting())
    out, origin = counted_set(tmp_path)
    digest = save_set(out, collect(task, random_actions(task.spec), 9, 0), origin, "d4rl")
    subprocess.run(
        ["sha256sum", "--check", "--quiet", out.name + ".sha256"], cwd=tmp_path, check=True
    )
    assert digest in (tmp_path / "counted.hdf5.sha256").read_text()
    with h5py.File(out) as file:
        assert np.abs(file["actions"]).max() > 1  # the task's range is +-2


def test_a_set_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.hdf5").write_bytes(b"precious")
    with pytest.raises(InputError, match="which exists: choose another name"):
        check_out(tmp_path / "a.hdf5", "d4rl")
    with pytest.raises(InputError, match=r"ends in \.hdf5"):
        check_out(tmp_path / "a.npz", "d4rl")
    with pytest.raises(InputError, match="whose directory does not exist"):
        check_out(tmp_path / "absent" / "a.hdf5", "d4rl")


@pytest.mark.parametrize("layout", ["d4rl", "minari"])
def test_what_fails_while_writing_leaves_nothing(tmp_path: Path, layout, monkeypatch) -> None:
    task = open_task(Counting())
    out, origin = counted_set(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(sets, "fingerprint", full)
    with pytest.raises(OSError, match="No space left") as caught:
        save_set(out, collect(task, random_actions(task.spec), 9, 0), origin, layout)
    assert caught.value.filename == str(out)
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, sys
from pathlib import Path
import numpy as np
from phimu.action_range import ActionRange
from phimu.data.sets import writing
from phimu.data.logged import Transitions
from phimu.cli import main
from phimu.collection import sets

zeros = np.zeros((9, 1), np.float32)
rows = Transitions(zeros, zeros, zeros[:, 0], zeros, zeros[:, 0] > 0, zeros[:, 0] > 0,
                   np.zeros(9, np.int32))
sets.os.rename = lambda *_: os.kill(os.getpid(), 9)
ends = ActionRange(-zeros[0] - 1, zeros[0] + 1)
sets.save_set(Path(sys.argv[1]), rows, writing.Origin("T", "n", "p", ends), sys.argv[2])
"""


@pytest.mark.parametrize("layout", ["d4rl", "minari"])
def test_a_kill_while_writing_leaves_no_set_and_the_next_attempt_works(
    tmp_path: Path, layout
) -> None:
    out, origin = counted_set(tmp_path)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(out), layout])
    assert killed.returncode == -signal.SIGKILL
    assert not out.exists()
    task = open_task(Counting())
    save_set(out, collect(task, random_actions(task.spec), 9, 0), origin, layout)
    names = {out.name} | ({out.name + ".sha256"} if layout == "d4rl" else set())
    assert {path.name for path in tmp_path.iterdir()} == names
