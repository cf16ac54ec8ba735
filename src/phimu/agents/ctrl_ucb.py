"""CTRL-UCB, Algorithm 1: learn phi by contrast, add the elliptical bonus, plan on phi."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phimu.agents.protocol import Phase
from phimu.agents.sac import EXPLORE_PLANNER, SMALL_PLANNER
from phimu.agents.schedule import EXPLORING, SMALL, Collection, Preset, Presets, Schedule
from phimu.confidence import Elliptical, EllipticalState, bonus_metrics, by_rooms
from phimu.errors import InputError, at_least
from phimu.normalisation import begun
from phimu.planning.critics import BesidePhi, beside, smaller
from phimu.planning.returns import n_step, with_ahead
from phimu.planning.soft_actor_critic import Actor, SoftActorCritic, SoftActorCriticState
from phimu.representation import REPRESENTATIONS
from phimu.representation.contrastive import Contrastive
from phimu.representation.negatives import Negatives
from phimu.representation.ratio import Exponential, Linear
from phimu.representation.seam import Phi, bonus_input, needs_next_action
from phimu.settings import part
from phimu.types import Batch, Drawn, Feed, Metrics, Spec, Store


class CtrlUcbState(NamedTuple):
    representation: Any
    confidence: EllipticalState
    planner: SoftActorCriticState
    usual_bonus: jax.Array | None  # [], with `bonus_baseline`


@dataclass(frozen=True)
class CtrlUcb:
    """CTRL-UCB. With a linear critic and a bonus-prediction loss it is UCBL, else UCBM."""

    representation: Any = part(Contrastive(), REPRESENTATIONS)
    """How phi is learned: a Representation (phimu.representation.seam)."""
    confidence: Elliptical = Elliptical()
    planner: SoftActorCritic = SoftActorCritic()
    beside_phi: BesidePhi = "nothing"
    """What the critic reads beside phi: nothing, as in the paper; the pair (s, a); or scaled_pair,
    (s, a) multiplied so that at unit variance it weighs as much as phi."""
    critic_trains_phi: float = 0.0
    """Weight of the TD loss in the loss of phi. 0: phi is frozen to the planner, as in the paper;
    above 0 critic and actor read the current phi, targets the slow one."""
    bonus_baseline: int = 0
    """If above 0, the critic learns from the bonus minus its mean over the latest so many
    transitions. The paper's bonus is never negative, so every end of an episode forgoes it: a goal
    that ends the episode has to pay more than all bonuses that could be had beside it. Counted from
    what the policy has lately had, an end neither repels nor attracts; where nothing ends, Q only
    shifts by a constant."""
    n_steps: int = 1
    """Rewards that the planner's target sums before it bootstraps; above 1 off policy without
    correction. Without a bonus only, which would have to be that of every step."""
    planner_rows: int | None = None
    """Rows of a batch the planner learns from; contrast wants larger batches than control."""
    planner_steps: int = 1
    """Updates of critic and actor per round; all but the first are the planner's alone, each on a
    batch of its own. On a phi that they do not train they cost little."""

    def __post_init__(self) -> None:
        if self.planner_rows is not None and self.planner_rows < 1:
            raise InputError(f"planner_rows is {self.planner_rows}: give at least 1, or None.")
        if self.bonus_baseline < 0:
            raise InputError(
                f"bonus_baseline is {self.bonus_baseline}: give 0, or how many transitions."
            )
        if self.planner_steps < 1:
            raise InputError(f"planner_steps is {self.planner_steps}: give at least 1.")
        at_least(1, n_steps=self.n_steps)
        if self.n_steps > 1 and self.confidence.bonus_scale:
            raise InputError(f"n_steps is {self.n_steps}: give 1 where bonus_scale is above 0.")
        every = getattr(self.representation, "feature_every", 0) * self.planner_steps
        if every and self.planner.target_every != every:
            raise InputError(
                f"target_every is {self.planner.target_every}: give feature_every times "
                f"planner_steps, {every}, so that a target critic reads the phi it learned from."
            )
        if self.critic_trains_phi and self.planner_steps > 1:
            raise InputError("planner_steps must be 1 where critic_trains_phi is above 0.")

    @property
    def phases(self) -> tuple[Phase, ...]:
        every = self.confidence.refresh_every if self.confidence.bonus_scale else 0
        both = Phase("policy", begin_every=every)
        if self.planner_steps == 1:
            return (both,)
        return both, Phase("planner", self.planner_steps - 1)

    def init(self, spec: Spec, key: jax.Array) -> CtrlUcbState:
        for_features, for_planner = jax.random.split(key)
        d = self.representation.feature_dim
        inputs = d if self.beside_phi == "nothing" else d + spec.pair_dim
        return CtrlUcbState(
            self.representation.init(spec, for_features),
            self.confidence.init(d),
            self.planner.init(spec, inputs, for_planner),
            jnp.zeros(()) if self.bonus_baseline else None,
        )

    def policy(self, state: CtrlUcbState) -> Actor:
        return state.planner.actor

    def begin(
        self, phase: str, state: CtrlUcbState, store: Store, normaliser: Any, rng: Any
    ) -> tuple[CtrlUcbState, Store]:
        """Line 7: the covariance anew, from a sample of the buffer under the current slow phi."""
        if not self.confidence.bonus_scale:
            return state, store
        observation, action = store.pairs(self.confidence.covariance_sample, rng)
        seen = begun(normaliser, observation)
        phi = by_rooms(partial(_bonus_input, self, state, seen), observation, action)
        confidence = self.confidence.refresh(phi, store.rewards)
        state = state._replace(confidence=confidence)
        if self.bonus_baseline:
            latest = store.latest(self.bonus_baseline)
            now = partial(_bonus, self, state, seen)
            usual = np.mean(by_rooms(now, latest.observation, latest.action))
            state = state._replace(usual_bonus=jnp.asarray(usual, jnp.float32))
        return state, store

    def draw(self, phase: str, store: Store, rng: Any) -> Drawn:
        sample = store.sample(rng)
        drawn = Drawn(sample.rows)
        if phase != "planner":
            drawn = self.representation.draw(store, sample, rng)
        return with_ahead(drawn, store, sample, self.n_steps, self.planner.discount)

    def update(
        self, phase: str, state: CtrlUcbState, feed: Feed, key: jax.Array
    ) -> tuple[CtrlUcbState, Metrics]:
        """Lines 6 to 9 of Algorithm 1 on one batch and the negatives that go with it."""
        for_planner, for_features = jax.random.split(key)
        few = Batch(*(column[: self.planner_rows] for column in n_step(feed)))
        if phase != "planner":
            feed = self._with_next_action(state, feed, for_features)
        if self.critic_trains_phi:
            return self._update_together(state, feed, few, for_planner, for_features)
        representation, learned = state.representation, {}
        if phase != "planner":
            representation, learned = self.representation.update(
                representation, feed, for_features, self._to_predict(state, few)
            )
        phi = self.representation.phi(representation)
        target_phi = getattr(self.representation, "target_phi", self.representation.phi)
        bonus = self._bonus(state._replace(representation=representation), few)
        inputs = self._inputs(phi)
        planner, planned, _ = self.planner.update_and_pull(
            state.planner,
            inputs,
            self._inputs(target_phi(representation)),
            few._replace(reward=few.reward + self._added(state, bonus)),
            for_planner,
            inputs(few.observation, few.action),
        )
        metrics = learned | planned | self._told(bonus, few.reward)
        return state._replace(representation=representation, planner=planner), metrics

    def _update_together(
        self,
        state: CtrlUcbState,
        feed: Feed,
        few: Batch,
        for_planner: jax.Array,
        for_features: jax.Array,
    ) -> tuple[CtrlUcbState, Metrics]:
        """The same where the TD loss trains phi too: the planner first, then phi, pulled by it."""
        slow = self.representation.phi(state.representation)
        phi = self.representation.current(state.representation)
        bonus = self._bonus(state, few)
        planner, planned, pull = self.planner.update_and_pull(
            state.planner,
            self._inputs(phi),
            self._inputs(slow),
            few._replace(reward=few.reward + self._added(state, bonus)),
            for_planner,
            self._inputs(phi)(few.observation, few.action),
        )
        pull = self.critic_trains_phi * pull[:, : self.representation.feature_dim]
        representation, learned = self.representation.update(
            state.representation, feed, for_features, self._to_predict(state, few), pull
        )
        metrics = learned | planned | self._told(bonus, few.reward)
        return state._replace(representation=representation, planner=planner), metrics

    def _with_next_action(self, state: CtrlUcbState, feed: Feed, key: jax.Array) -> Feed:
        """With the policy's a' at s', for a phi that is of the policy."""
        if not needs_next_action(self.representation):
            return feed
        key = jax.random.fold_in(key, 1)
        action, _ = state.planner.actor.sample(feed.batch.next_observation, key)
        return feed._replace(columns=feed.columns | {"next_action": action})

    def _to_predict(self, state: CtrlUcbState, batch: Batch) -> jax.Array | None:
        """Appendix C: CTRL-UCBL's phi is to predict the bonus of the phi before."""
        if not self.representation.bonus_prediction_weight:
            return None
        return self._bonus(state, batch)

    def _bonus(self, state: CtrlUcbState, batch: Batch) -> jax.Array:
        """Line 8: [B]; computed anew each time, never stored."""
        if not self.confidence.bonus_scale:
            return jnp.zeros(batch.reward.shape[0])
        return self.bonus(state, batch.observation, batch.action)

    def _added(self, state: CtrlUcbState, bonus: jax.Array) -> jax.Array:
        """What is added to the reward."""
        return bonus if state.usual_bonus is None else bonus - state.usual_bonus

    def _told(self, bonus: jax.Array, reward: jax.Array) -> Metrics:
        """Where there is none, a column of zeros would look as if it had decayed."""
        return bonus_metrics(bonus, reward) if self.confidence.bonus_scale else {}

    def _inputs(self, phi: Phi) -> Phi:
        """The function the planner is handed."""
        return lambda s, a: beside(phi(s, a), self.beside_phi, s, a)

    # Queries

    def phi(self, state: CtrlUcbState, observation: jax.Array, action: jax.Array) -> jax.Array:
        """The slow phi(s, a) that the planner reads: [B, d]."""
        return self.representation.phi(state.representation)(observation, action)

    def bonus(self, state: CtrlUcbState, observation: jax.Array, action: jax.Array) -> jax.Array:
        """The elliptical bonus: [B]."""
        return self.confidence.bonus(state.confidence, self.bonus_input(state, observation, action))

    def bonus_input(
        self, state: CtrlUcbState, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        """What the bonus is of: [B, d]."""
        name = self.confidence.bonus_features
        return bonus_input(self.representation, name, state.representation)(observation, action)

    def q_value(self, state: CtrlUcbState, observation: jax.Array, action: jax.Array) -> jax.Array:
        """The smaller of the twin Q values: [B]."""
        inputs = self._inputs(self.representation.phi(state.representation))
        return smaller(state.planner.critic, inputs(observation, action))


@partial(jax.jit, static_argnums=0)
def _bonus_input(
    agent: CtrlUcb, state: CtrlUcbState, normaliser: Any, observation: jax.Array, action: jax.Array
) -> jax.Array:
    return agent.bonus_input(state, normaliser(observation), action)


@partial(jax.jit, static_argnums=0)
def _bonus(
    agent: CtrlUcb, state: CtrlUcbState, normaliser: Any, observation: jax.Array, action: jax.Array
) -> jax.Array:
    return agent.bonus(state, normaliser(observation), action)


# The table "Hyperparameters used for CTRL-UCB" to the digit; what it leaves open is in
# docs/deviations.md.
_PAPER_MUJOCO = CtrlUcb(
    representation=Contrastive(
        ratio=Exponential(temperature=0.2), feature_sizes=(1024, 1024), feature_dim=2048
    ),
    confidence=Elliptical(bonus_scale=0.0),
    planner=SoftActorCritic(
        critic="two_layer",
        critic_width=2048,
        actor_sizes=(256, 256),
        initial_entropy_weight=1.0,
    ),
)
_PAPER_DMC = CtrlUcb(
    representation=Contrastive(
        ratio=Exponential(temperature=0.2), feature_sizes=(1024, 1024), feature_dim=1024
    ),
    confidence=Elliptical(bonus_scale=5.0),
    planner=SoftActorCritic(critic="two_layer", critic_width=1024, actor_sizes=(1024, 1024)),
)
# LayerNorm, softmax and unit variance hide from the bonus what is new, and a kernel makes of it a
# count of similar pairs: see the lab notes.
_COUNTING = Elliptical(0.0, bonus_features="unnormalised_phi", bonus_kernel=(512, 0.45))
# As wide as SAC's `small`, with its steps and targets. Perturbed contrast, for the plain one is
# solved at once where dynamics are nearly deterministic. What else was tried is in the lab notes.
_SMALL = CtrlUcb(
    representation=Contrastive(
        # Where dynamics are deterministic a learned temperature falls for ever and phi grows
        # rough; sqrt(feature_dim) bounds log ratios by as much.
        ratio=Exponential(phi_output="unit_variance", mu_output="unit_variance", temperature=16.0),
        noise=Negatives(negatives=0),
        levels=(1.0,),
        feature_sizes=(256, 256),
        feature_dim=256,
        feature_layer_norm=True,
    ),
    confidence=_COUNTING,
    planner=replace(SMALL_PLANNER, critic="two_layer"),
    beside_phi="scaled_pair",
)
# exp(<phi, mu>) is an expectation over random features of phi, so P(s'|s, a), and Q with it, is
# linear in those. On a frozen phi they are too smooth to balance a pole, so the TD loss pulls phi.
_SMALL_LINEAR = replace(
    _SMALL,
    representation=replace(_SMALL.representation, bonus_prediction_weight=1.0),
    planner=replace(SMALL_PLANNER, critic="random_features", critic_width=512),
    beside_phi="nothing",
    critic_trains_phi=2.0,
)
_MAZE = CtrlUcb(
    representation=Contrastive(
        ratio=Linear(mu_output="exponential", balance_weight=0.1),
        noise=Negatives(negatives=1_024),
        feature_sizes=(128, 128),
        feature_dim=512,
        fourier=(128, 0.7),
        phi_gain=2.0,
        mu_gain=4.0,
        feature_learning_rate=3e-3,
        feature_decay=1_000,
    ),
    confidence=replace(_COUNTING, bonus_scale=0.1, refresh_every=100),
    planner=SoftActorCritic(
        critic="two_layer",
        critic_width=128,
        actor_sizes=(128, 128),
        planner_layer_norm=True,
        actor_learning_rate=1e-3,
        critic_learning_rate=3e-3,
        initial_entropy_weight=0.01,
        discount=0.98,
    ),
    planner_rows=256,
)
_MAZE_EXPONENTIAL = replace(
    _MAZE,
    representation=Contrastive(
        ratio=Exponential(
            phi_output="unit_variance",
            mu_output="identity",
            temperature=16.0,  # sqrt(feature_dim), so that log ratios start near zero
            marginal_weight=0.5,
        ),
        noise=Negatives(negatives=1_024),
        feature_sizes=(128, 128),
        feature_dim=256,
        fourier=(128, 0.5),
        feature_learning_rate=2e-3,
        feature_decay=1_000,
    ),
)
# Where the goal has to be found first: a short warm-up, early and quick learning, small networks.
_MAZE_EXPLORE = CtrlUcb(
    representation=Contrastive(
        ratio=Exponential(phi_output="unit_variance", mu_output="tanh", temperature=8.0),
        noise=Negatives(negatives=0),
        feature_sizes=(128, 128),
        feature_dim=64,
        feature_layer_norm=True,
        feature_learning_rate=1e-3,
    ),
    confidence=replace(_COUNTING, bonus_scale=0.3, refresh_every=100),
    planner=EXPLORE_PLANNER,
    beside_phi="scaled_pair",
    bonus_baseline=2_000,
)
# The same with more components, for bodies with more than a position, and a larger bonus.
_EXPLORE = replace(
    _MAZE_EXPLORE,
    representation=replace(
        _MAZE_EXPLORE.representation,
        ratio=replace(_MAZE_EXPLORE.representation.ratio, temperature=11.3),
        feature_dim=128,
    ),
    confidence=replace(_MAZE_EXPLORE.confidence, bonus_scale=1.0),
)
_IN_THE_MAZE = Schedule(
    Collection(learning_starts=220_000, train_freq=25, uniform_mix=0.5),
    batch_size=1_024,
    normalise_observations=True,
    evaluate_every=20_000,
    checkpoint_every=150_000,
)
_IN_THE_MAZE_EXPONENTIAL = replace(
    _IN_THE_MAZE, collection=Collection(220_000, train_freq=25, uniform_mix=0.7)
)


def _linear(settings: CtrlUcb) -> CtrlUcb:
    """UCBL of UCBM."""
    return replace(
        settings,
        planner=replace(settings.planner, critic="linear"),
        representation=replace(settings.representation, bonus_prediction_weight=1.0),
    )


UCBM: Presets = {
    "paper-mujoco": Preset(_PAPER_MUJOCO, Schedule()),
    "paper-dmc": Preset(_PAPER_DMC, Schedule(Collection(learning_starts=5_000))),
    "small": Preset(_SMALL, SMALL),
    "explore": Preset(_EXPLORE, EXPLORING),
    "maze": Preset(_MAZE, _IN_THE_MAZE),
    "maze-exponential": Preset(_MAZE_EXPONENTIAL, _IN_THE_MAZE_EXPONENTIAL),
    "maze-explore": Preset(_MAZE_EXPLORE, EXPLORING),
}
UCBL: Presets = {
    "paper-mujoco": Preset(_linear(_PAPER_MUJOCO), Schedule()),
    "paper-dmc": Preset(_linear(_PAPER_DMC), Schedule(Collection(learning_starts=5_000))),
    "small": Preset(_SMALL_LINEAR, SMALL),
    "explore": Preset(_linear(_EXPLORE), EXPLORING),
    "maze": Preset(_linear(_MAZE), _IN_THE_MAZE),
    "maze-exponential": Preset(_linear(_MAZE_EXPONENTIAL), _IN_THE_MAZE_EXPONENTIAL),
    "maze-explore": Preset(_linear(_MAZE_EXPLORE), EXPLORING),
}
