"""What the user sees while the demo runs: a small live picture in a terminal, a few plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from msgspec import Struct
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from aiodq.cli import screen
from aiodq.cli.demo.orders import OPENS_S


class WorkerView(Struct, frozen=True):
    """One worker process as it is shown."""

    name: str
    pid: int
    state: str
    in_hand: int
    runs: int


class View(Struct, frozen=True):
    """One moment of the demo. `shop_s`, `closes_s`: the shop's clock, and its end, seconds after opening."""

    shop_s: float
    closes_s: float
    placed: int
    orders: int
    paid: int
    scheduled: int
    dead: int
    workers: Sequence[WorkerView]
    latest: Sequence[str]


class Picture(AbstractContextManager["Picture"]):
    """Shows the demo on stderr. In a terminal the views; everywhere the lines that are told."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = screen.console(stderr=True)
        self._live: Live | None = None
        if self._console.is_terminal and not quiet:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, line: str) -> None:
        """A milestone, for everybody."""
        if not self._quiet:
            self._console.print(Text(line), soft_wrap=True)

    def show(self, view: View) -> None:
        """The picture of this moment."""
        if self._live is not None:
            self._live.update(_picture(view), refresh=True)


def shop_clock(shop_s: float) -> str:
    """Seconds after opening as the shop's clock shows them: `09:31`."""
    minutes = (OPENS_S + int(shop_s)) // 60
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _picture(view: View) -> Group:
    day = Text(f"shop's clock {shop_clock(min(view.shop_s, view.closes_s))}  ", style="bold")
    head = Table.grid(padding=(0, 1))
    head.add_row(day, ProgressBar(total=view.closes_s, completed=min(view.shop_s, view.closes_s), width=40))
    counts = Text(
        f"{view.placed} of {view.orders} orders placed · {view.paid} paid · "
        f"{view.scheduled} jobs waiting · {view.dead} dead letters"
    )
    workers = Table.grid(padding=(0, 2))
    for each in view.workers:
        style = "red" if each.state == "killed" else "green"
        pid = f"process {each.pid}"
        runs = f"{each.in_hand:>2} in hand, {each.runs:>3} runs done"
        workers.add_row(each.name, pid, Text(each.state, style=style), runs)
    latest = [Text(f"  {line}", style="dim", no_wrap=True, overflow="ellipsis") for line in view.latest]
    return Group(head, counts, workers, *latest)
