"""`aiodq check`: what contradicts itself in stored queues, and its repair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import anyio
import typer
from rich.text import Text

from aiodq import Queue
from aiodq.cli import exits, screen
from aiodq.cli.address import PrefixOption, UrlOption, as_it_is, open_queue
from aiodq.types import CheckReport

_SHOWN = 100
"""So many findings of a queue are printed one by one; `--json` has up to a thousand."""


def check(
    queues: Annotated[list[str], typer.Argument(metavar="QUEUE...", help="Names of queues.")],
    *,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what is found.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One line of JSON instead.")] = False,
    url: UrlOption = None,
    prefix: PrefixOption = "aiodq",
) -> None:
    """Look for what contradicts itself in a stored queue, and mend it.

    A sound queue has nothing to find: jobs move in single steps. Faults come
    from a server that evicts keys, a restored snapshot, or changes by hand: jobs
    in two places or in none, payloads or leases that are lost.

    It goes through all of the queue in short steps. Workers may run meanwhile,
    also when it repairs: a job is looked at again in the moment it is mended.
    What was lost sight of is scheduled again, due now; it may run a second time.

        aiodq check orders emails
        aiodq check orders --repair
        aiodq check orders --json | jq '.queues[0].left'
    """
    opened = [open_queue(name, url, prefix) for name in dict.fromkeys(queues)]
    reports = anyio.run(_check, opened, url, prefix, repair)
    if json:
        screen.show_json({"queues": [_as_json(report) for report in reports]})
    else:
        for report in reports:
            _show(report, repair=repair)
    if not all(report.ok for report in reports):
        raise typer.Exit(exits.FAILED)


async def _check(named: Sequence[Queue], url: str | None, prefix: str, repair: bool) -> list[CheckReport]:
    reports: list[CheckReport] = []
    for one in named:
        async with await as_it_is(one, url, prefix) as queue:
            reports.append(await queue.check(repair=repair))
    return reports


def _as_json(report: CheckReport) -> dict[str, object]:
    return {
        "queue": report.queue,
        "checked": report.checked,
        "found": dict(report.found),
        "repaired": report.repaired,
        "left": report.left,
        "findings": report.findings,
    }


def _show(report: CheckReport, *, repair: bool) -> None:
    total = report.repaired + report.left
    head = Text(report.queue, style="bold")
    head.append(f": {report.checked:,} entries looked at, ", style="default")
    if not total:
        screen.show(head.append("nothing wrong", style="green"))
        return
    head.append(f"{total:,} fault{'s' if total > 1 else ''}", style="red" if report.left else "yellow")
    if report.repaired:
        head.append(f", {report.repaired:,} mended")
    screen.show(head)
    for finding in report.findings[:_SHOWN]:
        screen.show(Text("  ").append(finding.subject, style="bold").append(": " + finding.what))
        if finding.done:
            screen.show(Text(f"    {finding.done}", style="green"))
    if total > _SHOWN:
        screen.show(Text(f"  and {total - _SHOWN:,} more"))
    if report.left and not repair:
        screen.note("add --repair to mend what can be mended")
