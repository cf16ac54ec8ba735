"""The paper's tables as HTML: ours, the paper's and the best of others, side by side."""

from collections.abc import Sequence
from itertools import groupby

from phimu.reports.aggregates import Aggregate, aggregates
from phimu.reports.comparison import Cell, Column, Row, Table, differences, ours
from phimu.reports.numbers import NOT_RUN, Footnotes, number, score, seeds, span, thousands
from phimu.reports.page.markup import Html, heads, join, scrolled, tag
from phimu.reports.published import Published, published
from phimu.reports.rows import Result
from phimu.reports.statistics import Estimate
from phimu.studies.tables import STUDIES, TASK_TITLES, WINDOW, Study

# Published elsewhere than in a study, and why it stands apart.
APART = {
    "gymnasium": (
        "Gymnasium's own MuJoCo tasks",
        "These are not the tasks of Table 1: MBBL changed observations, rewards and episode "
        "lengths, so no number here can be compared with one there.",
    ),
    "d4rl-v2": (
        "D4RL, version 2 of the sets",
        "These are not the sets of Table 3, which are version 0.",
    ),
}
NORMALISED = (
    "Scores are normalised: on MBBL's tasks 0 is a random policy and 1 MBBL's SAC, DM Control's "
    "returns are divided by 1000, D4RL's scores by 100."
)


def study_section(table: Table, anchors: dict[str, str]) -> Html:
    """`anchors` leads from the path of a run to its place in the page."""
    study, notes = table.study, Footnotes()
    body = []
    for row in table.rows:
        head = tag("th", row.title, _marks(row.notes, notes), scope="row")
        body.append(tag("tr", head, _cells(row, table, anchors, notes), data_task=row.task))
    return tag(
        "section",
        tag("h2", study.title),
        tag("p", _lead(study), class_="lead"),
        scrolled(_head(table.columns), tag("tbody", body), class_="compare"),
        _footnotes(notes),
        _settings(table),
        [
            _statistics(each, f"{study.name}-{index}")
            for index, each in enumerate(aggregates(table))
        ],
        None
        if study.name.startswith("ablation")
        else _details(study.name, study.metric, study.steps, study.tasks, ()),
        id=study.name,
    )


def _lead(study: Study) -> str:
    if study.name.startswith("ablation"):
        return "CTRL-UCBM as in Table 2, with one setting changed."
    what = "D4RL's normalised score" if study.offline else "return"
    clock = "updates of the policy" if study.offline else "environment steps"
    theirs = "steps not stated" if study.offline else f"{thousands(study.steps)} steps"
    return (
        f"Mean ± standard deviation over seeds of the {what}, averaged over the evaluations of the "
        f"last {thousands(WINDOW)} {clock}. The paper: {study.seeds} seeds, {theirs}."
    )


def _head(columns: Sequence[Column]) -> Html:
    groups = [
        tag("th", heading, colspan=len(list(group)), scope="colgroup")
        for heading, group in groupby(columns, key=lambda column: column.heading)
    ]
    whose = [
        tag(
            "th",
            tag("span", column.whose, class_=f"whose {column.whose}"),
            tag("small", column.detail) if column.detail else None,
            scope="col",
        )
        for column in columns
    ]
    return join([tag("tr", tag("th", "task", rowspan=2, scope="col"), groups), tag("tr", whose)])


def _cells(row: Row, table: Table, anchors: dict[str, str], notes: Footnotes) -> list[Html]:
    found = []
    for column, cell in zip(table.columns, row.cells, strict=True):
        if cell is None:
            text = NOT_RUN if column.whose == "ours" else "not published"
            found.append(tag("td", text, class_="none"))
            continue
        look = f"{column.whose} {'near' if cell.near else 'ahead'}" if cell.ahead else None
        found.append(
            tag("td", score(cell), _marks(cell.notes, notes), _small(cell, anchors), class_=look)
        )
    return found


def _small(cell: Cell, anchors: dict[str, str]) -> Html | None:
    """Under a score: whose it is, how many seeds and steps, with links to our runs."""
    links = [
        tag("a", f"{run.seed}", href=f"#{anchors[str(run.path)]}", title=f"seed {run.seed}")
        for run in cell.runs
        if str(run.path) in anchors
    ]
    if links:
        steps = span(*cell.steps) if cell.steps else ""
        words = f"{seeds(cell.seeds or 0)} at {steps}: "
        return tag("small", words, [[" ", link] if i else link for i, link in enumerate(links)])
    return tag("small", cell.method) if cell.method else None


def _marks(found: Sequence[str], notes: Footnotes) -> Html | None:
    marks = notes.marks(found)
    return tag("sup", ", ".join(map(str, marks))) if marks else None


