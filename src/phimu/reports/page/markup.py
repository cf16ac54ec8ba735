"""HTML from values: whatever is not markup already is escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from phimu.reports.numbers import Footnotes

VOID = {"img", "input"}  # elements without content


class Html(str):
    """Text that is markup already."""


def tag(name: str, /, *content: Any, **attributes: Any) -> Html:
    """An element. Content is Html, text, a list of them or None; an attribute that is None or
    False is left out; `class_` is `class`, `data_task` is `data-task`."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(content)}</{name}>")


def join(content: Any) -> Html:
    if content is None:
        return Html("")
    if isinstance(content, Html):
        return content
    if isinstance(content, list | tuple):
        return Html("".join(join(each) for each in content))
    return Html(escape(str(content)))


def table(head: Any, body: Any, class_: str | None = None) -> Html:
    """Scrolls by itself where the page is too narrow for it; lists become a head, and a body."""
    if not isinstance(head, Html):
        head = tag("tr", [tag("th", name, scope="col") for name in head])
    if not isinstance(body, Html):
        body = tag("tbody", body)
    made = tag("table", tag("thead", head), body, class_=class_)
    return tag("div", made, class_="scroll", tabindex=0)


def line(head: Any, cells: Iterable[Any], **attributes: Any) -> Html:
    """A row of a table; what is not markup becomes the content of a cell."""
    made = [each if isinstance(each, Html) else tag("td", each) for each in cells]
    return tag("tr", tag("th", head, scope="row"), made, **attributes)


def marks(found: Sequence[str], notes: Footnotes) -> Html | None:
    """The numbers of these notes, which are noted if they were not."""
    return tag("sup", ", ".join(map(str, notes.marks(found)))) if found else None


def footnotes(notes: Footnotes) -> Html | None:
    items = [tag("li", note) for note in notes.notes]
    return tag("ol", items, class_="notes") if items else None
