"""All that commands show: answers on stdout, progress and complaints on stderr, tables for both.

In a terminal with colours and lines; into a file or a pipe as plain text of any width, so that nothing is cut
off and `grep` finds what was printed. `NO_COLOR` and `COLUMNS` are heeded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import msgspec
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

# Into a pipe, rich would fold at 80 columns; a table without frame is as wide as its content anyway.
_PIPE_WIDTH = 400


def console(*, stderr: bool = False) -> Console:
    """A console on the stream as it is now (tests and shells exchange them), without markup in our texts."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=False)


def show(*parts: RenderableType) -> None:
    """Print an answer on stdout."""
    screen = console()
    for part in parts:
        screen.print(part)


def note(text: str) -> None:
    """Print what the user may want to know, but no program that reads the answer, on stderr."""
    console(stderr=True).print(Text(text), soft_wrap=True)


def complain(text: str) -> None:
    """Print why the command ended badly, on stderr."""
    console(stderr=True).print(
        Text("aiodq: ", style="bold red").append(text, style="default"), soft_wrap=True
    )


def show_json(value: object) -> None:
    """Print one value as one line of JSON on stdout, at once: it may be read while more follows."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, left: int = 1
) -> Table:
    """A table whose first `left` columns are words; the others are figures, flush right."""
    terminal = console().is_terminal
    shape = Table(
        title=Text(title, style="bold") if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD if terminal else None,
        padding=(0, 1, 0, 0) if terminal else (0, 2, 0, 0),  # the box puts a blank between columns
        show_edge=False,
        pad_edge=False,
        header_style="bold" if terminal else "",
    )
    for number, column in enumerate(columns):
        word = number < left
        shape.add_column(
            column,
            justify="left" if word else "right",
            overflow="fold" if word else "ellipsis",
            no_wrap=not word,
        )
    for row in rows:
        shape.add_row(*row)
    return shape


def span(seconds: float) -> str:
    """A length of time, in seconds, for people: `0`, `12 ms`, `3.4 s`, `5 min`, `7 h`, `3 d`."""
    if seconds == 0:
        return "0"
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, size, limit in (("s", 1, 120), ("min", 60, 120 * 60), ("h", 3600, 72 * 3600)):
        if abs(seconds) < limit:
            return f"{seconds / size:.{1 if unit == 's' and abs(seconds) < 10 else 0}f} {unit}"
    return f"{seconds / 86400:.0f} d"
