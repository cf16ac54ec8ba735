"""The paper's tables as HTML: ours, the paper's and the best of others, side by side."""

from collections.abc import Sequence
from itertools import groupby

from phimu.reports.comparison import Aggregate, Cell, Column, Table, aggregates, differences, ours
from phimu.reports.numbers import NOT_RUN, Footnotes, score, seeds, span, thousands
from phimu.reports.page.markup import Html, footnotes, join, line, marks, table, tag
from phimu.reports.page.runs import Anchors, links, title
from phimu.reports.published import Published, published
from phimu.reports.rows import Result, configurations
from phimu.reports.statistics import Estimate
from phimu.studies.exploration import EXPLORATION
from phimu.studies.study import WINDOW, Study
from phimu.studies.tables import STUDIES

NORMALISED = (
    "Scores are normalised: on MBBL's tasks 0 is a random policy and 1 MBBL's SAC, DM Control's "
    "returns are divided by 1000, D4RL's scores by 100."
)
NONE = tag("td", NOT_RUN, class_="none")
ABLATIONS = ("ablation-", "small-")


def study_section(found: Table, anchors: Anchors) -> Html:
    study, notes, body = found.study, Footnotes(), []
    for row in found.rows:
        head = [row.title, marks(row.notes, notes)]
        cells = [_cell(each, row.cells.get(each), anchors, notes) for each in found.columns]
        body.append(line(head, cells, data_task=row.task))
    return tag(
        "section",
        tag("h2", study.title),
        tag("p", _lead(study), class_="lead"),
        table(_head(found.columns), body, class_="compare"),
        footnotes(notes),
        _settings(found),
        [_statistics(each, f"{study.name}-{i}") for i, each in enumerate(aggregates(found))],
        None
        if study.name.startswith(ABLATIONS)
        else _details(study.name, study.metric, study.steps, study.tasks, ()),
        id=study.name,
    )


def _lead(study: Study) -> str:
    if study.name.startswith("ablation"):
        return "CTRL-UCBM as in Table 2, with one setting changed."
    if study in EXPLORATION:
        beside = "" if study.published is None else " Beside it the paper's own ablation."
        return f"Our tasks: {study.seeds} seeds, {thousands(study.steps)} decisions.{beside}"
    what, clock, theirs = "return", "environment steps", f"{thousands(study.steps)} steps"
    if study.offline:
        what, clock, theirs = "D4RL's normalised score", "updates of the policy", "steps not stated"
    return (
        f"Mean ± standard deviation over seeds of the {what}, averaged over the evaluations of the "
        f"last {thousands(WINDOW)} {clock}. The paper: {study.seeds} seeds, {theirs}."
    )


def _head(columns: Sequence[Column]) -> Html:
    groups = [
        tag("th", heading, colspan=len(list(group)), scope="colgroup")
        for heading, group in groupby(columns, key=lambda column: column.heading)
    ]
    below = []
    for column in columns:
        whose = tag("span", column.whose, class_=f"whose {column.whose}")
        detail = tag("small", column.detail) if column.detail else None
        below.append(tag("th", whose, detail, scope="col"))
    return join([tag("tr", tag("th", "task", rowspan=2, scope="col"), groups), tag("tr", below)])


def _cell(column: Column, cell: Cell | None, anchors: Anchors, notes: Footnotes) -> Html:
    """A score, and under it whose it is, how many seeds and steps, with links to our runs."""
    if cell is None:
        return NONE if column.whose == "ours" else tag("td", "not published", class_="none")
    look = f"{column.whose} {'near' if cell.near else 'ahead'}" if cell.ahead else None
    small = tag("small", cell.method) if cell.method else None
    if cell.runs and cell.steps:
        words = f"{seeds(len(cell.runs))} at {span(*cell.steps)}: "
        small = tag("small", words, links(cell.runs, anchors))
    return tag("td", score(cell), marks(cell.notes, notes), small, class_=look)


def _settings(found: Table) -> Html | None:
    """In what our columns differ besides their names, folded: who was given more, and where."""
    columns, values = differences(found)
    if not values:
        return None
    about = f"Settings that are not the same in all of ours ({len(values)})"
    rows = [line(name, map(str, each)) for name, each in values.items()]
    return tag("details", tag("summary", about), table(["setting", *columns], rows))


