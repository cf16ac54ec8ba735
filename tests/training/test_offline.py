"""The offline loop: phases in order, nothing passed by, and exact wherever it is taken up again."""

import json
import os
import signal
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from phimu.agents.ctrl_lcb import CtrlLcb
from phimu.agents.schedule import Schedule
from phimu.confidence import Elliptical
from phimu.data.logged import LoggedDataset, Transitions
from phimu.errors import InputError, NotFinite, Stopped
from phimu.planning.behaviour import BehaviourCloning, Regularisation
from phimu.planning.held_near import NearClone
from phimu.planning.soft_actor_critic import SoftActorCritic
from phimu.representation.contrastive import Contrastive
from phimu.representation.negatives import Negatives
from phimu.runs import checkpoint
from phimu.runs.config import Dataset, RunConfig, load_config
from phimu.runs.stopping import stop_requests
from phimu.session import Order, Output, load_run, train
from phimu.training.offline import OfflineRun
from phimu.types import Spec

SPEC = Spec(3, 1)  # those of Pendulum-v1
AGENT = CtrlLcb(
    representation=Contrastive(
        feature_sizes=(8,), feature_dim=4, noise=Negatives(negatives=4, random_share=0.0)
    ),
    confidence=Elliptical(bonus_scale=1.0),
    planner=NearClone(
        BehaviourCloning(behaviour_updates=7, behaviour_sizes=(8,)),
        Regularisation(behaviour_weight=1.0),
        SoftActorCritic(critic_width=8, actor_sizes=(8,)),
    ),
    representation_updates=10,
)
SCHEDULE = Schedule(
    collection=None,
    batch_size=8,
    normalise_observations=True,
    evaluate_every=5,
    evaluation_episodes=1,
    checkpoint_every=4,
    log_every=3,
)


