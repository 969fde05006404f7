"""The figures of a demo: from the stories and the faults to what is shown and what `--json` prints. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil

from msgspec import Struct

from aiodq.cli.demo.orders import Order
from aiodq.cli.demo.shop import TASKS, job_id
from aiodq.cli.demo.story import Books, Run, Stories, Story, final_of
from aiodq.cli.demo.verdict import Fault

_DISTURBED_MS = 1000.0


class Lateness(Struct, frozen=True):
    """How long after their due times runs started, in ms by the server's clock. Runs that a kill delayed are
    not in it: see `Recovery`."""

    runs: int
    p50_ms: float
    p99_ms: float
    max_ms: float


class TaskFigures(Struct, frozen=True):
    """One task: its jobs by how they ended, and its runs. `retries` follow failures, `snoozes` do not."""

    task: str
    jobs: int
    runs: int
    done: int
    dead: int
    recalled: int
    retries: int
    snoozes: int
    late: Lateness


class Recovery(Struct, frozen=True):
    """The killed worker: what it held then, what of that ran again, and how long after the kill, in ms."""

    worker: str
    held: int
    recovered: int
    first_ms: float
    last_ms: float


class OrderOutcome(Struct, frozen=True):
    """What became of one order.

    Attributes:
        outcome: "paid", "closed unpaid", "paid too late, refunded"; "LOST" if it is none of these.
        notification: "done" (acknowledged) or "dead" after `sends` sends; "" if there was nothing to tell.
        webhook: "done" or "dead" after `calls` calls; "" likewise.
        runs: of all its jobs.
        recovered: one of its jobs was held by the killed worker, and ran again.
    """

    order_id: str
    customer: str
    amount: str
    currency: str
    outcome: str
    notification: str
    sends: int
    webhook: str
    calls: int
    runs: int
    recovered: bool


class Report(Struct, frozen=True):
    """All figures of one demo.

    Attributes:
        runs_per_job: how many jobs had that many runs.
        late: of all runs; `late_undisturbed`: without those of the second after the kill, in which the dead
            worker's place in the watch over due times is taken over.
    """

    passed: bool
    took_s: float
    jobs: int
    runs: int
    outcomes: dict[str, int]
    tasks: list[TaskFigures]
    runs_per_job: dict[int, int]
    late: Lateness
    late_undisturbed: Lateness
    recovery: Recovery
    faults: list[Fault]
    orders: list[OrderOutcome]


def report(
    orders: Sequence[Order],
    stories: Stories,
    books: Books,
    faults: Sequence[Fault],
    *,
    killed: str,
    took_s: float,
) -> Report:
    """Count it all."""
    outcomes = [_outcome(order, stories, books) for order in orders]
    jobs = list(stories.jobs.values())
    return Report(
        passed=not faults,
        took_s=round(took_s, 1),
        jobs=len(jobs),
        runs=sum(len(story.runs) for story in jobs),
        outcomes=dict(Counter(order.outcome for order in outcomes).most_common()),
        tasks=[_figures(task, [story for story in jobs if story.task == task], books) for task in TASKS],
        runs_per_job=dict(sorted(Counter(len(story.runs) for story in jobs).items())),
        late=_lateness(jobs),
        late_undisturbed=_lateness(jobs, disturbed_ms=_DISTURBED_MS),
        recovery=_recovery(killed, jobs, books),
        faults=list(faults),
        orders=outcomes,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that at least `share` (0 to 1) of them do not exceed; 0 for none."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else 0.0


def _figures(task: str, stories: Sequence[Story], books: Books) -> TaskFigures:
    finals = Counter(final_of(story, books) for story in stories)
    outcomes = Counter(run.outcome for story in stories for run in story.runs)
    return TaskFigures(
        task=task,
        jobs=len(stories),
        runs=sum(len(story.runs) for story in stories),
        done=finals["done"],
        dead=finals["dead"],
        recalled=finals["recalled"],
        retries=outcomes["retry"],
        snoozes=outcomes["snooze"],
        late=_lateness(stories),
    )


def _lateness(stories: Sequence[Story], *, disturbed_ms: float = 0.0) -> Lateness:
    kills_ms = {run.killed_ms for story in stories for run in story.runs if run.killed_ms is not None}
    late_ms: list[float] = []
    for story in stories:
        recovers = False
        for run in story.runs:
            disturbed = any(0 <= run.started.at_ms - kill_ms < disturbed_ms for kill_ms in kills_ms)
            if not recovers and not disturbed:
                late_ms.append(round(run.started.late_ms, 3))
            recovers = run.cut_off
    return Lateness(
        runs=len(late_ms),
        p50_ms=percentile(late_ms, 0.5),
        p99_ms=percentile(late_ms, 0.99),
        max_ms=max(late_ms, default=0.0),
    )


def _recovery(killed: str, stories: Sequence[Story], books: Books) -> Recovery:
    """What was settled in the moment of the kill, without a line about it, was not held any more."""
    held = sum(
        story.recovered_after_ms is not None
        or (final_of(story, books) is None and any(run.cut_off for run in story.runs))
        for story in stories
    )
    after_ms = [story.recovered_after_ms for story in stories]
    waits_ms = [round(wait, 1) for wait in after_ms if wait is not None]
    return Recovery(killed, held, len(waits_ms), min(waits_ms, default=0.0), max(waits_ms, default=0.0))


def _outcome(order: Order, stories: Stories, books: Books) -> OrderOutcome:
    found = {task: stories.jobs.get(job_id(task, order)) for task in TASKS}
    jobs = {task: story for task, story in found.items() if story is not None}
    finals = {task: final_of(story, books) for task, story in jobs.items()}
    return OrderOutcome(
        order_id=order.order_id,
        customer=order.customer,
        amount=str(order.amount),
        currency=order.currency,
        outcome=_words(finals.get("close_unpaid"), refunded="refund" in finals),
        notification=_end_of("notify", finals),
        sends=max((run.started.snoozes + 1 for run in _runs(jobs.get("notify"))), default=0),
        webhook=_end_of("call_webhook", finals),
        calls=max((run.started.attempt for run in _runs(jobs.get("call_webhook"))), default=0),
        runs=sum(len(story.runs) for story in jobs.values()),
        recovered=any(story.recovered_after_ms is not None for story in jobs.values()),
    )


def _words(closing: str | None, *, refunded: bool) -> str:
    if closing == "recalled":
        return "paid"
    if closing == "done":
        return "paid too late, refunded" if refunded else "closed unpaid"
    return "LOST"


def _end_of(task: str, finals: Mapping[str, str | None]) -> str:
    return (finals[task] or "LOST") if task in finals else ""


def _runs(story: Story | None) -> list[Run]:
    return story.runs if story is not None else []
