"""What every agent of the registry must do, online and on logged data, as it is registered.

An agent is found by its line in the registry. All tests of one share its compiled programs: a
first run learns the probe, others repeat a part of it, or learn other probes.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import phimu.environments  # noqa: F401  (registers the probes)
from phimu.agents import AGENTS, learners, protocol
from phimu.agents.schedule import Schedule
from phimu.data.logged import LoggedDataset, Transitions
from phimu.environments.task import open_task
from phimu.runs import checkpoint
from phimu.runs.config import Dataset, RunConfig, load_config
from phimu.runs.json_form import from_json, to_json
from phimu.settings import names, override
from phimu.training.offline import OfflineRun, preparation
from phimu.training.online import OnlineRun

Run = OnlineRun | OfflineRun

DOCS = Path(__file__).parents[2] / "docs"
CASES = [
    *((agent, "online") for agent in learners(logged=False)),
    *((agent, "discrete") for agent, entry in learners(logged=False).items() if entry.discrete),
    *((agent, "logged") for agent in learners(logged=True)),
]
IDS = ["-".join(case) for case in CASES]


def another_phi() -> set[tuple[str, str]]:
    """Cases of the class of an agent before them: with another phi, or of discrete actions."""
    seen: dict[Any, Any] = {}
    found = set()
    for agent, kind in CASES:
        settings = next(iter(AGENTS[agent].presets(kind == "logged").values())).settings
        what = agent if kind == "discrete" else type(getattr(settings, "representation", None))
        if kind != "logged" and seen.setdefault((kind, type(settings)), what) != what:
            found.add((agent, kind))
    return found


REPEATS = another_phi()


def marked() -> list[Any]:
    """Discrete actions of REPEATS are `thorough`."""
    marks = {case: (pytest.mark.thorough,) for case in REPEATS if case[1] == "discrete"}
    return [
        pytest.param(case, id=name, marks=marks.get(case, ()))
        for case, name in zip(CASES, IDS, strict=True)
    ]


# Besides what makes it `tiny`, where the agent has such a setting.
CHANGES: dict[str, Any] = {
    "behaviour_weight": 0.01,  # the best action of the set, and not its mean
    "conservatism": 0.1,  # the same
    "latent_weight": 0.01,  # samples of the whole set
    "latent_clip": 2.0,
    "discrepancy_limit": 1.0,
    "bonus_scale": 0.02,  # enough to be computed, too little to matter
    "refresh_every": 7,  # not a multiple of the updates in a round
    "covariance_sample": 64,  # fewer than the buffer holds, so always as many
}
LONG = 100, 600  # rounds of updates online, or updates of the policy: enough for the probe
SHORT = 15, 60  # the same of the runs that are compared
DISCOUNT = 0.8  # of `tiny`
TRACES: Counter[tuple[str, str]] = Counter()


@dataclass(frozen=True)
class Counted:
    """An agent that counts how often each phase is traced, which is how often it is compiled."""

    name: str
    agent: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.agent, name)

    def update(self, phase: str, state: Any, feed: Any, key: Any) -> Any:
        TRACES[self.name, phase] += 1
        return self.agent.update(phase, state, feed, key)

    def traces(self) -> dict[str, int]:
        return {phase.name: TRACES[self.name, phase.name] for phase in protocol.phases(self)}


def recorded() -> LoggedDataset:
    """The probe MatchObservation as uniformly random actions record it: reward -(a - s / 2)^2."""
    rng, rows = np.random.default_rng(0), 2_000
    observation, action = rng.uniform(-1, 1, (2, rows, 1)).astype(np.float32)
    transitions = Transitions(
        observation,
        action,
        -((action - observation / 2) ** 2)[:, 0],
        observation,
        np.ones(rows, bool),
        np.zeros(rows, bool),
        np.arange(rows, dtype=np.int32),
    )
    return LoggedDataset(transitions, "match-observation", "arrays", sha256="0" * 64)


class Case(NamedTuple):
    """An agent, small, and what it learns from."""

    name: str
    kind: str  # online, discrete (online, one of three actions) or logged
    agent: Counted
    schedule: Schedule

    @property
    def logged(self) -> bool:
        return self.kind == "logged"

    def run(self, probe: str = "MatchObservation") -> Run:
        if self.kind == "discrete":
            probe = "ChooseObservation"
        if self.logged:
            data = recorded()
            return OfflineRun(self.agent, data.spec, self.schedule, seed=0, data=data)
        return OnlineRun(self.agent, open_task(f"phimu/probe-{probe}-v0"), self.schedule, seed=0)

    def step(self, rounds: int, updates: int) -> int:
        """At which there were so many rounds of updates online, or updates of the policy."""
        if self.logged:
            return preparation(self.agent) + updates
        between = protocol.round_steps(self.agent, self.schedule)
        return self.schedule.collection.learning_starts + rounds * between - 1


def advanced(run: Run, until: int, watch: Callable[[Run], Any] = lambda run: None) -> Run:
    """The run at this step; `watch` sees it whenever there were updates."""
    while run.step < until:
        if isinstance(run, OfflineRun):
            run.advance(until)
        else:
            run.advance()
        if run.metrics:
            watch(run)
    run.check()
    return run


def arrays(run: Run) -> dict[str, np.ndarray]:
    """All that is learned and measured, as copies: the next update takes its arrays away."""
    return {name: np.array(array) for name, array in run.learner.arrays().items()}


def assert_identical(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.tobytes() == other[name].tobytes(), name


@pytest.fixture(scope="module", params=marked())
def case(request: pytest.FixtureRequest, tiny: Any) -> Case:
    name, kind = request.param
    chosen = tiny(name, kind == "logged")
    own = names(chosen)
    changes = {field: value for field, value in CHANGES.items() if field in own}
    settings, schedule = override(chosen, changes)
    return Case(name, kind, Counted(IDS[CASES.index(request.param)], settings), schedule)


class First(NamedTuple):
    """The first run of a case, which compiles all that the others need."""

    run: Run  # at its end
    short: dict[str, np.ndarray]  # when it was short
    metrics: list[dict[str, float]]  # after each call that learned
    traces: list[dict[str, int]]  # at the same times


@pytest.fixture(scope="module")
def first(case: Case) -> First:
    metrics, traces = [], []

    def watch(run: Run) -> None:
        metrics.append({name: float(value) for name, value in run.metrics.items()})
        traces.append(case.agent.traces())

    run = advanced(case.run(), case.step(*SHORT), watch)
    short = arrays(run)
    return First(advanced(run, case.step(*LONG), watch), short, metrics, traces)


def test_solves_a_probe(case: Case, first: First):
    """The best action is half of what is observed, whether it collects the data or is given it.

    Of three actions it is the one that is shown.
    """
    policy = first.run.policy()
    if case.kind == "discrete":
        shown = np.array([[-1.0], [0.0], [1.0]], np.float32)
        np.testing.assert_array_equal(policy(shown), np.eye(3))
        values = [first.run.learner.query("q_value", shown, np.eye(3)[[a] * 3]) for a in range(3)]
        apart = np.stack(values, axis=1) - np.min(values, axis=0)[:, None]
        np.testing.assert_allclose(apart.max(axis=1), 1.0, atol=0.35)  # of the next reward
        return
    found = [policy(np.array([s], np.float32))[0] for s in (-0.8, 0.0, 0.8)]
    np.testing.assert_allclose(found, [-0.4, 0.0, 0.4], atol=0.15)


class Answers:
    """What a run has learned, at observations given as numbers."""

    def __init__(self, run: Run):
        self.run = run
        self.has_q = protocol.answers(run.agent, "q_value")

    def action(self, *observations: float) -> np.ndarray:
        """The mode action at each."""
        policy = self.run.policy()
        return np.array([policy(np.array([s], np.float32))[0] for s in observations])

    def value(self, *observations: float, action: float | None = None) -> np.ndarray:
        """Q of each, of the policy's own action if none is given: then it may also be V."""
        rows = np.array(observations, np.float32)[:, None]
        if not self.has_q:
            assert action is None
            return self.run.learner.query("value", rows)
        if action is not None:
            return self.run.learner.query("q_value", rows, np.full_like(rows, action))
        return self.run.learner.query("q_value", rows, self.action(*observations)[:, None])


