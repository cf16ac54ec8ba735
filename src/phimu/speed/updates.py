"""One update against the machine: its floating point work, and what the same products could do."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters.partial_eval import dce_jaxpr

from phimu.agents import learners, preset, protocol
from phimu.agents.schedule import Preset
from phimu.data.replay import Replay
from phimu.data.rows import width
from phimu.networks import Precision
from phimu.settings import override
from phimu.training.learner import Learner
from phimu.training.memory import keep_freed_memory
from phimu.types import Drawn, Spec

SPEC = Spec(observation_dim=17, action_dim=6)  # HalfCheetah's
ROUNDS = 5  # the quickest counts: neighbours only ever make a round slower
WORK = 4e10  # floating point operations in a round of updates,
PEAK_WORK = 3e9  # and in a round of a product alone
ROWS = 10_000  # of the replay buffer that an update draws from
KEY = np.zeros(2, np.uint32)  # of random numbers


class Case(NamedTuple):
    """An agent of the paper's preset at other sizes; of `small`, if it has no such preset.

    Without sizes the preset `small` as it is.
    """

    agent: str
    hidden: int | None = None  # width of phi's, or the planner's, hidden layers
    feature_dim: int | None = None
    bonus_scale: float = 0.0
    precision: Precision = "float32"


CASES = {
    "ctrl-ucb-m 256-256-256": Case("ctrl-ucb-m", 256, 256),
    "ctrl-ucb-m 256-256-256, bonus": Case("ctrl-ucb-m", 256, 256, 5.0),
    "ctrl-ucb-m 512-512-512": Case("ctrl-ucb-m", 512, 512),
    "ctrl-ucb-m 512-512-512, bonus": Case("ctrl-ucb-m", 512, 512, 5.0),
    "ctrl-ucb-m 1024-1024-2048": Case("ctrl-ucb-m", 1024, 2048),
    "ctrl-ucb-m 1024-1024-2048, bonus": Case("ctrl-ucb-m", 1024, 2048, 5.0),
    "ctrl-ucb-m 1024-1024-2048, bfloat16": Case("ctrl-ucb-m", 1024, 2048, 0.0, "bfloat16"),
    "deep-sf 256-256-256": Case("deep-sf", 256, 256),
    "spede 256-256-256": Case("spede", 256, 256),
    "sac 256-256": Case("sac", 256, 256),
    "ctrl-ucb-m small": Case("ctrl-ucb-m"),
    "ctrl-ucb-l small": Case("ctrl-ucb-l"),
    "sac small": Case("sac"),
}


class UpdateSpeed(NamedTuple):
    """How fast an update is, and how fast its matrix products alone could be."""

    name: str
    milliseconds: float  # the refresh of the covariance included, spread over its interval
    gflop: float  # of matrix products in an update
    gflops: float  # a second
    peak_gflops: float  # a second, of the best of its own products, alone and untransposed
    share: float


class Product(NamedTuple):
    m: int  # [m, k] x [k, n]
    n: int
    k: int

    @property
    def work(self) -> int:
        return 2 * self.m * self.n * self.k


def settings(*fields: Any) -> Preset:
    case = Case(*fields)
    if case.hidden is None:
        return preset(case.agent, "small")
    changes: dict[str, Any] = {"precision": case.precision}
    if case.agent == "sac":
        # ReLU, as in Stable-Baselines3 and sbx
        sizes = (case.hidden, case.hidden)
        changes |= {"critic_width": case.hidden, "actor_sizes": sizes, "activation": "relu"}
    else:
        changes |= {
            "feature_sizes": (case.hidden, case.hidden),
            "feature_dim": case.feature_dim,
            "critic_width": case.feature_dim,
            "bonus_scale": case.bonus_scale,
        }
    name = (
        "paper-mujoco" if "paper-mujoco" in learners(False)[case.agent].presets(False) else "small"
    )
    return override(preset(case.agent, name), changes)


def update_speed(name: str, rounds: int = ROUNDS, work: float = WORK) -> UpdateSpeed:
    keep_freed_memory()
    chosen = settings(*CASES[name])
    return against_peak(name, *time_update(chosen, rounds, work), rounds)


def against_peak(name: str, seconds: float, products: Counter[Product], rounds: int) -> UpdateSpeed:
    """An update that takes so long, against the quickest of its products."""
    gflop = total_work(products) / 1e9
    best = max(peak(products, rounds) for _ in range(2))  # a slow moment must not flatter the share
    return UpdateSpeed(name, 1e3 * seconds, gflop, gflop / seconds, best, gflop / seconds / best)


def time_update(
    chosen: Preset, rounds: int = ROUNDS, work: float = WORK
) -> tuple[float, Counter[Product]]:
    """(seconds of a round of updates as a run makes it, its matrix products)."""
    learner = Learner(chosen.settings, SPEC, chosen.schedule, 0)
    replay = random_replay(chosen, ROWS)
    taken, products = 0.0, Counter[Product]()
    for phase in protocol.phases(chosen.settings):
        drawn = [example(chosen, replay, phase.name)] * (phase.updates or 1)
        own = update_products(learner, phase.name, drawn[0])
        count = in_a_round(own, work)
        learn = partial(_learn, learner, phase.name, drawn)
        learn(3)
        taken += min(seconds(partial(learn, count)) for _ in range(rounds)) / count
        if phase.begin_every:
            begin = partial(learner.begin, phase.name, replay, 0)
            taken += min(seconds(begin) for _ in range(3)) / phase.begin_every
        for product, times in own.items():
            products[product] += times * len(drawn)
    return taken, products


def _learn(learner: Learner, phase: str, drawn: list[Drawn], count: int) -> None:
    for step in range(count):
        learner.learn(phase, step, drawn, len(drawn))
        learner.check(step)


def random_replay(chosen: Preset, rows: int) -> Replay:
    replay = Replay(SPEC, rows, rows, chosen.schedule.batch_size)
    fill(replay, rows)
    return replay


def fill(replay: Replay, rows: int) -> None:
    table = np.random.default_rng(0).standard_normal((rows, width(replay.spec)), np.float32)
    observation_dim, action_dim = replay.spec.observation_dim, replay.spec.action_dim
    ends = np.cumsum([observation_dim, action_dim, 1, observation_dim])
    for row in table:
        observation, action, reward, following, *_ = np.split(row, ends)
        replay.add(observation, np.tanh(action), reward[0], following, False, False)


def example(chosen: Preset, replay: Replay, phase: str = "policy") -> Drawn:
    return protocol.draw(chosen.settings, phase, replay, np.random.default_rng(0))


def update_products(learner: Learner, phase: str, drawn: Drawn) -> Counter[Product]:
    program = learner.program._replace(phase=phase)
    return matrix_products(program.update, learner.state, drawn, KEY)


def total_work(products: Counter[Product]) -> int:
    return sum(product.work * count for product, count in products.items())


def in_a_round(products: Counter[Product], work: float) -> int:
    """How many updates with these products come to so much work."""
    return max(3, round(work / total_work(products)))


def matrix_products(function: Callable[..., Any], *arguments: Any) -> Counter[Product]:
    """Those that the result of a function needs."""
    traced = jax.make_jaxpr(function)(*arguments).jaxpr
    needed, *_ = dce_jaxpr(traced, [True] * len(traced.outvars))  # not what nobody asks for
    return Counter(_products(needed))


def _products(jaxpr: Any) -> Iterator[Product]:
    """The matrix products of a traced function, those of functions inside it included.

    Those of a scan count as often as it goes round; of other loops, which say no number, once.
    """
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (left, _), (batched, _) = equation.params["dimension_numbers"]
            a, b = (v.aval.shape for v in equation.invars)
            k = int(np.prod([a[i] for i in left]))
            repeats = int(np.prod([a[i] for i in batched]))
            m = int(np.prod(a)) // (k * repeats)
            n = int(np.prod(b)) // (k * repeats)
            yield from [Product(m, n, k)] * repeats
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from list(_products(inner)) * equation.params.get("length", 1)


def peak(products: Counter[Product], rounds: int = ROUNDS) -> float:
    """GFLOP a second of the quickest of the products that matter, each alone."""
    whole = total_work(products)
    large = [p for p, count in products.items() if p.work * count > 0.05 * whole]
    return max(_gflops(product, rounds) for product in large)


_multiply = jax.jit(jnp.matmul)


def _gflops(product: Product, rounds: int) -> float:
    a, b = jnp.ones((product.m, product.k)), jnp.ones((product.k, product.n))
    count = max(2, round(PEAK_WORK / product.work))

    def repeat() -> None:
        for _ in range(count):
            out = _multiply(a, b)
        out.block_until_ready()

    repeat()
    return product.work * count / min(seconds(repeat) for _ in range(rounds)) / 1e9


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
