"""`aiodq stats`: the figures of queues, once or live."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Annotated

import anyio
import typer
from msgspec import Struct
from rich.live import Live
from rich.table import Table
from rich.text import Text

from aiodq import Queue, StoreUnavailable
from aiodq.cli import exits, screen
from aiodq.cli.address import PrefixOption, UrlOption, as_it_is, open_queue
from aiodq.types import QueueStats


class Figures(Struct, frozen=True):
    """One queue in `--json`: counts of jobs, and the wait of the first due one in seconds."""

    queue: str
    due: int
    scheduled: int
    processing: int
    dead: int
    oldest_overdue_s: float
    paused: bool


def stats(
    queues: Annotated[list[str], typer.Argument(metavar="QUEUE...", help="Names of queues.")],
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on, live, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks of --watch.")] = 1.0,
    json: Annotated[bool, typer.Option("--json", help="One line of JSON for each look.")] = False,
    url: UrlOption = None,
    prefix: PrefixOption = "aiodq",
) -> None:
    """Show how many jobs a queue holds, and whether workers keep up.

    [bold]scheduled[/bold] jobs wait for their due time; [bold]due[/bold] are those of them whose
    time has come; [bold]processing[/bold] are held by workers; [bold]dead[/bold] have failed for
    good. [bold]overdue[/bold] is how long the first due job has waited: if it grows, no
    worker takes jobs here.

        aiodq stats orders emails
        aiodq stats orders --watch --url redis://127.0.0.1:6379/0
        aiodq stats orders --json | jq '.queues[0].due'
    """
    opened = [open_queue(name, url, prefix) for name in dict.fromkeys(queues)]
    try:
        anyio.run(_show, opened, url, prefix, every if watch else None, json)
    except KeyboardInterrupt:
        raise typer.Exit(exits.OK if watch else exits.INTERRUPTED) from None


async def _show(
    named: Sequence[Queue], url: str | None, prefix: str, every_s: float | None, as_json: bool
) -> None:
    async with AsyncExitStack() as stack:
        queues = [await as_it_is(queue, url, prefix) for queue in named]
        for queue in queues:
            await stack.enter_async_context(queue)
        looks = _looks(queues, every_s)
        if as_json:
            async for look in looks:
                screen.show_json({"queues": look})
        elif every_s is None or not screen.console().is_terminal:
            async for look in looks:
                screen.show(_as_table(look))
        else:
            await _live(queues, every_s)


async def _looks(queues: Sequence[Queue], every_s: float | None) -> AsyncIterator[list[Figures]]:
    """The figures once, or for ever. Raises: `StoreUnavailable`."""
    while True:
        yield [_figures(queue.name, await queue.stats()) for queue in queues]
        if every_s is None:
            return
        await anyio.sleep(every_s)


async def _live(queues: Sequence[Queue], every_s: float) -> None:
    """Redraw the table in place. A server that goes away is shown as such, and waited for: whoever watches
    wants to see it come back. At the first look it is an error like any other."""
    figures = [_figures(queue.name, await queue.stats()) for queue in queues]
    with Live(_as_table(figures), console=screen.console(), auto_refresh=False) as live:
        while True:
            await anyio.sleep(every_s)
            try:
                figures = [_figures(queue.name, await queue.stats()) for queue in queues]
            except StoreUnavailable as error:
                stale = _as_table(figures)
                stale.caption = Text(f"no answer: {error}", style="red")
                live.update(stale, refresh=True)
            else:
                live.update(_as_table(figures), refresh=True)


def _figures(name: str, seen: QueueStats) -> Figures:
    return Figures(
        queue=name,
        due=seen.due,
        scheduled=seen.scheduled,
        processing=seen.processing,
        dead=seen.dead,
        oldest_overdue_s=round(seen.oldest_overdue.total_seconds(), 3),
        paused=seen.paused,
    )


def _as_table(figures: Sequence[Figures]) -> Table:
    columns = ("queue", "due", "scheduled", "processing", "dead", "overdue")
    return screen.table("", columns, [_row(each) for each in figures])


def _row(one: Figures) -> list[str | Text]:
    name = Text(one.queue)
    if one.paused:
        name.append(" (paused)", style="yellow")
    return [
        name,
        f"{one.due:,}",
        f"{one.scheduled:,}",
        f"{one.processing:,}",
        Text(f"{one.dead:,}", style="red" if one.dead else ""),
        screen.span(one.oldest_overdue_s),
    ]
