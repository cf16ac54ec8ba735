"""CTRL-UCB, Algorithm 1: learn phi by contrast, add the elliptical bonus, plan on phi."""

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phimu.confidence import Elliptical
from phimu.errors import InputError
from phimu.networks import Precision, in_own_precision
from phimu.normalisation import Acting, Normaliser, normalise_batch, normaliser
from phimu.planning.critics import smaller
from phimu.planning.soft_actor_critic import Phi, Planner, SoftActorCritic
from phimu.representation.learner import Contrastive, Representation
from phimu.representation.negatives import Negatives
from phimu.types import Batch, Metrics, Spec


class CtrlState(NamedTuple):
    normaliser: Normaliser
    representation: Representation
    whitening: jax.Array  # [d, d], of the covariance
    planner: Planner

    @property
    def acting(self) -> Acting:
        return Acting(self.normaliser, self.planner.actor)


@dataclass(frozen=True)
class CtrlUcb:
    """CTRL-UCB. With a linear critic and a bonus-prediction loss it is UCBL, else UCBM."""

    representation: Contrastive = field(default_factory=Contrastive)
    noise: Negatives = field(default_factory=Negatives)
    confidence: Elliptical = field(default_factory=Elliptical)
    planner: SoftActorCritic = field(default_factory=SoftActorCritic)
    uniform_mix: float = 0.0
    """epsilon: the share of uniformly random actions while collecting."""
    normalise_observations: bool = False
    """Running normalisation of observations for phi, mu and the actor."""
    raw_beside_phi: bool = False
    """Whether the critic also reads (s, a) beside phi; the paper's reads phi alone.

    They are multiplied by sqrt(d / their number): at unit variance they weigh as much as phi.
    """
    next_noise: float = 0.0
    """Standard deviation of noise added to s' before contrast, in the units phi sees.

    It blurs deterministic dynamics, whose ratio would be a spike: phi then changes smoothly with a.
    """
    planner_rows: int | None = None
    """Rows of a batch the planner learns from; contrast wants larger batches than control."""
    precision: Precision = "float32"
    """Of the operands of matrix products in an update; bfloat16 gains on hardware that has it."""

    def __post_init__(self) -> None:
        self.planner.refuse_behaviour()
        if not 0 <= self.uniform_mix <= 1:
            raise InputError(f"uniform_mix is {self.uniform_mix}: give a share from 0 to 1.")
        if self.planner_rows is not None and self.planner_rows < 1:
            raise InputError(f"planner_rows is {self.planner_rows}: give at least 1, or None.")

    def init(self, spec: Spec, key: jax.Array) -> CtrlState:
        for_features, for_planner = jax.random.split(key)
        width = self.representation.feature_dim
        state = CtrlState(
            normaliser(self.normalise_observations, spec.observation_dim),
            self.representation.init(spec, for_features),
            self.confidence.init(width),
            self.planner.init(spec, width + self.raw_beside_phi * sum(spec), for_planner),
        )
        # Slow copies start as the same arrays; separate ones can be donated to a compiled step.
        return jax.tree.map(jnp.copy, state)

    def act(
        self, acting: Acting, observation: jax.Array, key: jax.Array, deterministic: bool
    ) -> jax.Array:
        """Actions in [-1, 1] for observations [..., D]: the mode, or a sample of the mixture."""
        for_policy, for_choice, for_uniform = jax.random.split(key, 3)
        action = acting.act(observation, for_policy, deterministic)
        if deterministic or not self.uniform_mix:
            return action
        uniform = jax.random.uniform(for_uniform, action.shape, minval=-1.0, maxval=1.0)
        chosen = jax.random.bernoulli(for_choice, self.uniform_mix, action.shape[:-1])
        return jnp.where(chosen[..., None], uniform, action)

    @in_own_precision
    def update(
        self, state: CtrlState, batch: Batch, noise: jax.Array, key: jax.Array
    ) -> tuple[CtrlState, Metrics]:
        """Lines 6 to 9 of Algorithm 1 on one batch and the noise that goes with it."""
        seen = state.normaliser.include(batch.observation)
        batch, noise = normalise_batch(seen, batch), seen(noise)
        few = Batch(*(column[: self.planner_rows] for column in batch))
        to_predict = None
        if self.representation.bonus_prediction_weight:
            before = state.representation.slow.phi(few.observation, few.action)
            to_predict = self._bonus(state.whitening, before)
        for_planner, for_batch, for_noise = jax.random.split(key, 3)
        blurred = batch._replace(next_observation=self._blur(batch.next_observation, for_batch))
        representation, learned = self.representation.update(
            state.representation, blurred, self._blur(noise, for_noise), self.noise, to_predict
        )
        here = representation.slow.phi(few.observation, few.action)
        bonus = self._bonus(state.whitening, here)
        planner, planned = self.planner.update(
            state.planner,
            self._features(representation),
            few._replace(reward=few.reward + bonus),
            for_planner,
            self._beside(here, few.observation, few.action),
        )
        metrics = learned | planned | {"bonus": jnp.mean(bonus)}
        return CtrlState(seen, representation, state.whitening, planner), metrics

    def refresh(
        self, state: CtrlState, observation: np.ndarray, action: np.ndarray, buffer_size: int
    ) -> CtrlState:
        """Line 7: the covariance anew, from a sample of the buffer under the current slow phi."""
        whitening = self.confidence.refresh(
            np.asarray(_slow_phi(self, state, observation, action)), buffer_size
        )
        return state._replace(whitening=whitening)

    # Queries, on observations as the environment gives them.

    def phi(self, state: CtrlState, observation: jax.Array, action: jax.Array) -> jax.Array:
        """The slow phi(s, a) that the planner reads: [B, d]."""
        return state.representation.slow.phi(state.normaliser(observation), action)

    def bonus(self, state: CtrlState, observation: jax.Array, action: jax.Array) -> jax.Array:
        """The elliptical bonus: [B]."""
        return self.confidence.bonus(state.whitening, self.phi(state, observation, action))

    def q_value(self, state: CtrlState, observation: jax.Array, action: jax.Array) -> jax.Array:
        """The smaller of the twin Q values: [B]."""
        phi = self._features(state.representation)
        return smaller(state.planner.critic, phi(state.normaliser(observation), action))

    def log_ratio(
        self,
        state: CtrlState,
        observation: jax.Array,
        action: jax.Array,
        next_observation: jax.Array,
    ) -> jax.Array:
        """log P(s'|s,a)/p(s') of each (s, a) [B] with each s' [K]: [B, K]."""
        phi = self.phi(state, observation, action)
        return self.representation.slow_log_ratio(
            state.representation, phi, state.normaliser(next_observation)
        )

    def _bonus(self, whitening: jax.Array, phi: jax.Array) -> jax.Array:
        """Line 8, the bonus of phi [B, d]; computed anew each time, never stored."""
        if not self.confidence.bonus_scale:
            return jnp.zeros(phi.shape[0])
        return self.confidence.bonus(whitening, phi)

    def _blur(self, next_observation: jax.Array, key: jax.Array) -> jax.Array:
        if not self.next_noise:
            return next_observation
        return next_observation + self.next_noise * jax.random.normal(key, next_observation.shape)

    def _features(self, representation: Representation) -> Phi:
        """The function the planner is handed: slow phi, with (s, a) beside it if asked for."""
        return lambda s, a: self._beside(representation.slow.phi(s, a), s, a)

    def _beside(self, phi: jax.Array, observation: jax.Array, action: jax.Array) -> jax.Array:
        if not self.raw_beside_phi:
            return phi
        # A single action would hardly be heard among hundreds of components of phi.
        raw = jnp.concatenate([observation, action], -1)
        return jnp.concatenate([phi, raw * (phi.shape[-1] / raw.shape[-1]) ** 0.5], -1)


@partial(jax.jit, static_argnums=0)
def _slow_phi(
    agent: CtrlUcb, state: CtrlState, observation: jax.Array, action: jax.Array
) -> jax.Array:
    return agent.phi(state, observation, action)
