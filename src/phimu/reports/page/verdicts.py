"""What the runs say, before all else: sentences, a picture and a table of who is ahead."""

from collections.abc import Sequence

import numpy as np

from phimu.reports.duels import ENOUGH, Duel, interval, sentences
from phimu.reports.numbers import number, seeds, thousands
from phimu.reports.page.markup import Html, line, table, tag
from phimu.studies.study import WINDOW

LEAD = (
    "Pairs that were run on equal terms: the same preset and changes of it, the same options of "
    "the task, scores at the same step, means of the evaluations of the last "
    f"{thousands(WINDOW)} steps. In brackets 95% intervals of a bootstrap over seeds. Ahead or "
    f"behind is said of {ENOUGH} seeds or more of each whose interval leaves out 0."
)
WIDTH, ROW, MARGIN = 190, 30, 6


def said(found: Sequence[Duel]) -> Html | None:
    """The section, where two agents met at all."""
    if not found:
        return None
    rows = [_row(duel) for duel in found]
    heads = ["task", "", "method", "rival", "difference", "says", "the paper"]
    return tag(
        "section",
        tag("h2", "What the runs say"),
        [tag("p", sentence, class_="said") for sentence in sentences(found)],
        tag("p", LEAD, class_="lead"),
        table(heads, rows, class_="duels"),
        id="said",
    )


def _row(duel: Duel) -> Html:
    sides = [
        tag("td", number(float(scores.mean())), tag("small", f"{agent}, {seeds(len(scores))}"))
        for agent, scores in zip(duel.agents, duel.scores, strict=True)
    ]
    look = {"ahead": "ours ahead", "behind": "others ahead"}.get(duel.verdict)
    paper = "not published" if duel.paper is None else " / ".join(map(number, duel.paper))
    head = [duel.title, tag("small", f"{duel.terms}, {thousands(duel.steps)} steps")]
    cells = [
        tag("td", _dots(duel)),
        *sides,
        interval(duel),
        tag("td", duel.verdict, class_=look),
        tag("td", paper, class_="none" if duel.paper is None else None),
    ]
    return line(head, cells, data_task=duel.task)


def _dots(duel: Duel) -> Html:
    """Both sides on the row's own scale, with 0 on it: a dot for a seed, a bar for a mean."""
    every = np.concatenate(duel.scores)
    low, high = min(0.0, float(every.min())), max(0.0, float(every.max()))
    scale = (WIDTH - 2 * MARGIN) / ((high - low) or 1.0)
    marks = []
    for place, scores in enumerate(duel.scores):
        y = ROW * (0.3 + 0.4 * place)
        x = [MARGIN + scale * (float(score) - low) for score in scores]
        zero, mean = MARGIN - scale * low, float(np.mean(x))
        start, length = min(zero, mean), abs(mean - zero)
        side = f"side-{place}"
        marks.append(
            tag("rect", x=f"{start:.1f}", y=y - 4, width=f"{length:.1f}", height=8, class_=side)
        )
        marks += [tag("circle", cx=f"{each:.1f}", cy=y, r=3, class_=side) for each in x]
    about = f"{duel.title}: seeds of {' above, of '.join(duel.agents)} below"
    box = {"viewBox": f"0 0 {WIDTH} {ROW}", "width": WIDTH, "height": ROW}
    return tag("svg", tag("title", about), marks, role="img", **box)
