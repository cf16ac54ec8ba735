"""The maze's figure: scores of each configuration, and the heat maps that there are."""

from collections.abc import Sequence

from phimu.reports.numbers import NOT_RUN, maze_score
from phimu.reports.page.markup import Html, heads, scrolled, tag
from phimu.reports.page.runs import pictures, run_name
from phimu.reports.rows import Result, configurations

SCORES = {
    "total_variation_free": "total variation, free space",
    "total_variation_beside_walls": "beside walls",
    "mean_abs_log_z": "mean |log Z|",
    "success_rate": "success rate",
}


def maze_groups(results: Sequence[Result]) -> list[list[Result]]:
    """The runs of each configuration that was scored."""
    return [group for group in configurations(results) if any(run.maze for run in group)]


def pictured(results: Sequence[Result]) -> list[Result]:
    """The runs whose pictures are in this section: the first seed of each configuration."""
    return [group[0] for group in maze_groups(results)]


def maze_section(results: Sequence[Result], anchors: dict[str, str]) -> Html:
    groups = maze_groups(results)
    rows = [
        tag(
            "tr",
            tag("th", group[0].agent, tag("small", group[0].label), scope="row"),
            [tag("td", maze_score(group, score)) for score in SCORES],
            tag("td", str(len(group))),
            data_agent=group[0].agent,
            data_task=group[0].task,
        )
        for group in groups
    ]
    head = heads(["configuration", *SCORES.values(), "seeds"])
    figures = [
        tag(
            "figure",
            image,
            tag("figcaption", tag("a", run_name(group[0]), href=f"#{anchors[str(group[0].path)]}")),
        )
        for group in groups
        for image in pictures(group[0])
    ]
    return tag(
        "section",
        tag("h2", "Figure 1: the learned transition of the four-room maze"),
        tag(
            "p",
            "Total variation between the learned and the true transition (0 is best), how far the "
            "learned one is from integrating to one, and episodes that reached the goal.",
            class_="lead",
        ),
        scrolled(head, tag("tbody", rows)) if rows else tag("p", NOT_RUN, class_="none"),
        figures,
        id="maze",
    )