def _footnotes(notes: Footnotes) -> Html | None:
    if not notes.notes:
        return None
    return tag("ol", [tag("li", note) for note in notes.notes], class_="notes")


def _settings(table: Table) -> Html | None:
    """In what our columns differ besides their names, folded: who was given more, and where."""
    columns, found = differences(table)
    if not found:
        return None
    rows = [
        tag("tr", tag("th", name, scope="row"), [tag("td", f"{value}") for value in values])
        for name, values in found.items()
    ]
    return tag(
        "details",
        tag("summary", f"Settings that are not the same in all of ours ({len(found)})"),
        scrolled(heads(["setting", *columns]), tag("tbody", rows)),
    )


def _statistics(aggregate: Aggregate, name: str) -> Html:
    """IQM, probability of improvement, and a place for the profiles to be drawn in."""
    rows = []
    for index, label in enumerate(aggregate.labels):
        over = [
            "" if chance is None else _interval(chance, "{:.2f}")
            for chance in aggregate.improvement[index]
        ]
        rows.append(
            tag(
                "tr",
                tag("th", label, scope="row"),
                tag("td", _interval(aggregate.middle[index], "{:.3f}")),
                [tag("td", text) for text in over],
            )
        )
    names = ["variant", "interquartile mean", *(f"P(above {label})" for label in aggregate.labels)]
    return tag(
        "div",
        tag("h3", f"All tasks together, {aggregate.detail}"),
        tag(
            "p",
            f"Over {', '.join(aggregate.tasks)}, which all of them ran. {NORMALISED} In brackets "
            "95% intervals of a bootstrap within tasks; a task with one seed adds nothing to them.",
            class_="lead",
        ),
        scrolled(heads(names), tag("tbody", rows)),
        tag("div", class_="chart", data_profile=name),
        class_="statistics",
    )


def _interval(estimate: Estimate, form: str) -> str:
    """Without the interval where one seed of each task leaves none."""
    value, low, high = (form.format(float(each)) for each in estimate)
    return value if estimate.low == estimate.high else f"{value} [{low}, {high}]"


def apart_section(name: str, results: Sequence[Result]) -> Html:
    title, why = APART[name]
    rows = [row for row in published() if row.table == name]
    tasks = tuple(dict.fromkeys(row.task for row in rows))
    metric = "score" if name == "d4rl-v2" else "return"
    mine = [result for result in results if result.task in tasks and result.score is not None]
    return tag(
        "section",
        tag("h2", f"Others: {title}"),
        tag("p", why, class_="lead"),
        _details(name, metric, STUDIES["table1"].steps, tasks, mine),
        id=name,
    )


def _details(
    table: str, metric: str, steps: int, tasks: Sequence[str], mine: Sequence[Result]
) -> Html:
    """Every published score at or next to so many steps, folded."""
    by_method: dict[str, list[Published]] = {}
    for row in published():
        if (row.table, row.metric) == (table, metric) and row.task in tasks:
            by_method.setdefault(row.method, []).append(row)
    by_label: dict[str, dict[str, list[Result]]] = {}
    for run in mine:
        runs = by_label.setdefault(f"{run.agent}, ours ({run.label})", {})
        runs.setdefault(run.task, []).append(run)
    lines = [_our_line(label, by_task, tasks) for label, by_task in by_label.items()]
    notes = Footnotes()
    lines += [_their_line(name, group, tasks, steps, notes) for name, group in by_method.items()]
    head = heads(["method", *(TASK_TITLES.get(task, task) for task in tasks), "source"])
    content = scrolled(head, tag("tbody", lines), class_="published")
    title = tag("summary", f"Every published score ({len(by_method)} methods)")
    return tag("details", title, content, _footnotes(notes))


def _our_line(label: str, by_task: dict[str, list[Result]], tasks: Sequence[str]) -> Html:
    cells = []
    for task in tasks:
        if task not in by_task:
            cells.append(tag("td", NOT_RUN, class_="none"))
            continue
        cell = ours(by_task[task])
        under = tag("small", f"at {span(*cell.steps)}") if cell.steps else None
        cells.append(tag("td", score(cell), under))
    return _line(label, cells, "this report")


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
        text = number(row.mean) + ("" if row.std is None else f" ± {number(row.std)}")
        marks = _marks([row.note], notes) if row.note and row.of_paper else None
        cells.append(tag("td", text, marks, title=row.note or None))
    label = method + ("" if nearest in (None, steps) else f", at {thousands(nearest or 0)}")
    count = {row.seeds for row in chosen.values()} - {None}
    under = f", {seeds(max(filter(None, count)))}" if len(count) == 1 else ""
    return _line(label, cells, next(iter(chosen.values())).source + under)


def _line(label: str, cells: list[Html], source: str) -> Html:
    return tag("tr", tag("th", label, scope="row"), cells, tag("td", source, class_="source"))
