"""Four devices compute what one computes. JAX's devices are made once, so a child has them."""

import json
import os
import subprocess
import sys

import jax
import pytest

from phimu.errors import InputError
from phimu.training.devices import check_sizes, use_devices

pytestmark = pytest.mark.thorough
DEVICES = 4
CASES = [f"{loss} {ratio}" for loss in ("ranking", "binary") for ratio in ("linear", "exponential")]
ALMOST = 1e-6  # of the norm of an array: float32 sums in another order


@pytest.fixture(scope="module")
def differences():
    """By case and part: the largest difference between one device and four, of its norm."""
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # most of it is compiling
    child = [sys.executable, __file__]
    done = subprocess.run(child, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_are_those_of_the_whole_batch(differences, case):
    for part in ("loss", "metrics of the loss", "gradient"):
        assert differences[case][part] < ALMOST, part


@pytest.mark.parametrize("case", ["whole ctrl-ucb-m", "whole sac"])
def test_an_update_is_that_of_the_whole_batch(differences, case):
    """Losses, gradients (Adam's first moments are such) and what became of the state."""
    assert {"losses", "gradient of the critic", "gradient of the actor"} < differences[case].keys()
    assert ("gradient of phi and mu" in differences[case]) == (case != "whole sac")
    for part, difference in differences[case].items():
        assert difference < ALMOST, part


def test_every_device_keeps_the_whole_state(differences):
    assert differences["replicated"] is True


def test_several_updates_in_a_call_are_the_same_on_several_devices(differences):
    assert differences["several"] < 1e-5


def test_a_run_goes_on_with_another_number_of_devices(differences):
    """Of eight updates, with a refresh of the covariance, the first four before the checkpoint."""
    assert differences["resumed with fewer"] < 1e-4
    assert differences["resumed with more"] < 1e-4


def test_sizes_are_multiples_of_the_devices():
    check_sizes(4, {"batch_size": 8, "negatives": 0})
    with pytest.raises(InputError, match="negatives is 6: with 4 devices give a multiple of 4"):
        check_sizes(4, {"batch_size": 8, "negatives": 6})


def test_what_is_not_there_is_not_used():
    assert len(jax.devices()) == 1  # and JAX has started
    use_devices(1)
    with pytest.raises(InputError, match="devices is 0: give at least 1"):
        use_devices(0)
    with pytest.raises(InputError, match="devices is 64, but JAX has 1 here: give at most"):
        use_devices(64)


# The child


def child() -> None:
    use_devices(DEVICES)
    import tempfile
    from pathlib import Path

    import numpy as np

    from phimu.agents import preset
    from phimu.agents.schedule import Collection, Schedule
    from phimu.data.rows import split, width
    from phimu.environments.task import open_task
    from phimu.representation.perturbation import tell
    from phimu.runs import checkpoint
    from phimu.settings import override
    from phimu.training.devices import placement
    from phimu.training.learner import Learner
    from phimu.training.online import OnlineRun
    from phimu.types import Drawn, Feed

    schedule = Schedule(
        Collection(learning_starts=20, buffer_size=100),
        batch_size=64,
        normalise_observations=True,
    )
    task = open_task("phimu/FourRooms-v0")
    rng = np.random.default_rng(0)
    place = placement(DEVICES)
    assert place is not None

    def settings(case: str):
        changes = {"actor_sizes": (24,), "critic_width": 24}
        if case == "sac":
            return override(preset("sac", "small"), changes).settings
        loss, ratio = case.split()
        changes |= {"loss": loss, "ratio": ratio}
        if ratio == "linear":  # its phi is always a softmax
            changes |= {"mu_output": "softplus", "balance_weight": 0.1}
            changes |= {"levels": ()}  # as its presets have it
        else:
            changes |= {"phi_output": "unit_variance", "mu_output": "tanh", "marginal_weight": 0.1}
        changes |= {"feature_dim": 24, "feature_sizes": (24,), "negatives": 32, "bonus_scale": 1.0}
        changes |= {"next_noise": 0.1, "planner_rows": 20}
        changes |= {"refresh_every": 3}
        return override(preset("ctrl-ucb-m", "small"), changes).settings

    def data(agent) -> Drawn:
        rows = rng.standard_normal((64, width(task.spec)), np.float32)
        if not hasattr(agent, "representation"):
            return Drawn(rows)
        return Drawn(rows, {"negatives": rng.standard_normal((32, 2), np.float32)})

    def difference(one, other) -> float:
        a, b = (
            np.concatenate([np.ravel(leaf).astype(np.float64) for leaf in jax.tree.leaves(tree)])
            for tree in (one, other)
        )
        return float(np.linalg.norm(a - b) / np.linalg.norm(a))

    def gradient(agent, features, rows, negatives):
        loss = jax.value_and_grad(agent.representation.objective, has_aux=True)
        batch = split(rows, task.spec)
        following = jax.numpy.concatenate([batch.next_observation, negatives])
        level = jax.numpy.float32(1.0) if agent.representation.levels else None
        told = tell(len(following), level, None)
        return loss(features, Feed(batch), following, told, None)

    def parts(learner) -> dict:
        agent = learner.state.agent
        planner = getattr(agent, "planner", agent)  # SAC's state is the planner's
        found = {
            "losses": learner.metrics,
            "gradient of the critic": planner.critic_optimiser[0].mu,
            "gradient of the actor": planner.actor_optimiser[0].mu,
            "gradient of the entropy weight": planner.entropy_optimiser[0].mu,
            "state": learner.state,
        }
        if hasattr(agent, "representation"):
            found["gradient of phi and mu"] = agent.representation.optimiser[0].mu
        return found

    found: dict = {"replicated": True}
    for case in CASES:
        agent = settings(case)
        # With key 0 the gradient of binary NCE happens to be small beside its terms.
        features = agent.representation.init(task.spec, jax.random.PRNGKey(1)).features
        drawn, compiled = data(agent), jax.jit(gradient, static_argnums=0)
        drawn = drawn.rows, drawn.others["negatives"]
        (loss, metrics), grads = compiled(agent, features, *drawn)
        (loss_4, metrics_4), grads_4 = compiled(
            agent, jax.device_put(features, place.whole), *jax.device_put(drawn, place.rows)
        )
        found[case] = {
            "loss": difference(loss, loss_4),
            "metrics of the loss": difference(metrics, metrics_4),
            "gradient": difference(grads, grads_4),
        }
    for name, case in (("whole ctrl-ucb-m", CASES[1]), ("whole sac", "sac")):
        agent = settings(case)
        several = [data(agent) for _ in range(3)]
        learners = [Learner(agent, task.spec, schedule, 0, devices) for devices in (1, DEVICES)]
        for learner in learners:
            learner.learn("policy", 0, several[:1], room=1)
            learner.check(0)
        one, four = map(parts, learners)
        found[name] = {part: difference(one[part], four[part]) for part in one}
        found["replicated"] &= all(
            leaf.sharding.is_fully_replicated and len(leaf.devices()) == DEVICES
            for leaf in learners[1]._leaves
        )
    for learner in learners:  # SAC's
        learner.learn("policy", 1, several[1:], room=3)
        learner.check(0)
    found["several"] = difference(*(learner.state for learner in learners))

    def run(devices: int) -> OnlineRun:
        return OnlineRun(settings(CASES[1]), open_task("phimu/FourRooms-v0"), schedule, 0, devices)

    def advance(run: OnlineRun, step: int) -> OnlineRun:
        while run.step < step:
            run.advance()
        run.check()
        return run

    whole = advance(run(1), 27)
    for name, before, after in (("fewer", DEVICES, 1), ("more", 1, DEVICES)):
        with tempfile.TemporaryDirectory() as directory:
            advance(run(before), 23).save(Path(directory))
            again = run(after)
            again.restore(checkpoint.load(Path(directory)), print)
            found[f"resumed with {name}"] = difference(whole.state, advance(again, 27).state)
    print(json.dumps(found))


if __name__ == "__main__":
    child()
