"""CTRL-LCB, Algorithm 2: learn phi from logged data, take the elliptical penalty, plan on phi."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phimu.agents import schedule
from phimu.agents.protocol import Phase
from phimu.agents.schedule import Preset, Presets
from phimu.confidence import Elliptical, EllipticalState
from phimu.data.device_set import DeviceSet
from phimu.errors import InputError, at_least
from phimu.planning.behaviour import CLONED_QUICKLY, NOT_HELD, BehaviourCloning, Regularisation
from phimu.planning.critics import BesidePhi, as_it_is, beside, less_last, smaller
from phimu.planning.held_near import PLANNERS, NearClone
from phimu.planning.soft_actor_critic import SoftActorCritic
from phimu.representation import REPRESENTATIONS
from phimu.representation.contrastive import Contrastive
from phimu.representation.negatives import Negatives
from phimu.representation.ratio import Exponential
from phimu.representation.seam import Phi, bonus_input, needs_next_action
from phimu.settings import override, part
from phimu.types import Drawn, Feed, Metrics, Spec, Store

USUAL = 0.95  # the share of the data that `beyond_usual` takes for known
CHUNK = 8_192  # rows of the dataset whose phi is computed at once


class CtrlLcbState(NamedTuple):
    representation: Any
    confidence: EllipticalState
    usual: jax.Array  # []: what is not counted of the penalty
    planner: Any


@dataclass(frozen=True)
class CtrlLcb:
    """CTRL-LCB: CTRL-UCB with the sign of the elliptical term turned, and a careful actor."""

    representation: Any = part(Contrastive(noise=Negatives(random_share=0.0)), REPRESENTATIONS)
    """How phi is learned: a Representation (phimu.representation.seam)."""
    confidence: Elliptical = Elliptical(bonus_scale=1.0)
    planner: Any = part(NearClone(), PLANNERS)
    """What keeps the policy near the data: clone, a divergence from a cloned behaviour policy, with
    soft actor-critic; or squared_error, the distance to the logged actions, with TD3 (ReBRAC)."""
    representation_updates: int = 200_000
    """Updates of phi and mu, before the policy's; then phi is frozen."""
    beside_phi: BesidePhi = "nothing"
    """What the critic reads beside phi: nothing, as in the paper; the pair (s, a); or scaled_pair,
    (s, a) multiplied so that at unit variance it weighs as much as phi."""
    beyond_usual: bool = False
    """Whether only what exceeds the penalty of nearly all of the data (its 95 % quantile) counts:
    what is as well known as the data costs nothing, and long episodes are not dear for that."""
    exact_penalty: bool = False
    """Whether Q is a network less the penalty itself, which is then exact wherever the policy acts;
    otherwise only logged rewards are lowered, and Q has to extrapolate that."""
    precompute: bool = True
    """Keep phi(s, a) of the whole dataset: faster, for 4 bytes a row and component of phi."""

    def __post_init__(self) -> None:
        at_least(1, representation_updates=self.representation_updates)
        if needs_next_action(self.representation):
            name = type(self.representation).__name__
            raise InputError(
                f"representation is {name}, which is of a policy: here phi is learned before there "
                "is one, so choose another."
            )

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Line 3 of Algorithm 2, the policy that wrote the data if cloned, and lines 4 to 6."""
        updates = self.planner.preparation
        cloning = (Phase("behaviour", updates),) if updates else ()
        return Phase("representation", self.representation_updates), *cloning, Phase("policy")

    def init(self, spec: Spec, key: jax.Array) -> CtrlLcbState:
        for_features, *for_planner = jax.random.split(key, 3)
        d = self.representation.feature_dim
        inputs = d if self.beside_phi == "nothing" else d + spec.pair_dim
        wrap = less_last if self.exact_penalty else as_it_is
        return CtrlLcbState(
            self.representation.init(spec, for_features),
            self.confidence.init(d),
            jnp.zeros(()),
            self.planner.init(spec, inputs, for_planner, wrap),
        )

    def policy(self, state: CtrlLcbState) -> Any:
        return self.planner.policy(state.planner)

    def begin(
        self, phase: str, state: CtrlLcbState, store: Store, normaliser: Any, rng: Any
    ) -> tuple[CtrlLcbState, Store]:
        """Before planning, lines 4 and 5: phi, covariance and penalty of the whole dataset."""
        if phase != "policy" or not isinstance(store, DeviceSet):
            return state, store
        if self.precompute:
            store = self._with("phi", state, store, normaliser, self.representation.feature_dim)
        inputs = self._chunks("bonus_input", state, store, normaliser)
        parts = (np.asarray(some)[skip:] for some, _, skip in inputs)
        confidence = self.confidence.fit(parts, np.asarray(store.rewards))
        state = state._replace(confidence=confidence, usual=jnp.zeros(()))
        if not (self.precompute or self.beyond_usual):
            return state, store
        penalised = self._with("penalty", state, store, normaliser)
        if self.beyond_usual:
            state = state._replace(usual=jnp.quantile(penalised.columns["penalty"], USUAL))
        return state, penalised if self.precompute else store

    def draw(self, phase: str, store: Store, rng: Any) -> Drawn:
        sample = store.sample(rng)
        if phase == "representation":
            return self.representation.draw(store, sample, rng)
        more = self.planner.draw(store, sample) if phase == "policy" else {}
        return Drawn(sample.rows, columns=sample.columns | more)

    def update(
        self, phase: str, state: CtrlLcbState, feed: Feed, key: jax.Array
    ) -> tuple[CtrlLcbState, Metrics]:
        if phase == "representation":  # line 3
            representation, metrics = self.representation.update(state.representation, feed, key)
            return state._replace(representation=representation), metrics
        if phase == "behaviour":
            planner, metrics = self.planner.prepare(state.planner, feed, key)
            return state._replace(planner=planner), metrics
        return self._plan(state, feed, key)

    def _plan(
        self, state: CtrlLcbState, feed: Feed, key: jax.Array
    ) -> tuple[CtrlLcbState, Metrics]:
        """Line 6: reward minus penalty, on the phi that no gradient reaches."""
        batch = feed.batch
        if self.precompute:
            here, penalty = feed.columns["phi"], feed.columns["penalty"]
        else:
            here = self.phi(state, batch.observation, batch.action)
            given = here  # of which the penalty is, unless it is of something else
            if self.confidence.bonus_features != "phi":
                given = self.bonus_input(state, batch.observation, batch.action)
            penalty = self.confidence.bonus(state.confidence, given)
        counted = self._counted(state, penalty)
        planner, metrics = self.planner.update(
            state.planner,
            self._inputs(state),
            feed._replace(batch=batch._replace(reward=batch.reward - counted)),
            key,
            self._read(here, batch.observation, batch.action, counted),
        )
        told = {"penalty": jnp.mean(counted), "reward": jnp.mean(batch.reward)}
        return state._replace(planner=planner), metrics | told

    def _counted(self, state: CtrlLcbState, penalty: jax.Array) -> jax.Array:
        """What is subtracted of penalties [B]: all, or what is beyond the usual."""
        return jnp.maximum(penalty - state.usual, 0.0) if self.beyond_usual else penalty

    def _inputs(self, state: CtrlLcbState) -> Phi:
        """The function the planner is handed."""
        phi = self.representation.phi(state.representation)

        def inputs(s: jax.Array, a: jax.Array) -> jax.Array:
            if not self.exact_penalty:
                return beside(phi(s, a), self.beside_phi, s, a)
            return self._read(phi(s, a), s, a, self._counted(state, self.penalty(state, s, a)))

        return inputs

    def _read(
        self, phi: jax.Array, observation: jax.Array, action: jax.Array, counted: jax.Array
    ) -> jax.Array:
        """What the critic reads of pairs with this phi [B, d] and penalty [B]."""
        read = beside(phi, self.beside_phi, observation, action)
        return jnp.concatenate([read, counted[:, None]], -1) if self.exact_penalty else read

    # Queries

    def phi(self, state: CtrlLcbState, observation: jax.Array, action: jax.Array) -> jax.Array:
        """The slow phi(s, a) that the planner reads: [B, d]."""
        return self.representation.phi(state.representation)(observation, action)

    def penalty(self, state: CtrlLcbState, observation: jax.Array, action: jax.Array) -> jax.Array:
        """Line 5, the elliptical penalty: [B]."""
        return self.confidence.bonus(state.confidence, self.bonus_input(state, observation, action))

    def bonus_input(
        self, state: CtrlLcbState, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        """What the penalty is of: [B, d]."""
        name = self.confidence.bonus_features
        return bonus_input(self.representation, name, state.representation)(observation, action)

    def q_value(self, state: CtrlLcbState, observation: jax.Array, action: jax.Array) -> jax.Array:
        critic = self.planner.critic_of(state.planner)
        return smaller(critic, self._inputs(state)(observation, action))

    @property
    def behaviour_log_density(self) -> Callable[..., jax.Array] | None:
        """(state, s, a) -> [B], of the actions under the clone; None where there is no clone."""
        if not isinstance(self.planner, NearClone):
            return None
        density = self.planner.behaviour_log_density
        return lambda state, observation, action: density(state.planner, observation, action)

    def _chunks(
        self, query: str, state: CtrlLcbState, data: DeviceSet, normaliser: Any
    ) -> Iterator[tuple[jax.Array, int, int]]:
        """A query of each part, where it starts, how many of its rows the part before had too."""
        size = min(CHUNK, len(data))
        for start in range(0, len(data), size):
            at = min(start, len(data) - size)  # the last part is as long as the others
            yield _query_at(self, query, state, data, normaliser, at, size), at, start - at

    def _with(
        self, query: str, state: CtrlLcbState, data: DeviceSet, normaliser: Any, *size: int
    ) -> DeviceSet:
        """A query of every row, each of this size, as a column of its name."""
        column = jnp.zeros((len(data), *size))
        for some, at, _ in self._chunks(query, state, data, normaliser):
            column = _put(column, some, at)
        return data.with_columns(**{query: column})


@partial(jax.jit, static_argnums=(0, 1, 6))
def _query_at(
    agent: CtrlLcb,
    query: str,
    state: CtrlLcbState,
    data: DeviceSet,
    normaliser: Any,
    at: int,
    size: int,
) -> jax.Array:
    batch = data.rows_at(at, size)
    return getattr(agent, query)(state, normaliser(batch.observation), batch.action)


@partial(jax.jit, donate_argnums=0)
def _put(column: jax.Array, some: jax.Array, at: int) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(column, some, at, 0)


# The table "Hyperparameters used for CTRL-LCB in D4RL evaluation" to the digit; what it leaves
# open is in docs/deviations.md.
_PAPER = CtrlLcb(
    representation=Contrastive(
        ratio=Exponential(temperature=0.2),
        noise=Negatives(random_share=0.0),
        feature_sizes=(512, 512),
        feature_dim=512,
        feature_learning_rate=3e-4,
    ),
    confidence=Elliptical(bonus_scale=1.0),
    planner=NearClone(
        BehaviourCloning(behaviour_updates=200_000),
        Regularisation("cross_entropy", behaviour_weight=1.0),
        SoftActorCritic(critic="two_layer", critic_width=512, critic_learning_rate=1e-3),
    ),
    representation_updates=200_000,
)
_SMALL = CtrlLcb(
    representation=Contrastive(
        ratio=Exponential(
            phi_output="unit_variance", mu_output="tanh", temperature=1.0, learn_temperature=True
        ),
        noise=Negatives(negatives=0, random_share=0.0),
        feature_sizes=(256, 256),
        feature_dim=256,
        feature_layer_norm=True,
    ),
    confidence=Elliptical(1.0, bonus_features="unnormalised_phi", bonus_kernel=(1_024, 0.45)),
    planner=NearClone(
        CLONED_QUICKLY,
        Regularisation("kl_primal", value_scale=10.0),
        SoftActorCritic(
            critic="two_layer",
            critic_width=256,
            critic_learning_rate=1e-3,
            planner_layer_norm=True,
            entropy_in_target=False,
            target_entropy=NOT_HELD,  # the KL divergence brings the clone's
        ),
    ),
    representation_updates=20_000,
    beside_phi="pair",
)
# The contrast that was best online: s' blurred by one deviation, which keeps it from being solved.
_BLURRED = {"levels": (1.0,), "mu_output": "unit_variance"}
_FIXED = {"temperature": 16.0, "learn_temperature": False}  # sqrt(feature_dim): ratios start near 1
(_PERTURBED,) = override((_SMALL,), _BLURRED | _FIXED)
LOGGED: Presets = {
    "paper-d4rl": Preset(_PAPER, schedule.LOGGED),
    "small": Preset(_SMALL, schedule.LOGGED_NORMALISED),
    "perturbed": Preset(_PERTURBED, schedule.LOGGED_NORMALISED),
}