def _statistics(aggregate: Aggregate, name: str) -> Html:
    """IQM, probability of improvement, and a place for the profiles to be drawn in."""
    labels, rows = aggregate.labels, []
    for each in zip(labels, aggregate.middle, aggregate.improvement, strict=True):
        label, middle, chances = each
        over = ["" if chance is None else _interval(chance, ".2f") for chance in chances]
        rows.append(line(label, [_interval(middle, ".3f"), *over]))
    about = (
        f"Over {', '.join(aggregate.tasks)}, which all of them ran. {NORMALISED} In brackets "
        "95% intervals of a bootstrap within tasks; a task with one seed adds nothing to them."
    )
    return tag(
        "div",
        tag("h3", f"All tasks together, {aggregate.detail}"),
        tag("p", about, class_="lead"),
        table(["variant", "interquartile mean", *(f"P(above {each})" for each in labels)], rows),
        tag("div", class_="chart", data_profile=name),
        class_="statistics",
    )


def _interval(estimate: Estimate, form: str) -> str:
    """Without the interval where one seed of each task leaves none."""
    value, low, high = (format(float(each), form) for each in estimate)
    return value if estimate.low == estimate.high else f"{value} [{low}, {high}]"


OTHERS = {
    "gymnasium": (
        "return",
        "Others: Gymnasium's own MuJoCo tasks",
        "These are not the tasks of Table 1: MBBL changed observations, rewards and episode "
        "lengths, so no number here can be compared with one there.",
    ),
    "d4rl-v2": (
        "score",
        "Others: D4RL, version 2 of the datasets",
        "These are not the datasets of Table 3, which are version 0.",
    ),
}


def others(name: str, results: Sequence[Result]) -> tuple[Html, bool]:
    """Scores that were published of other tasks than the studies', with ours on the same.

    And whether there are any of ours.
    """
    metric, heading, lead = OTHERS[name]
    tasks = tuple(dict.fromkeys(row.task for row in published() if row.table == name))
    mine = [result for result in results if result.task in tasks and result.score is not None]
    details = _details(name, metric, STUDIES["table1"].steps, tasks, mine)
    parts = tag("h2", heading), tag("p", lead, class_="lead"), details
    return tag("section", *parts, id=name), bool(mine)


def _details(
    name: str, metric: str, steps: int, tasks: Sequence[str], mine: Sequence[Result]
) -> Html:
    """Every published score at or next to so many steps, folded."""
    by_method: dict[str, list[Published]] = {}
    for row in published():
        if (row.table, row.metric) == (name, metric) and row.task in tasks:
            by_method.setdefault(row.method, []).append(row)
    by_label: dict[str, dict[str, Cell]] = {}
    for group in configurations(mine):
        label = f"{group[0].agent}, ours ({group[0].label})"
        by_label.setdefault(label, {})[group[0].task] = ours(group)
    notes = Footnotes()
    lines = [_our_line(label, by_task, tasks) for label, by_task in by_label.items()]
    lines += [_their_line(label, rows, tasks, steps, notes) for label, rows in by_method.items()]
    head = ["method", *map(title, tasks), "source"]
    return tag(
        "details",
        tag("summary", f"Every published score ({len(by_method)} methods)"),
        table(head, lines, class_="published"),
        footnotes(notes),
    )


def _our_line(label: str, by_task: dict[str, Cell], tasks: Sequence[str]) -> Html:
    cells = []
    for task in tasks:
        cell = by_task.get(task)
        under = tag("small", f"at {span(*cell.steps)}") if cell and cell.steps else None
        cells.append(tag("td", score(cell), under) if cell else NONE)
    return line(label, [*cells, tag("td", "this report", class_="source")])


def _their_line(
    method: str, rows: Sequence[Published], tasks: Sequence[str], steps: int, notes: Footnotes
) -> Html:
    """At the steps nearest to those of the table. Notes on the paper are footnotes."""
    known = {row.steps for row in rows if row.steps is not None}
    nearest = min(known, key=lambda each: abs(each - steps), default=None)
    chosen = {row.task: row for row in rows if row.steps == nearest}
    cells = []
    for task in tasks:
        row = chosen.get(task)
        if row is None:
            cells.append(tag("td"))
            continue
        above = marks([row.note], notes) if row.note and row.of_paper else None
        cells.append(tag("td", score(row), above, title=row.note or None))
    label = method if nearest in (None, steps) else f"{method}, at {thousands(nearest)}"
    source = next(iter(chosen.values())).source
    counts = {row.seeds for row in chosen.values() if row.seeds}
    if len(counts) == 1:
        source += f", {seeds(counts.pop())}"
    return line(label, [*cells, tag("td", source, class_="source")])