def constant_reward(found: Answers) -> None:
    """Termination does not bootstrap: with it Q would be 5."""
    np.testing.assert_allclose(found.value(0.0), 1.0, atol=0.1)
    if found.has_q:
        np.testing.assert_allclose(found.value(0.0, action=-0.5), 1.0, atol=0.1)


def observation_reward(found: Answers) -> None:
    np.testing.assert_allclose(found.value(-1.0, 1.0), [-1.0, 1.0], atol=0.1)


def delayed_reward(found: Answers) -> None:
    """Bootstrapping past the end would give 1 / (1 - 0.64) = 2.8, and not at all Q(0) = 0."""
    np.testing.assert_allclose(found.value(0.0, 1.0), [DISCOUNT, 1.0], atol=0.08)


def action_reward(found: Answers) -> None:
    np.testing.assert_allclose(found.action(0.0), 0.5, atol=0.15)
    np.testing.assert_allclose(found.value(0.0), 0.0, atol=0.1)
    if found.has_q:
        np.testing.assert_allclose(found.value(0.0, action=-0.5), -1.0, atol=0.2)


def match_observation(found: Answers) -> None:
    """-(a - s / 2)^2: 0 where they match, -0.64 where they are crossed."""
    np.testing.assert_allclose(found.value(-0.8, 0.0, 0.8), 0.0, atol=0.25)
    if found.has_q:
        np.testing.assert_allclose(found.value(-0.8, 0.8, action=0.4), [-0.64, 0.0], atol=0.25)
        np.testing.assert_allclose(found.value(-0.8, 0.8, action=-0.4), [0.0, -0.64], atol=0.25)


