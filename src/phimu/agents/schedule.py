"""When a run collects, learns, evaluates and saves; and presets, which pair it with settings."""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from phimu.errors import InputError, at_least
from phimu.networks import Precision


@dataclass(frozen=True)
class Collection:
    """How an online run fills its replay buffer, and how often it learns from it."""

    learning_starts: int = 10_000
    """Steps of uniformly random actions first; they are the random trajectories of the noise."""
    buffer_size: int = 1_000_000
    """Transitions the replay buffer holds."""
    train_freq: int = 1
    """Environment steps between two rounds of updates; agents that learn on policy have
    batch_size between them."""
    gradient_steps: int = 1
    """Updates per round."""
    uniform_mix: float = 0.0
    """epsilon: the share of uniformly random actions while collecting."""
    envs: int = 1
    """Environments side by side, one call of the policy for all; updates per step stay the same."""

    def __post_init__(self) -> None:
        at_least(0, learning_starts=self.learning_starts)
        others = {"uniform_mix", "learning_starts"}
        at_least(1, **{name: value for name, value in vars(self).items() if name not in others})
        if not 0 <= self.uniform_mix <= 1:
            raise InputError(f"uniform_mix is {self.uniform_mix}: give a share from 0 to 1.")
        if self.envs > self.buffer_size:
            raise InputError(f"envs is {self.envs}, but buffer_size {self.buffer_size}: give more.")


@dataclass(frozen=True)
class Schedule:
    """When a run learns, evaluates and saves; logged data is a schedule that collects nothing."""

    collection: Collection | None = field(default=Collection(), metadata={"structure": True})
    """None: the run learns from logged data, and the numbers below count updates of a phase."""
    batch_size: int = 256
    """Transitions per update."""
    normalise_observations: bool = False
    """Whether networks see observations by their mean and variance: of those seen so far, or of
    the whole dataset."""
    precision: Precision = "float32"
    """Of the operands of matrix products in an update; bfloat16 gains on hardware that has it."""
    evaluate_every: int = 5_000
    """Environment steps, or updates of the policy, between two evaluations; 0 for none."""
    evaluation_episodes: int = 10
    """Episodes per evaluation, with the mode action."""
    checkpoint_every: int = 10_000
    """Environment steps, or updates, between two checkpoints."""
    log_every: int = 500
    """Environment steps, or updates, between two rows of training metrics."""

    def __post_init__(self) -> None:
        at_least(0, evaluate_every=self.evaluate_every)
        counts = ("evaluation_episodes", "checkpoint_every", "log_every")
        at_least(1, **{name: getattr(self, name) for name in counts})
        at_least(2, batch_size=self.batch_size)  # in-batch negatives need another row


# A batch half as large as the paper's: an update takes 0.6 of the time and learns as much of it.
SMALL = Schedule(Collection(learning_starts=1_000), batch_size=128)
# A maze whose goal has to be found: 1K random steps, then learning, and a look every 5K.
EXPLORING = Schedule(
    Collection(learning_starts=1_000, train_freq=2),
    normalise_observations=True,
    log_every=1_000,
)
LOGGED = Schedule(collection=None, evaluate_every=10_000, log_every=1_000)
LOGGED_NORMALISED = replace(LOGGED, normalise_observations=True)


class Preset(NamedTuple):
    settings: Any
    schedule: Schedule


Presets = dict[str, Preset]
