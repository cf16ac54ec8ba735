"""n-step returns: the rewards of n steps, and what of the discount is left after them."""

from phimu.types import Batch, Drawn, Feed, Sample, Store


def with_ahead(drawn: Drawn, store: Store, sample: Sample, steps: int, discount: float) -> Drawn:
    """What an update is given, with the n-step returns of the sample where n is above 1."""
    if steps == 1:
        return drawn
    reward, ahead, left = store.ahead(sample.index, steps, discount)
    columns = drawn.columns | {"n_step_reward": reward, "left": left}
    return drawn._replace(others=drawn.others | {"ahead": ahead}, columns=columns)


def n_step(feed: Feed) -> Batch:
    """The batch that a planner learns from: (s, a, the rewards of n steps, s n steps later).

    What of the discount is left beyond one step is told as a share that has ended, so that
    discount * (1 - terminated) is discount^n, and no planner needs to know of n.
    """
    if "ahead" not in feed.others:
        return feed.batch
    return feed.batch._replace(
        reward=feed.columns["n_step_reward"],
        next_observation=feed.others["ahead"],
        terminated=1.0 - feed.columns["left"],
    )
