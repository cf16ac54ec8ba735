"""The behaviour policy of a set, cloned, and the divergences of a policy from the clone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from phimu.errors import InputError
from phimu.networks import MLP, norm
from phimu.planning.soft_actor_critic import Divergence, Regulariser
from phimu.policies import LOG_STD_RANGE, before_tanh
from phimu.types import Metrics, Spec


class Mixture(eqx.Module):
    """A policy on [-1, 1]^n: in each dimension tanh of a sample of a mixture of Gaussians.

    One mixture per dimension, as in the published code: n independent ones have components^n modes
    for the price of n * components. They cannot say that two dimensions change sides together.
    """

    network: MLP
    components: int = eqx.field(static=True)
    least_log_std: float = eqx.field(static=True)

    def __init__(
        self,
        spec: Spec,
        sizes: Sequence[int],
        components: int,
        key: jax.Array,
        least_log_std: float = LOG_STD_RANGE[0],
    ):
        widths = (spec.observation_dim, *sizes, 3 * spec.action_dim * components)
        self.network = MLP(widths, key, "relu")
        self.components, self.least_log_std = components, least_log_std

    def __call__(self, observation: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Log weights, means and log standard deviations, each [..., action_dim, components].

        The published code has -20 as the lower bound of the last, with which a dimension that is
        constant in a set has no finite density.
        """
        out = self.network(observation)
        out = out.reshape(*out.shape[:-1], 3, -1, self.components)
        logits, mean, raw = (out[..., part, :, :] for part in range(3))
        low, high = self.least_log_std, LOG_STD_RANGE[1]
        log_std = low + 0.5 * (high - low) * (jnp.tanh(raw) + 1.0)
        return jax.nn.log_softmax(logits), mean, log_std

    def log_density(self, observation: jax.Array, action: jax.Array) -> jax.Array:
        """Of actions [..., action_dim], moved inside the bounds: [...]."""
        return _log_density(self(observation), before_tanh(action))

    def sample(self, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """An action [..., action_dim] and its log density [...]."""
        parameters = self(observation)
        before = _draw(parameters, key)
        return jnp.tanh(before), _log_density(parameters, before)


Parameters = tuple[jax.Array, jax.Array, jax.Array]


def _draw(parameters: Parameters, key: jax.Array) -> jax.Array:
    """Before the tanh: [..., action_dim].

    Its gradient is that of the chosen components, as in the published code; that the weights
    choose is not differentiated, so they learn from the density alone.
    """
    log_weight, mean, log_std = parameters
    for_choice, for_noise = jax.random.split(key)
    chosen = jax.random.categorical(for_choice, log_weight)
    here = jax.nn.one_hot(chosen, mean.shape[-1])  # a sum instead of a scatter in the gradient
    noise = jax.random.normal(for_noise, mean.shape[:-1])
    return jnp.sum(here * mean, axis=-1) + jnp.exp(jnp.sum(here * log_std, axis=-1)) * noise


def _log_density(parameters: Parameters, before: jax.Array) -> jax.Array:
    """Of tanh(before): [...]."""
    log_weight, mean, log_std = parameters
    distance = (before[..., None] - mean) * jnp.exp(-log_std)
    each = log_weight - 0.5 * distance**2 - log_std - 0.5 * np.log(2 * np.pi)
    squash = 2.0 * (np.log(2.0) - before - jax.nn.softplus(-2.0 * before))  # log(1 - tanh^2)
    return jnp.sum(jax.nn.logsumexp(each, axis=-1) - squash, axis=-1)


class BehaviourCloningState(NamedTuple):
    """Training state of the clone and of the weight of its entropy."""

    policy: Mixture
    log_entropy_weight: jax.Array
    policy_optimiser: optax.OptState
    entropy_optimiser: optax.OptState


@dataclass(frozen=True)
class BehaviourCloning:
    """How the behaviour policy is cloned, before anything is planned."""

    behaviour_updates: int = 200_000
    """Updates of the clone; it is frozen after them."""
    behaviour_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of the clone."""
    behaviour_components: int = 5
    """Gaussians in the mixture of each action dimension."""
    behaviour_learning_rate: float = 1e-3
    """Adam's step; a tenth of it after 90 % of the updates, a hundredth after 95 %."""
    behaviour_entropy: float | None = None
    """Entropy the clone is held at; by default minus the number of action dimensions. A bound
    that it never reaches, such as -100, leaves it to the data: see docs/lab-notes.md."""
    behaviour_least_log_std: float = LOG_STD_RANGE[0]
    """How narrow a Gaussian of the clone may be, before the tanh. Narrow ones, from data that is
    nearly deterministic, make the gradient of the KL divergence explode; this bounds it."""

    def __post_init__(self) -> None:
        for name in ("behaviour_updates", "behaviour_components"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: give at least 1.")
        if self.behaviour_least_log_std >= LOG_STD_RANGE[1]:
            raise InputError(
                f"behaviour_least_log_std is {self.behaviour_least_log_std}: give less than "
                f"{LOG_STD_RANGE[1]:g}, {LOG_STD_RANGE[0]:g} as a rule."
            )

    def optimiser(self) -> optax.GradientTransformation:
        """One for the policy and one for the entropy weight."""

        def rate(step: jax.Array) -> jax.Array:
            done = step / self.behaviour_updates
            share = jnp.where(done < 0.9, 1.0, jnp.where(done < 0.95, 0.1, 0.01))
            return self.behaviour_learning_rate * share

        return optax.adam(rate)

    def init(self, spec: Spec, key: jax.Array) -> BehaviourCloningState:
        policy = Mixture(
            spec,
            self.behaviour_sizes,
            self.behaviour_components,
            key,
            self.behaviour_least_log_std,
        )
        log_weight = jnp.zeros(())
        optimiser = self.optimiser()
        return BehaviourCloningState(
            policy, log_weight, optimiser.init(policy), optimiser.init(log_weight)
        )

    def update(
        self,
        state: BehaviourCloningState,
        observation: jax.Array,
        action: jax.Array,
        key: jax.Array,
    ) -> tuple[BehaviourCloningState, Metrics]:
        """One step down E[weight log b(a~|s) - log b(a|s)], a~ of the clone, a of the set."""
        weight = jnp.exp(state.log_entropy_weight)
        optimiser = self.optimiser()

        def loss(policy: Mixture) -> tuple[jax.Array, Metrics]:
            parameters = policy(observation)
            fit = jnp.mean(_log_density(parameters, before_tanh(action)))
            entropy = -jnp.mean(_log_density(parameters, _draw(parameters, key)))
            told = {"behaviour_log_density": fit, "behaviour_entropy": entropy}
            return -weight * entropy - fit, told

        (value, told), grads = jax.value_and_grad(loss, has_aux=True)(state.policy)
        updates, policy_optimiser = optimiser.update(grads, state.policy_optimiser)
        policy = eqx.apply_updates(state.policy, updates)

        aim = self.behaviour_entropy
        if aim is None:
            aim = -float(action.shape[-1])
        distance = told["behaviour_entropy"] - aim
        updates, entropy_optimiser = optimiser.update(distance, state.entropy_optimiser)
        log_weight = state.log_entropy_weight + updates

        state = BehaviourCloningState(policy, log_weight, policy_optimiser, entropy_optimiser)
        return state, told | {
            "behaviour_loss": value,
            "behaviour_entropy_weight": weight,
            "behaviour_gradient": norm(grads),
        }


NOT_HELD = -100.0  # an entropy that is never reached
# For presets that have minutes, not hours.
CLONED_QUICKLY = BehaviourCloning(
    behaviour_updates=20_000, behaviour_entropy=NOT_HELD, behaviour_least_log_std=-1.6
)


def cross_entropy(policy: Mixture) -> Divergence:
    """-log b(a|s): the half of the KL divergence that the entropy weight does not hold already."""
    return lambda observation, action, _: -policy.log_density(observation, action)


def kl_primal(policy: Mixture) -> Divergence:
    """log pi(a|s) - log b(a|s), whose mean under pi is the KL divergence from the clone."""
    return lambda observation, action, log_density: (
        log_density - policy.log_density(observation, action)
    )


DIVERGENCES: dict[str, Callable[[Mixture], Divergence]] = {
    "cross_entropy": cross_entropy,
    "kl_primal": kl_primal,
}


@dataclass(frozen=True)
class Regularisation:
    """How a policy is held near the clone."""

    divergence: Literal["cross_entropy", "kl_primal"] = "cross_entropy"
    """From the behaviour: cross_entropy, -log b(a|s), as published; kl_primal, log pi - log b."""
    behaviour_weight: float = 1.0
    """Of that divergence in the actor's loss ("Behavior regularizer")."""
    value_scale: float | None = None
    """If given, the actor sees Q divided by its mean size, times this: one behaviour_weight then
    fits tasks whose returns differ. 2.5 in TD3+BC; the paper has Q itself."""
    value_penalty: bool = False
    """Whether the target of Q is lowered by the divergence at s' as well (BRAC-v)."""

    def __post_init__(self) -> None:
        if self.value_scale is not None and self.value_scale <= 0:
            raise InputError(
                f"value_scale is {self.value_scale}: give a positive number, or None for Q itself."
            )
        if self.behaviour_weight < 0:
            raise InputError(f"behaviour_weight is {self.behaviour_weight}: give 0 or more.")

    def near(self, clone: Mixture) -> Regulariser:
        """What the planner is handed."""
        divergence = DIVERGENCES[self.divergence](clone)
        return Regulariser(divergence, self.behaviour_weight, self.value_scale, self.value_penalty)