def a_set(task: str | None = "Pendulum-v1", rows: int = 60) -> LoggedDataset:
    rng = np.random.default_rng(0)
    observation = rng.normal(size=(rows, 3)).astype(np.float32)
    columns = Transitions(
        observation,
        rng.uniform(-1, 1, (rows, 1)).astype(np.float32),
        rng.normal(size=rows).astype(np.float32),
        observation + 0.1,
        np.zeros(rows, bool),
        np.zeros(rows, bool),
        (np.arange(rows) // 20).astype(np.int32),
    )
    return LoggedDataset(columns, "swings", "arrays", "0" * 64, task)


def new_run(seed: int = 0) -> OfflineRun:
    return OfflineRun(AGENT, SPEC, SCHEDULE, seed, a_set())


def everything(run: OfflineRun) -> dict[str, np.ndarray]:
    return checkpoint.flatten(run.state) | {k: np.asarray(v) for k, v in run.metrics.items()}


def assert_equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def test_phases_come_in_order_and_stop_at_what_is_due():
    run, seen = new_run(), []
    while run.step < 17 + 11:
        run.advance(17 + 11)
        seen.append((run.kind, run.clock))
    # multiples of 3 (log), 4 (checkpoint), 5 (evaluation), and the ends of phases
    for kind, marks in (
        ("representation", {3, 4, 5, 6, 8, 9, 10}),
        ("behaviour", {3, 4, 5, 6, 7}),
        ("train", {3, 4, 5, 6, 8, 9, 10, 11}),
    ):
        assert marks <= {clock for name, clock in seen if name == kind}
    assert [kind for kind, _ in seen] == sorted(
        (kind for kind, _ in seen), key=["representation", "behaviour", "train"].index
    )
    assert run.preparation == 17


@pytest.mark.parametrize("stop", [1, 6, 10, 13, 17, 18, 22])
def test_a_run_that_is_taken_up_again_ends_the_same(stop, tmp_path):
    """Stopped in each phase, at their borders, and with other numbers of updates in a call."""
    whole = new_run()
    while whole.step < 25:
        whole.advance(25)
    first = new_run()
    while first.step < stop:
        first.advance(stop)
    first.save(tmp_path)
    second = new_run(seed=0)
    saved = checkpoint.load(tmp_path)
    assert saved is not None
    second.restore(saved, print)
    while second.step < 25:
        second.advance(25)
    assert_equal(everything(second), everything(whole))


def test_a_signal_breaks_off_what_a_phase_computes_first(monkeypatch):
    """Columns of a large set take minutes: nothing of them is kept, and nothing else is lost."""
    run, begin = new_run(), CtrlLcb.begin

    def long(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
        return begin(*arguments)

    while run.step < 17:
        run.advance(17)
    before = everything(run)
    with monkeypatch.context() as patched, stop_requests() as stop:
        patched.setattr(CtrlLcb, "begin", long)
        with pytest.raises(Stopped):
            run.advance(25, stop.at_once)
    assert run.step == 17
    assert_equal(everything(run), before)


def test_seeds_differ():
    one, other = new_run(0), new_run(1)
    for run in (one, other):
        run.advance(1)
    assert float(one.metrics["nce_loss"]) != float(other.metrics["nce_loss"])


def test_stops_at_the_first_update_that_is_not_finite():
    run = new_run()
    while run.step < 17:
        run.advance(17)
    run._together = 4
    agent = run.state.agent
    before = agent.planner.actor_critic
    broken = jax.tree.map(lambda x: x * np.nan, before.critic[0])
    planner = agent.planner._replace(
        actor_critic=before._replace(critic=(broken, before.critic[1]))
    )
    run.learner.state = run.state._replace(agent=agent._replace(planner=planner))
    with pytest.raises(NotFinite, match=r"td_loss is nan.* at step 18") as error:
        run.advance(40)
    assert error.value.arrays["observation"].shape == (8, 3)
    rows = a_set().transitions.observation
    assert all((rows == row).all(1).any() for row in error.value.arrays["observation"])


def config(data: LoggedDataset) -> RunConfig:
    return RunConfig(data.name, "ctrl-lcb", AGENT, SCHEDULE, 0, {}, Dataset.of(data, data.task))


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_a_session_writes_each_row_once_and_can_be_lengthened(tmp_path):
    whole = train(Order(config(a_set()), 10), Output(tmp_path / "a", quiet=True), a_set())
    short = train(Order(config(a_set()), 7), Output(tmp_path / "b", quiet=True), a_set())
    assert rows_of(short.path)[-1]["updates"] == 7
    again = train(Order(config(a_set()), 10), Output(tmp_path / "b", quiet=True), a_set())
    assert again.path == short.path
    assert rows_of(whole.path) == rows_of(again.path)
    evaluations = [row for row in rows_of(whole.path) if row["kind"] == "evaluation"]
    assert [(row["step"], row["updates"]) for row in evaluations] == [(22, 5), (27, 10)]
    assert all(row["length"] == 200 for row in evaluations)
    kinds = {row["kind"] for row in rows_of(whole.path)}
    assert kinds == {"representation", "behaviour", "train", "evaluation"}
    (one, first), (two, second) = (load_run(path) for path in (whole.path, again.path))
    assert one == two == load_config(whole.path)
    assert_equal(everything(first), everything(second))
    observation = np.zeros(3, np.float32)
    np.testing.assert_array_equal(first.policy()(observation), second.policy()(observation))


def test_without_an_environment_there_are_estimates_only(tmp_path):
    data = a_set(task=None)
    directory = train(Order(config(data), 5), Output(tmp_path, quiet=True), data)
    (row,) = (row for row in rows_of(directory.path) if row["kind"] == "estimate")
    assert row.keys() == {
        *("step", "kind", "updates", "estimated_value", "penalty_data", "penalty_policy")
    }
    assert 0 < row["penalty_data"] <= 2
    assert not any(row["kind"] == "evaluation" for row in rows_of(directory.path))


def test_other_data_is_another_run(tmp_path):
    data = a_set()
    run = train(Order(config(data), 1), Output(tmp_path, quiet=True), data)
    other = Dataset("arrays", "1" * 64, 3, 1, "Pendulum-v1")
    changed = RunConfig("swings", "ctrl-lcb", AGENT, SCHEDULE, 0, {}, other)
    with pytest.raises(InputError, match=r"dataset\.sha256"):
        train(Order(changed, 1), Output(tmp_path, run_dir=run.path, quiet=True), data)
