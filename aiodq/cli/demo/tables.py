"""The end of the demo on the screen: what became of the orders, how the jobs ran, what the check found."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from aiodq.cli import screen
from aiodq.cli.demo.report import Lateness, Recovery, Report
from aiodq.cli.demo.verdict import KINDS

_MOST_FAULTS = 20
# What fits a line of 80 columns.
_NAME = 15
_SHORT = {"closed unpaid": "closed", "paid too late, refunded": "refunded"}


def show_report(report: Report, *, everything: bool) -> None:
    """Print the tables and the verdict on stdout; `everything`: every order too."""
    if everything:
        screen.show(_orders(report), "")
    screen.show(
        screen.table(
            "Orders", ("outcome", "orders"), [(name, str(count)) for name, count in report.outcomes.items()]
        ),
        "",
        _tasks(report),
        "",
        *(Text(line) for line in _figures(report)),
        "",
        *_verdict(report),
    )


def _orders(report: Report) -> Table:
    columns = ("order", "customer", "amount", "", "outcome", "told customer", "told merchant", "runs")
    rows = [
        (
            order.order_id,
            Text(order.customer if len(order.customer) <= _NAME else order.customer[: _NAME - 1] + "…"),
            Text(order.amount, justify="right"),
            order.currency,
            _SHORT.get(order.outcome, order.outcome),
            _at(order.notification, "send", order.sends),
            _at(order.webhook, "call", order.calls),
            f"{order.runs}{'*' if order.recovered else ' '}",
        )
        for order in report.orders
    ]
    title = "Every order (*: ran again after the kill of the worker that held it)"
    return screen.table(title, columns, rows, left=7)


def _at(end: str, word: str, count: int) -> Text:
    if end == "dead":
        return Text(f"dead, {count} {word}s", style="red")
    return Text(f"{word} {count}" if end == "done" else end)


def _tasks(report: Report) -> Table:
    columns = ("task", "jobs", "runs", "done", "dead", "recalled", "late p50", "p99", "max ms")
    rows = [
        (
            each.task,
            str(each.jobs),
            str(each.runs),
            str(each.done),
            str(each.dead),
            str(each.recalled),
            f"{each.late.p50_ms:.1f}",
            f"{each.late.p99_ms:.1f}",
            f"{each.late.max_ms:.1f}",
        )
        for each in report.tasks
    ]
    return screen.table("Jobs (recalled: the payment came first)", columns, rows)


def _figures(report: Report) -> list[str]:
    runs = ", ".join(f"{_times(count)} {jobs}" for count, jobs in report.runs_per_job.items())
    return [
        f"How often a job ran: {runs}.",
        f"Lateness of {report.late.runs} runs: {_late(report.late)};",
        f"without the second after the kill: {_late(report.late_undisturbed)}.",
        _recovery(report.recovery),
    ]


def _late(late: Lateness) -> str:
    return f"p50 {late.p50_ms:.1f} ms, p99 {late.p99_ms:.1f} ms, max {late.max_ms:.1f} ms"


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _recovery(recovery: Recovery) -> str:
    if not recovery.held:
        return f"Recovered: nothing, {recovery.worker} held no job when it was killed."
    share = f"{recovery.recovered} of the {recovery.held} jobs that {recovery.worker} held"
    return f"Recovered: {share}, the last {recovery.last_ms:.0f} ms after the kill."


def _verdict(report: Report) -> list[Text]:
    found = {kind: [fault for fault in report.faults if fault.kind == kind] for kind in KINDS}
    counts = ", ".join(f"{len(faults)} {kind}" for kind, faults in found.items())
    head = Text(
        "Check passed" if report.passed else "Check FAILED",
        style="bold green" if report.passed else "bold red",
    )
    head.append(
        f": {counts}. {report.jobs} jobs, {report.runs} runs, {report.took_s:.0f} s.", style="default"
    )
    lines = [Text(f"  {fault.kind}: {fault.about} {fault.text}") for fault in report.faults[:_MOST_FAULTS]]
    if len(report.faults) > _MOST_FAULTS:
        lines.append(Text(f"  and {len(report.faults) - _MOST_FAULTS} more; --json lists all"))
    return [head, *lines]
