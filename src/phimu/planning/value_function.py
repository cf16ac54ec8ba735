"""V(s) of the policy that acts: what advantages are measured by, and how it is fitted."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from phimu.errors import InputError, at_least
from phimu.networks import MLP, unit_columns
from phimu.planning.advantages import gae
from phimu.planning.minibatches import passes
from phimu.types import Batch, Spec


class ValueFunctionState(NamedTuple):
    network: MLP
    optimiser: optax.OptState


@dataclass(frozen=True)
class ValueFunction:
    """A network for V(s), fitted to advantage + V(s) of the same rows."""

    critic_sizes: tuple[int, ...] = (64, 64)
    """Hidden layers of V(s)."""
    critic_learning_rate: float = 3e-4
    """Adam's step for V(s)."""
    critic_betas: tuple[float, float] = (0.9, 0.999)
    """Adam's decay rates for V(s)."""
    critic_epsilon: float = 1e-8
    """Adam's epsilon for V(s)."""
    critic_epochs: int = 10
    """Passes over the rows of an update for V(s)."""
    critic_minibatches: int = 32
    """Gradient steps in each of them."""
    discount: float = 0.99
    """gamma."""
    gae_lambda: float = 0.95
    """lambda of the advantages: 0 is the TD error, 1 the return minus V(s)."""
    bootstrap_time_limits: bool = True
    """Whether an episode that a time limit cuts goes on with V(s'), or has no value then."""

    def __post_init__(self) -> None:
        at_least(1, critic_epochs=self.critic_epochs, critic_minibatches=self.critic_minibatches)
        if not 0 <= self.discount < 1:
            raise InputError(f"discount is {self.discount}: give a number from 0 to below 1.")
        if not 0 <= self.gae_lambda <= 1:
            raise InputError(f"gae_lambda is {self.gae_lambda}: give a number from 0 to 1.")

    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.critic_learning_rate, *self.critic_betas, eps=self.critic_epsilon)

    def init(self, spec: Spec, key: jax.Array) -> ValueFunctionState:
        sizes = (spec.observation_dim, *self.critic_sizes, 1)
        network = unit_columns(MLP(sizes, key, "tanh"))
        return ValueFunctionState(network, self.optimiser().init(network))

    def __call__(self, state: ValueFunctionState, observation: jax.Array) -> jax.Array:
        """V(s) of observations [..., observation_dim]: [...]."""
        return state.network(observation)[..., 0]

    def advantages(self, state: ValueFunctionState, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Of rows [T, envs] in order: their advantages, and what V(s) is to be fitted to."""
        both = jnp.stack([batch.observation, batch.next_observation])
        value, next_value = self(state, both)
        settings = self.discount, self.gae_lambda, self.bootstrap_time_limits
        advantage = gae(batch, value, next_value, *settings)
        return advantage, advantage + value

    def fit(
        self, state: ValueFunctionState, observation: jax.Array, target: jax.Array, key: jax.Array
    ) -> tuple[ValueFunctionState, jax.Array]:
        """The state, and the mean loss of the last pass; observation [B, D], target [B]."""
        adam = self.optimiser()

        def step(
            state: ValueFunctionState, rows: tuple[jax.Array, jax.Array]
        ) -> tuple[ValueFunctionState, jax.Array]:
            def loss(network: MLP) -> jax.Array:
                return 0.5 * jnp.mean((network(rows[0])[..., 0] - rows[1]) ** 2)

            value, slope = jax.value_and_grad(loss)(state.network)
            updates, optimiser = adam.update(slope, state.optimiser)
            return ValueFunctionState(eqx.apply_updates(state.network, updates), optimiser), value

        count = self.critic_minibatches
        rows = observation, target
        state, losses = passes(step, state, rows, key, self.critic_epochs, count)
        return state, jnp.mean(losses[-count:])
