"""Arguments by tyro, whose complaints become one sentence like any other bad input's; tables."""

import contextlib
import functools
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tyro
from rich.table import Table

from phimu.errors import InputError

THREADS = (
    "how many JAX and BLAS use; by default OMP_NUM_THREADS, or else as many as there are cores. "
    "Give 1 to each of two runs side by side. Another number rounds otherwise"
)


def command(prog: str, *config: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a function with these arguments take those of a command line instead."""
    return lambda function: functools.partial(call, function, prog=prog, config=config)


def call(
    function: Callable[..., None], arguments: list[str], prog: str, config: Sequence[Any] = ()
) -> None:
    """Run a command's function with its arguments from the command line."""

    @functools.wraps(function)
    def collect(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    args, kwargs = parse(collect, arguments, prog=prog, config=tuple(config))
    function(*args, **kwargs)


def parse(kind: Any, arguments: list[str], **options: Any) -> Any:
    """`tyro.cli`, with InputError instead of a box and an exit."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(kind, args=arguments, **options)
    except SystemExit as end:
        if not end.code:  # --help
            raise
        raise InputError(_sentence(said.getvalue())) from None


def _sentence(box: str) -> str:
    """The text in a box of tyro's, without its title; its parts, with rules between, as clauses.

    The box is drawn with fewer and plainer lines where standard output takes ASCII only.
    """
    rows = [row.strip("│ ") for row in box.splitlines()[1:]]
    parts = " ".join(row if row.strip("─-╰╯") else "\n" for row in rows).split("\n")
    return "; ".join(part.strip() for part in parts if part.strip())


def plain_table(
    left: Iterable[str], rows: Iterable[Iterable[str]], right: Iterable[str] = ()
) -> Table:
    """No lines, only columns; those of `right` come last and are aligned to the right."""
    table = Table(*left, box=None, pad_edge=False)
    for title in right:
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