def time_limit(found: Answers) -> None:
    """Taken for an end, the tenth step would leave 1 / (1 - 0.9 * 0.8) = 3.6."""
    np.testing.assert_allclose(found.value(0.0), 1 / (1 - DISCOUNT), atol=0.4)


PROBES = {"DelayedReward": delayed_reward, "TimeLimit": time_limit}
# Whose answers those of DelayedReward and MatchObservation imply.
SIMPLER_PROBES = {
    "ConstantReward": constant_reward,
    "ObservationReward": observation_reward,
    "ActionReward": action_reward,
}


def test_values_are_the_known_ones(case: Case, first: First):
    """Of REPEATS only those of the probe that all learn: the others are asked below."""
    check_values(case, {} if (case.name, case.kind) in REPEATS else PROBES)
    match_observation(Answers(first.run))


@pytest.mark.thorough
def test_values_of_another_phi_are_the_known_ones(case: Case):
    if (case.name, case.kind) not in REPEATS:
        pytest.skip("make test has asked it")
    check_values(case, PROBES)


@pytest.mark.slow
def test_values_of_simpler_probes_are_the_known_ones(case: Case):
    check_values(case, SIMPLER_PROBES)


def check_values(case: Case, probes: dict[str, Callable[[Answers], None]]) -> None:
    learned = [word for word in ("q_value", "value") if protocol.answers(case.agent, word)]
    if case.kind != "online" or not learned:
        pytest.skip("values are asked of agents that learn them online, of continuous actions")
    for probe, check in probes.items():
        check(Answers(advanced(case.run(probe), case.step(*LONG))))


def test_one_seed_is_one_run(case: Case, first: First):
    assert_identical(arrays(advanced(case.run(), case.step(*SHORT))), first.short)


def test_resumes_bit_exactly(case: Case, first: First, tmp_path: Path):
    """Stopped, saved, restored and continued; online within an episode, else in each phase."""
    end = case.step(*SHORT)
    if case.logged:
        stops, expected = [*middles(case), end - 7], first.short
    else:
        stops, expected = [end - 10, end - 5], arrays(advanced(case.run("TimeLimit"), end))
    run, said = case.run("TimeLimit"), []
    for stop in stops:
        advanced(run, stop).save(tmp_path)
        run = case.run("TimeLimit")
        run.restore(checkpoint.load(tmp_path), said.append)
        assert run.step == stop
    assert_identical(arrays(advanced(run, end)), expected)
    assert said == []
    assert case.agent.traces() == first.traces[-1], "a restored run was compiled anew"


def middles(case: Case) -> list[int]:
    """Steps within each phase before the policy's."""
    *before, _ = protocol.phases(case.agent)
    return [
        sum(phase.updates for phase in before[:number]) + phase.updates // 2
        for number, phase in enumerate(before)
    ]


def test_each_phase_is_compiled_once(first: First):
    """Whatever number of updates a call makes, and from whatever step on."""
    for phase in first.traces[-1]:
        counts = {traces[phase] for traces in first.traces} - {0}
        assert len(counts) == 1, f"{phase} was traced anew: {counts}"


def test_metrics_are_finite(case: Case, first: First):
    assert len(first.metrics) > len(protocol.phases(case.agent))
    for metrics in first.metrics:
        assert metrics
        assert all(np.isfinite(value) for value in metrics.values()), metrics


def test_a_configuration_is_read_as_it_was_written(case: Case, tmp_path: Path):
    """As the agent is here and under each of its presets, through the text of a file."""
    dataset = Dataset.of(recorded(), None) if case.logged else None
    presets = AGENTS[case.name].presets(case.logged).values()
    for settings, schedule in [(case.agent.agent, case.schedule), *presets]:
        text = json.dumps(to_json(settings))
        assert from_json(type(settings), json.loads(text)) == settings
        config = RunConfig("a task", case.name, settings, schedule, seed=5, dataset=dataset)
        (tmp_path / "config.json").write_text(json.dumps(config.to_json()))
        assert load_config(tmp_path) == config


def test_it_has_a_page(case: Case):
    page = DOCS / f"{AGENTS[case.name].page or case.name}.md"
    assert page.is_file()
    assert case.name in page.read_text()
