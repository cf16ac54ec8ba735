"""`phimu data`: logged transitions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from phimu.cli import Command, dispatch
from phimu.cli.arguments import command
from phimu.data.logged import LoggedDataset
from phimu.data.sets.opening import open_set
from phimu.reports.dataset import CELLS, EDGE, Spread, Summary, summarise

SUBCOMMANDS = {
    "show": Command("data", "show", "check a dataset and say what it holds"),
    "collect": Command("collect", "collect", "run a policy and write what it did as a dataset"),
    "join": Command("collect", "join", "write datasets of one task as one, such as medium-expert"),
    "cut": Command("collect", "cut", "write a dataset without a region of its observations"),
    "replay": Command("collect", "replay", "write a run's replay buffer as a dataset"),
    "penalty": Command("evaluate", "penalty", "how a run's penalty grows away from its data"),
}

USAGE = """\
phimu data: logged transitions, to learn from without an environment (docs/data.md).

Usage: phimu data SUBCOMMAND ...

{commands}

A dataset is one of
  hopper_medium.hdf5              D4RL's layout, v0 to v2, also as d4rl:FILE
  minari:mujoco/hopper/medium-v0  a dataset in Minari's local directory, or minari:DIRECTORY
  logged.npz                      arrays: observation, action, reward, terminated, and if there are
                                  any next_observation, truncated, episode, action_low, action_high

Examples:
  phimu data show hopper_medium.hdf5
  phimu data show minari:mujoco/hopper/medium-v0 --picture hopper.png
  phimu data show logged.npz --action-low -2 --action-high 2
  phimu data collect Hopper-v4 --policy random --steps 1000000 --out random.hdf5
  phimu data cut medium.hdf5 --within 0:0.9:1.1 --out medium_cut.hdf5
  phimu data join medium.hdf5 expert.hdf5 --out medium_expert.hdf5

`phimu data SUBCOMMAND --help` explains a subcommand."""


def main(arguments: list[str]) -> None:
    dispatch(arguments, SUBCOMMANDS, USAGE, "subcommand of data")


@command("phimu data show")
def show(
    source: Annotated[str, tyro.conf.Positional],
    sha256: str | None = None,
    picture: Path | None = None,
    action_low: tuple[float, ...] = (),
    action_high: tuple[float, ...] = (),
) -> None:
    """Read a dataset with every check that training makes, and say what it holds.

    A dataset that is damaged or contradicts itself is refused with the file, the field and the row.

    Args:
        source: an .hdf5 of D4RL's layout, minari:ID or minari:DIRECTORY, or an .npz.
        sha256: what the file must have; FILE.sha256 beside it is verified as well.
        picture: also draw returns, lengths, rewards and actions into this PNG or SVG.
        action_low: the range of the file's actions where it does not say: one number for all, or
            one per column. Without it, actions must lie in [-1, 1].
        action_high: its other end.
    """
    if picture is not None:
        from phimu.reports.figures import check_suffix

        check_suffix(picture)
    logged = open_set(
        source, sha256, action_low=action_low or None, action_high=action_high or None
    )
    for name, value in _lines(source, logged, summarise(logged)):
        print(f"{name:<14}{value}")
    if picture is not None:
        from phimu.reports.dataset_figure import dataset_figure

        dataset_figure(picture, logged)
        print(f"{'picture':<14}{picture}")


def _lines(source: str, logged: LoggedDataset, found: Summary) -> Iterator[tuple[str, str]]:
    yield "source", f"{source} ({logged.layout})"
    yield "sha256", logged.sha256
    yield "name", logged.name
    yield "task", logged.task or "not known: name one to evaluate in"
    yield "transitions", f"{found.transitions:,}"
    ended = f"{found.terminated:,} terminated, {found.truncated:,} cut"
    yield "episodes", f"{found.episodes:,}: {ended}"
    yield "return", _spread(found.returns)
    yield "length", _spread(found.lengths)
    yield "reward", _spread(found.rewards)
    if found.score is not None:
        scale = "the mean return, where D4RL's random policy has 0 and expert 100"
        yield "score", f"{found.score:.1f}: {scale}"
    yield "observations", _ranges(found.observations)
    beyond = f"{found.at_limits:.1%} of them beyond ±{EDGE:g}"
    yield "actions", f"{_ranges(found.actions)}; {beyond}{_meaning(logged)}"
    cover = found.coverage
    how = "(sum l)^2 / sum l^2 of the eigenvalues l of its correlations"
    yield "coverage", f"{cover.dimensions:.1f} of {cover.of_dimensions} dimensions of (s, a): {how}"
    how = "exp(entropy) of a grid over two principal components, ±3 standard deviations"
    yield "", f"{cover.cells:,.0f} of {CELLS * CELLS:,} cells of s: {how}"
    shares = " ".join(f"{share:.2f}" for share in cover.action_shares)
    yield "", f"{shares} of each action's range: 1st to 99th percentile"
    for index, note in enumerate(logged.notes):
        yield "" if index else "note", note


def _spread(values: Spread) -> str:
    mean, std, low, median, high = (f"{value:,.5g}" for value in values)
    return f"{mean} ± {std} (lowest {low}, median {median}, highest {high})"


def _ranges(ends: np.ndarray) -> str:
    """Of [2, size] smallest and largest numbers."""
    still = np.count_nonzero(ends[0] == ends[1])
    size = ends.shape[1]
    text = f"{size} number{'s' * (size > 1)}, {ends[0].min():.4g} to {ends[1].max():.4g}"
    return text + (f", {still} of them never change" if still else "")


def _meaning(logged: LoggedDataset) -> str:
    low, high = logged.action_low, logged.action_high
    if low is None or high is None or (np.all(low == -1) and np.all(high == 1)):
        return ""
    ends = [", ".join(f"{value:g}" for value in np.unique(end)) for end in (low, high)]
    return f"; -1 and 1 stand for {ends[0]} and {ends[1]}"
