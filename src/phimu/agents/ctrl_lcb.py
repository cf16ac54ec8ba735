"""CTRL-LCB, Algorithm 2: learn phi from logged data, take the elliptical penalty, plan on phi."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phimu.confidence import Elliptical, Kernel, kernel, median_distance
from phimu.data.device_set import DeviceSet, Drawn
from phimu.errors import InputError
from phimu.networks import Precision, in_own_precision
from phimu.normalisation import Acting, Normaliser, normalise_batch, normaliser
from phimu.planning.behaviour import DIVERGENCES, Behaviour, BehaviourCloning
from phimu.planning.critics import smaller
from phimu.planning.soft_actor_critic import Phi, Planner, SoftActorCritic
from phimu.representation.learner import Contrastive, Representation
from phimu.representation.negatives import Negatives
from phimu.types import Batch, Metrics, Spec

CHUNK = 8_192  # rows of the set whose phi is computed at once


class LcbState(NamedTuple):
    normaliser: Normaliser
    representation: Representation
    behaviour: Behaviour
    kernel: Kernel  # of penalty_features; empty where the penalty is of phi itself
    whitening: jax.Array  # [d, d], of the covariance; or [m, m], of the kernel's features
    planner: Planner

    @property
    def acting(self) -> Acting:
        return Acting(self.normaliser, self.planner.actor)


@dataclass(frozen=True)
class CtrlLcb:
    """CTRL-LCB: CTRL-UCB with the sign of the elliptical term turned, and a careful actor."""

    representation: Contrastive = field(default_factory=Contrastive)
    noise: Negatives = field(default_factory=lambda: Negatives(random_share=0.0))
    confidence: Elliptical = field(default_factory=lambda: Elliptical(bonus_scale=1.0))
    behaviour: BehaviourCloning = field(default_factory=BehaviourCloning)
    planner: SoftActorCritic = field(default_factory=SoftActorCritic)
    representation_updates: int = 200_000
    """Updates of phi and mu, before the policy's; then phi is frozen."""
    divergence: Literal["cross_entropy", "kl_primal"] = "cross_entropy"
    """How far the policy is from the behaviour: cross_entropy as published, or kl_primal."""
    normalise_observations: bool = False
    """By the set's mean and variance, for phi, mu, the actor and the behaviour."""
    raw_beside_phi: bool = False
    """Whether the critic also reads (s, a) beside phi, unscaled; the paper's reads phi alone."""
    next_noise: float = 0.0
    """Standard deviation of noise added to s' before contrast, in the units phi sees."""
    penalty_features: int = 0
    """If given, the penalty is of so many random features of phi, not of phi itself: see Kernel."""
    penalty_width: float = 0.45
    """Width of their kernel, as a share of the median distance between phi of the set."""
    precompute: bool = True
    """Keep phi(s, a) of the whole set: faster, for 4 bytes times its rows times feature_dim."""
    precision: Precision = "float32"
    """Of the operands of matrix products in an update; bfloat16 gains on hardware that has it."""

    def __post_init__(self) -> None:
        if self.representation_updates < 1:
            raise InputError(
                f"representation_updates is {self.representation_updates}: give at least 1."
            )
        if self.penalty_features < 0 or self.penalty_width <= 0:
            raise InputError(
                f"penalty_features is {self.penalty_features}, penalty_width {self.penalty_width}: "
                "give 0 or more, and a positive width."
            )
        if self.noise.random_share:
            raise InputError(
                f"random_share is {self.noise.random_share}: logged data has no random "
                "trajectories apart from it; give 0."
            )

    @property
    def phases(self) -> tuple[tuple[str, int], ...]:
        """Line 3 of Algorithm 2, the policy that wrote the data, and lines 4 to 6."""
        return (
            ("representation", self.representation_updates),
            ("behaviour", self.behaviour.behaviour_updates),
            ("policy", 0),
        )

    def init(self, spec: Spec, key: jax.Array) -> LcbState:
        for_features, for_planner, for_behaviour = jax.random.split(key, 3)
        width = self.representation.feature_dim
        state = LcbState(
            normaliser(self.normalise_observations, spec.observation_dim),
            self.representation.init(spec, for_features),
            self.behaviour.init(spec, for_behaviour),
            kernel(width, self.penalty_features),
            self.confidence.init(self.penalty_features or width),
            self.planner.init(spec, width + self.raw_beside_phi * sum(spec), for_planner),
        )
        # Slow copies start as the same arrays; separate ones can be donated to a compiled step.
        return jax.tree.map(jnp.copy, state)

    def act(
        self, acting: Acting, observation: jax.Array, key: jax.Array, deterministic: bool
    ) -> jax.Array:
        """Actions in [-1, 1] for observations [..., D]: the mode, or a sample."""
        return acting.act(observation, key, deterministic)

    def begin(self, phase: str, state: LcbState, data: DeviceSet) -> tuple[LcbState, DeviceSet]:
        """Before the first phase the set's statistics; before planning lines 4 and 5."""
        if phase == "representation":
            seen = state.normaliser.of(data.observations)
            state = state._replace(normaliser=seen)
        if phase != "policy":
            return state, data
        if self.precompute:
            data = self._with_phi(state, data)
        if self.penalty_features:
            some, _, _ = next(self._chunks(state, data))
            width = self.penalty_width * median_distance(np.asarray(some))
            fixed = kernel(self.representation.feature_dim, self.penalty_features)
            scaled = fixed._replace(frequencies=fixed.frequencies / np.float32(width))
            state = state._replace(kernel=scaled)
        whitening = self.confidence.fit(
            np.asarray(self._lift(state, phi))[skip:] for phi, _, skip in self._chunks(state, data)
        )
        state = state._replace(whitening=whitening)
        return state, self._with_penalty(state, data) if self.precompute else data

    @in_own_precision
    def learn(
        self, phase: str, state: LcbState, data: DeviceSet, key: jax.Array
    ) -> tuple[LcbState, Metrics]:
        """One update of a phase."""
        drawn = data.sample(key)
        batch = normalise_batch(state.normaliser, drawn.batch)
        if phase == "representation":
            noise = state.normaliser(data.sample_next(key, self.noise.negatives))
            return self._contrast(state, batch, noise, key)
        if phase == "behaviour":
            behaviour, metrics = self.behaviour.update(
                state.behaviour, batch.observation, batch.action, key
            )
            return state._replace(behaviour=behaviour), metrics
        return self._plan(state, batch, drawn, key)

    def _contrast(
        self, state: LcbState, batch: Batch, noise: jax.Array, key: jax.Array
    ) -> tuple[LcbState, Metrics]:
        """Line 3."""
        for_batch, for_noise = jax.random.split(key)
        blurred = batch._replace(next_observation=self._blur(batch.next_observation, for_batch))
        representation, metrics = self.representation.update(
            state.representation, blurred, self._blur(noise, for_noise), self.noise
        )
        return state._replace(representation=representation), metrics

    def _plan(
        self, state: LcbState, batch: Batch, drawn: Drawn, key: jax.Array
    ) -> tuple[LcbState, Metrics]:
        """Line 6: reward minus penalty, on the phi that no gradient reaches."""
        if self.precompute:
            here, penalty = drawn.columns["phi"], drawn.columns["penalty"]
        else:
            here = state.representation.slow.phi(batch.observation, batch.action)
            penalty = self._penalty(state, here)
        planner, metrics = self.planner.update(
            state.planner,
            self._features(state.representation),
            batch._replace(reward=batch.reward - penalty),
            key,
            self._beside(here, batch.observation, batch.action),
            DIVERGENCES[self.divergence](state.behaviour.policy),
        )
        return state._replace(planner=planner), metrics | {"penalty": jnp.mean(penalty)}

    # Queries, on observations as the environment gives them.

    def phi(self, state: LcbState, observation: jax.Array, action: jax.Array) -> jax.Array:
        """The slow phi(s, a) that the planner reads: [B, d]."""
        return state.representation.slow.phi(state.normaliser(observation), action)

    def penalty(self, state: LcbState, observation: jax.Array, action: jax.Array) -> jax.Array:
        """The elliptical penalty: [B]."""
        return self._penalty(state, self.phi(state, observation, action))

    def q_value(self, state: LcbState, observation: jax.Array, action: jax.Array) -> jax.Array:
        """The smaller of the twin Q values: [B]."""
        phi = self._features(state.representation)
        return smaller(state.planner.critic, phi(state.normaliser(observation), action))

    def _penalty(self, state: LcbState, phi: jax.Array) -> jax.Array:
        """Line 5, of phi [B, d]: [B]."""
        return self.confidence.bonus(state.whitening, self._lift(state, phi))

    def _lift(self, state: LcbState, phi: jax.Array) -> jax.Array:
        """What the covariance is of."""
        return state.kernel(phi) if self.penalty_features else phi

    def _blur(self, next_observation: jax.Array, key: jax.Array) -> jax.Array:
        if not self.next_noise:
            return next_observation
        return next_observation + self.next_noise * jax.random.normal(key, next_observation.shape)

    def _features(self, representation: Representation) -> Phi:
        return lambda s, a: self._beside(representation.slow.phi(s, a), s, a)

    def _beside(self, phi: jax.Array, observation: jax.Array, action: jax.Array) -> jax.Array:
        return jnp.concatenate([phi, observation, action], -1) if self.raw_beside_phi else phi

    # The whole set, in parts.

    def _chunks(self, state: LcbState, data: DeviceSet) -> Iterator[tuple[jax.Array, int, int]]:
        """phi of each part, where it starts, and how many of its rows the part before had too."""
        size = min(CHUNK, len(data))
        for start in range(0, len(data), size):
            at = min(start, len(data) - size)  # the last part is as long as the others
            yield _phi_at(self, state, data, at, size), at, start - at

    def _with_phi(self, state: LcbState, data: DeviceSet) -> DeviceSet:
        """phi(s, a) of every row as a column."""
        phi = jnp.zeros((len(data), self.representation.feature_dim))
        for part, at, _ in self._chunks(state, data):
            phi = _put(phi, part, at)
        return data.with_columns(phi=phi)

    def _with_penalty(self, state: LcbState, data: DeviceSet) -> DeviceSet:
        """The penalty of every row beside it."""
        penalty = jnp.zeros(len(data))
        for part, at, _ in self._chunks(state, data):
            penalty = _put(penalty, _penalty_of(self, state, part), at)
        return data.with_columns(penalty=penalty)


@partial(jax.jit, static_argnums=(0, 4))
def _phi_at(agent: CtrlLcb, state: LcbState, data: DeviceSet, at: int, size: int) -> jax.Array:
    if "phi" in data.columns:
        return jax.lax.dynamic_slice_in_dim(data.columns["phi"], at, size)
    batch = data.rows_at(at, size)
    return agent.phi(state, batch.observation, batch.action)


@partial(jax.jit, static_argnums=0)
def _penalty_of(agent: CtrlLcb, state: LcbState, phi: jax.Array) -> jax.Array:
    return agent._penalty(state, phi)


@partial(jax.jit, donate_argnums=0)
def _put(column: jax.Array, part: jax.Array, at: int) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(column, part, at, 0)
