"""Was any job lost, early, doubled or wrong? The demo's own check of what aiodq promises.

Pure, so that tests can feed it falsified records and see that it finds what was done to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

from msgspec import Struct

from aiodq.cli.demo.orders import Order
from aiodq.cli.demo.shop import RESEND_AFTER_MIN, TASKS, failed_calls, job_id
from aiodq.cli.demo.story import Books, Final, Run, Stories, Story, final_of

Kind: TypeAlias = Literal["lost", "early", "doubled", "wrong"]
KINDS: tuple[Kind, ...] = ("lost", "early", "doubled", "wrong")


class Fault(Struct, frozen=True):
    """A promise that was broken, for one job or order.

    `kind`: "lost": no end; "early": started before its due time; "doubled": ran again without a cause;
    "wrong": ended otherwise than its order asks for, or the records contradict each other.
    """

    kind: Kind
    about: str
    text: str


def judge(orders: Sequence[Order], stories: Stories, books: Books, *, same_clock: bool) -> list[Fault]:
    """Every fault that the records show; an empty list is a pass.

    `same_clock`: server and workers ran on one machine, so the workers' own clocks can confirm that nothing
    started early, beside the lateness that the library reports.
    """
    faults = [Fault("wrong", "records", f"fits to no job: {record}") for record in stories.stray]
    for story in stories.jobs.values():
        faults += _of_job(story, books, same_clock=same_clock)
    for order in orders:
        faults += _of_order(order, stories, books)
    unknown = sorted(books.dead - stories.jobs.keys())
    faults += [Fault("wrong", dead, "is in the dead letters, but was never sent") for dead in unknown]
    return faults


def _of_job(story: Story, books: Books, *, same_clock: bool) -> Iterator[Fault]:
    about = story.job_id
    final = final_of(story, books)
    if not story.sent.created:
        yield Fault("wrong", about, "was not created by enqueue: its id was taken")
    if final is None:
        yield Fault("lost", about, _whereabouts(about, books))
    elif final == "recalled" and story.runs:
        yield Fault("doubled", about, "ran although it had been cancelled")
    elif (final == "dead") != (about in books.dead):
        yield Fault("wrong", about, f"ended as {final}, but the dead letters say otherwise")
    if story.runs and abs(story.runs[0].started.due_ms - story.sent.due_ms) >= 1:
        yield Fault("wrong", about, "its first run knew another due time than enqueue had answered")
    for run in story.runs:
        yield from _of_run(run, same_clock=same_clock)
    for run, following in pairwise(story.runs):
        cause = _no_cause(run, following)
        if cause is not None:
            yield Fault("doubled", about, cause)


def _whereabouts(about: str, books: Books) -> str:
    if about in books.scheduled:
        return "is still scheduled"
    return "is still processing" if about in books.processing else "has neither ended nor is it anywhere"


def _of_run(run: Run, *, same_clock: bool) -> Iterator[Fault]:
    about = run.started.job_id
    if run.started.late_ms < 0:
        yield Fault("early", about, f"started {-run.started.late_ms:.1f} ms early by the server's clock")
    elif same_clock and run.started.at_ms < run.started.due_ms:
        early_ms = run.started.due_ms - run.started.at_ms
        yield Fault("early", about, f"started {early_ms:.1f} ms early by its worker's clock")
    if run.outcome == "ack" and (run.ended is None or run.ended.by != "return"):
        yield Fault("wrong", about, "was acked although its handler had not returned")


def _no_cause(run: Run, following: Run) -> str | None:
    """Why `following` should not have happened after `run`; None if it rightly did."""
    first, second = run.started, following.started
    if second.fence == first.fence:
        return "ran twice under one claim"
    if run.cut_off:
        return None  # held by the killed worker
    match run.outcome:
        case "ack" | "bury":
            return f"ran again after its {run.outcome} was accepted"
        case "retry" if second.attempt != first.attempt + 1:
            return f"was to be tried again as attempt {first.attempt + 1}, but ran as {second.attempt}"
        case "snooze" if second.snoozes != first.snoozes + 1:
            return f"was put off {first.snoozes + 1} times, but ran as if {second.snoozes} times"
        case None:
            return f"ran on {second.worker} while {first.worker}, which lives, still held it"
        case _:
            pass
    if run.ended is not None and second.at_ms < run.ended.at_ms and second.worker == first.worker:
        return "started again before its last run was over"
    return None


def _of_order(order: Order, stories: Stories, books: Books) -> Iterator[Fault]:
    """Closed or paid, never both, and what follows from it."""
    jobs = {task: stories.jobs.get(job_id(task, order)) for task in TASKS}
    if jobs["close_unpaid"] is None:
        yield Fault("lost", order.order_id, "was never placed")
        return
    finals = {task: final_of(story, books) for task, story in jobs.items() if story is not None}
    if None in finals.values():
        return  # told already
    expected = expected_finals(order, paid=finals["close_unpaid"] == "recalled")
    for task in sorted(finals.keys() | expected.keys()):
        if finals.get(task) != expected.get(task):
            found, wanted = finals.get(task) or "never sent", expected.get(task) or "never sent"
            yield Fault("wrong", order.order_id, f"{task} should be {wanted}, but is {found}")
    webhook = jobs["call_webhook"]
    if webhook is not None and finals["call_webhook"] == expected.get("call_webhook"):
        failed = sum(run.ended is not None and run.ended.by == "WebhookFailed" for run in _counted(webhook))
        if failed != failed_calls(order):
            yield Fault("wrong", order.order_id, f"its webhook failed {failed} times, not as its file says")


def _counted(story: Story) -> list[Run]:
    """A job's runs without those that a kill made void and that were run again with the same counters."""
    void = {
        id(run) for run, following in pairwise(story.runs) if run.started.attempt == following.started.attempt
    }
    return [run for run in story.runs if id(run) not in void]


def expected_finals(order: Order, *, paid: bool) -> dict[str, Final]:
    """How the order's jobs must end, given whether its payment came before its closing."""
    if not paid:
        closed: dict[str, Final] = {"close_unpaid": "done"}
        return closed if order.paid_s is None else {**closed, "refund": "done"}
    answered = order.acknowledged_at is not None and order.acknowledged_at <= len(RESEND_AFTER_MIN) + 1
    return {
        "close_unpaid": "recalled",
        "notify": "done" if answered else "dead",
        "call_webhook": "dead" if order.webhook == "down" else "done",
    }
