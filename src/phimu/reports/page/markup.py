"""HTML from values: whatever is not markup already is escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

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


def scrolled(head: Html, *bodies: Any, class_: str | None = None) -> Html:
    """A table that scrolls by itself where the page is too narrow for it."""
    table = tag("table", tag("thead", head), bodies, class_=class_)
    return tag("div", table, class_="scroll", tabindex=0)


def heads(names: Iterable[str], numbers: Sequence[str] = ()) -> Html:
    """The row of a table's head; `numbers` are set as such."""
    return tag(
        "tr",
        [tag("th", n, scope="col", class_="number" if n in numbers else None) for n in names],
    )


def join(content: Any) -> Html:
    """The markup of several values."""
    if content is None:
        return Html("")
    if isinstance(content, Html):
        return content
    if isinstance(content, list | tuple):
        return Html("".join(join(each) for each in content))
    return Html(escape(str(content)))
