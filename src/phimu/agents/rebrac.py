"""ReBRAC (Tarasov et al., 2023): TD3 held near the logged actions, in the actor and in the target.

LayerNorm in the critics and the second of the two penalties are what it adds to TD3+BC.
"""

from dataclasses import dataclass, replace

import jax
import optax

from phimu.agents import schedule
from phimu.agents.sac import concatenate
from phimu.agents.schedule import Preset, Presets
from phimu.data.device_set import DeviceSet
from phimu.errors import InputError, at_least
from phimu.planning.critics import sized_twin, smaller
from phimu.planning.deterministic import DeterministicState, begin
from phimu.planning.held_near import near_actions_update, next_logged
from phimu.policies import Deterministic
from phimu.types import Drawn, Feed, Metrics, Spec


@dataclass(frozen=True)
class Rebrac:
    """ReBRAC. The authors chose both weights dataset by dataset: docs/rebrac.md has them."""

    actor_penalty: float = 0.01
    """Of the squared distance to the logged action in the actor's loss, where Q is divided by its
    mean size."""
    critic_penalty: float = 0.01
    """Of the squared distance to the next logged action in the target of Q."""
    policy_noise: float = 0.2
    """Standard deviation of the noise of the next action in the target of Q."""
    noise_clip: float = 0.5
    """Bound of that noise."""
    actor_every: int = 2
    """Updates of the critic per update of the actor and of the slow copies."""
    actor_sizes: tuple[int, ...] = (256, 256, 256)
    """Hidden layers of the actor, with ReLU."""
    critic_sizes: tuple[int, ...] = (256, 256, 256)
    """Hidden layers of the critic, with ReLU."""
    critic_layer_norm: bool = True
    """LayerNorm in the hidden layers of the critic."""
    discount: float = 0.99
    """gamma."""
    target_rate: float = 0.005
    """How fast the slow copies of actor and critic follow."""
    actor_learning_rate: float = 1e-3
    """Adam's step for the actor."""
    critic_learning_rate: float = 1e-3
    """Adam's step for the critic."""

    def __post_init__(self) -> None:
        if not 0 <= self.discount < 1:
            raise InputError(f"discount is {self.discount}: give a number from 0 to below 1.")
        for name in ("actor_penalty", "critic_penalty"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} is {getattr(self, name)}: give 0 or more.")
        at_least(1, actor_every=self.actor_every)

    def optimisers(self) -> tuple[optax.GradientTransformation, ...]:
        return optax.adam(self.actor_learning_rate), optax.adam(self.critic_learning_rate)

    def init(self, spec: Spec, key: jax.Array) -> DeterministicState:
        actor_key, critic_key = jax.random.split(key)
        actor = Deterministic(spec.observation_dim, spec.action_dim, self.actor_sizes, actor_key)
        # Deviation: LayerNorm is before the ReLU, as in all networks here, not after it.
        style = critic_key, "relu", self.critic_layer_norm
        critic = sized_twin(self.critic_sizes, spec.pair_dim, *style)
        return begin(actor, critic, *self.optimisers())

    def policy(self, state: DeterministicState) -> Deterministic:
        return state.slowly.actor

    def draw(self, phase: str, store: DeviceSet, rng: jax.Array) -> Drawn:
        """Also the action that was logged at s', where the episode goes on in the set."""
        sample = store.sample(rng)
        return Drawn(sample.rows, columns=next_logged(store, sample))

    def update(
        self, phase: str, state: DeterministicState, feed: Feed, key: jax.Array
    ) -> tuple[DeterministicState, Metrics]:
        """One update of the critic, and each `actor_every`th time one of the actor."""
        here = concatenate(feed.batch.observation, feed.batch.action)
        return near_actions_update(self, state, concatenate, feed, key, here)

    def q_value(
        self, state: DeterministicState, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        return smaller(state.critic, concatenate(observation, action))


LOGGED: Presets = {
    "d4rl": Preset(Rebrac(), replace(schedule.LOGGED, batch_size=1_024)),
    "small": Preset(
        Rebrac(actor_sizes=(256, 256), critic_sizes=(256, 256)), schedule.LOGGED_NORMALISED
    ),
}
