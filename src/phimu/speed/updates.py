"""One update against the machine: its floating point work, and what the same products could do."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters.partial_eval import dce_jaxpr

from phimu.agents.ctrl_ucb import CtrlUcb
from phimu.agents.presets import Agent, override, preset
from phimu.networks import Precision
from phimu.training.memory import keep_freed_memory
from phimu.training.online import update
from phimu.types import Batch, Spec

SPEC = Spec(observation_dim=17, action_dim=6)  # HalfCheetah's
ROUNDS = 5  # the quickest counts: neighbours only ever make a round slower
WORK = 4e10  # floating point operations in a round


class Case(NamedTuple):
    """An agent of the paper's preset at other sizes."""

    agent: str
    hidden: int  # width of phi's, or the planner's, hidden layers
    feature_dim: int
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
    "sac 256-256": Case("sac", 256, 256),
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
    """A matrix product [m, k] x [k, n]."""

    m: int
    n: int
    k: int

    @property
    def work(self) -> int:
        return 2 * self.m * self.n * self.k


def settings(*fields: Any) -> Agent:
    """The agent of a Case."""
    case = Case(*fields)
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
    return override(preset(case.agent, "paper-mujoco"), changes).settings


def update_speed(name: str, rounds: int = ROUNDS, work: float = WORK) -> UpdateSpeed:
    """One case of CASES."""
    keep_freed_memory()
    agent = settings(*CASES[name])
    return against_peak(name, *time_update(agent, rounds, work), rounds)


def against_peak(name: str, seconds: float, products: Counter[Product], rounds: int) -> UpdateSpeed:
    """An update that takes so long, against the quickest of its products."""
    gflop = sum(product.work * count for product, count in products.items()) / 1e9
    best = max(peak(products, rounds) for _ in range(2))  # a slow moment must not flatter the share
    return UpdateSpeed(name, 1e3 * seconds, gflop, gflop / seconds, best, gflop / seconds / best)


def time_update(
    agent: Agent, rounds: int = ROUNDS, work: float = WORK, batch_size: int = 256
) -> tuple[float, Counter[Product]]:
    """(seconds of an update, its matrix products)."""
    state: Any = agent.init(SPEC, jax.random.PRNGKey(0))
    data = example(agent, batch_size)
    products = matrix_products(agent.update, state, *data, jax.random.PRNGKey(0))
    count = in_a_round(products, work)

    def updates(state: Any, count: int) -> Any:
        for step in range(count):
            state, metrics = update(agent, state, 0, step, *data)
        jax.block_until_ready(metrics)
        return state

    state = updates(state, 3)
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        state = updates(state, count)
        times.append((time.perf_counter() - begin) / count)
    return min(times) + _refresh_share(agent, state), products


def example(agent: Agent, batch_size: int) -> list[Any]:
    """A batch, and the noise that goes with it: what an update takes."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    batch = Batch(
        observation=normal(batch_size, SPEC.observation_dim),
        action=np.tanh(normal(batch_size, SPEC.action_dim)),
        reward=normal(batch_size),
        next_observation=normal(batch_size, SPEC.observation_dim),
        terminated=np.zeros(batch_size, np.float32),
    )
    if isinstance(agent, CtrlUcb):
        return [batch, normal(agent.noise.negatives, SPEC.observation_dim)]
    return [batch]


def _refresh_share(agent: Agent, state: Any) -> float:
    """Seconds of a refresh of the covariance, per update."""
    if not isinstance(agent, CtrlUcb) or not agent.confidence.bonus_scale:
        return 0.0
    rng = np.random.default_rng(0)
    rows = agent.confidence.covariance_sample
    pairs = [rng.standard_normal((rows, size), np.float32) for size in SPEC]
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        jax.block_until_ready(agent.refresh(state, pairs[0], pairs[1], rows).whitening)
        times.append(time.perf_counter() - begin)
    return min(times) / agent.confidence.refresh_every


def in_a_round(products: Counter[Product], work: float) -> int:
    """How many updates with these products come to so much work."""
    return max(3, round(work / sum(p.work * count for p, count in products.items())))


def matrix_products(function: Callable[..., Any], *arguments: Any) -> Counter[Product]:
    """Those that the result of a function needs."""
    traced = jax.make_jaxpr(function)(*arguments).jaxpr
    needed, *_ = dce_jaxpr(traced, [True] * len(traced.outvars))  # not what nobody asks for
    return Counter(_products(needed))


def _products(jaxpr: Any) -> Iterator[Product]:
    """The matrix products of a traced function, those of functions inside it included."""
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
                    yield from _products(inner)


def peak(products: Counter[Product], rounds: int = ROUNDS) -> float:
    """GFLOP a second of the quickest of the products that matter, each alone."""
    whole = sum(product.work * count for product, count in products.items())
    large = [p for p, count in products.items() if p.work * count > 0.05 * whole]
    return max(_gflops(product, rounds) for product in large)


@jax.jit
def _multiply(a: jax.Array, b: jax.Array) -> jax.Array:
    return a @ b


def _gflops(product: Product, rounds: int) -> float:
    a, b = jnp.ones((product.m, product.k)), jnp.ones((product.k, product.n))
    count = max(2, round(3e9 / product.work))

    def repeat() -> None:
        for _ in range(count):
            out = _multiply(a, b)
        out.block_until_ready()

    repeat()
    return product.work * count / min(_seconds(repeat) for _ in range(rounds)) / 1e9


def _seconds(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
