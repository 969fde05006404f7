"""The demo's own check, fed with true records and with falsified ones: it must find what was done to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest
from msgspec import structs

from aiodq.cli.demo.log import Ended, Killed, Recalled, Record, Sent, Settled, Started
from aiodq.cli.demo.orders import Order
from aiodq.cli.demo.report import report
from aiodq.cli.demo.story import Books, tell
from aiodq.cli.demo.verdict import judge

UNPAID = Order("A1", "Ada", Decimal("12.50"), "EUR", 0, None, "ok", None)
PAID = Order("A2", "Ben", Decimal(99), "JPY", 0, 60, "fails once", 2)
LATE = Order("A3", "Cleo", Decimal(7), "CHF", 0, 2000, "ok", 1)
DOWN = Order("A4", "Dan", Decimal(8), "USD", 0, 30, "down", None)
ORDERS = [UNPAID, PAID, LATE, DOWN]
BOOKS = Books(dead=frozenset({"notify-A4", "call_webhook-A4"}))

Logs = dict[str, list[Record]]


class _Writer:
    """Writes the records of runs as a worker would, fences and times growing."""

    def __init__(self) -> None:
        self.fence = 100
        self.now_ms = 1000
        self.logs: Logs = {"shop": [], "one": [], "two": []}

    def sent(self, task: str, order: Order, due_ms: int = 0) -> None:
        self.logs["shop"].append(
            Sent(f"{task}-{order.order_id}", order.order_id, task, due_ms, created=True, at_ms=0.0)
        )

    def recalled(self, order: Order, *, made: bool) -> None:
        was = "scheduled" if made else "absent"
        self.logs["shop"].append(Recalled(f"close_unpaid-{order.order_id}", made, was, 1.0))

    def killed(self, worker: str) -> None:
        self.now_ms += 10
        self.logs["shop"].append(Killed(worker, float(self.now_ms)))

    def started(self, worker: str, job_id: str, *, attempt: int = 1, snoozes: int = 0) -> None:
        self.fence += 1
        self.now_ms += 10
        task = job_id.rpartition("-")[0]
        at_ms = float(self.now_ms)
        self.logs[worker].append(
            Started(worker, job_id, task, self.fence, attempt, snoozes, 0, 0, 0, 1.5, at_ms)
        )

    def ended(self, worker: str, job_id: str, by: str = "return") -> None:
        self.now_ms += 10
        self.logs[worker].append(Ended(worker, job_id, self.fence, by, "", float(self.now_ms)))

    def settled(self, worker: str, job_id: str, outcome: str = "ack") -> None:
        self.logs[worker].append(Settled(worker, job_id, outcome, float(self.now_ms)))

    def run(
        self,
        worker: str,
        job_id: str,
        outcome: str = "ack",
        by: str = "return",
        *,
        attempt: int = 1,
        snoozes: int = 0,
    ) -> None:
        self.started(worker, job_id, attempt=attempt, snoozes=snoozes)
        self.ended(worker, job_id, by)
        self.settled(worker, job_id, outcome)


def _true_day() -> Logs:
    """A day on which all went well; worker one was killed with A1's closing in hand."""
    day = _Writer()
    for order in ORDERS:
        day.sent("close_unpaid", order)
    day.recalled(PAID, made=True)
    day.recalled(DOWN, made=True)
    for order in (PAID, DOWN):
        day.sent("notify", order)
        day.sent("call_webhook", order)
    day.run("one", "notify-A2", "snooze", "Snooze")
    day.run("two", "notify-A2", snoozes=1)
    day.run("one", "call_webhook-A2", "retry", "WebhookFailed")
    day.run("two", "call_webhook-A2", attempt=2)
    for send in (0, 1):
        day.run("two", "notify-A4", "snooze", "Snooze", snoozes=send)
    day.run("two", "notify-A4", "bury", "Bury", snoozes=2)
    for attempt in (1, 2, 3):
        day.run("two", "call_webhook-A4", "retry", "WebhookFailed", attempt=attempt)
    day.run("two", "call_webhook-A4", "bury", "WebhookFailed", attempt=4)
    day.run("two", "close_unpaid-A3")
    day.recalled(LATE, made=False)
    day.sent("refund", LATE)
    day.run("one", "refund-A3")
    day.started("one", "close_unpaid-A1")
    day.killed("one")
    day.run("two", "close_unpaid-A1")
    return day.logs


@pytest.fixture
def logs() -> Logs:
    return _true_day()


def faults(logs: Logs, books: Books = BOOKS) -> list[tuple[str, str]]:
    found = judge(ORDERS, tell(list(logs.values())), books, same_clock=True)
    return [(fault.kind, fault.about) for fault in found]


def without(logs: Logs, unwanted: Callable[[Record], bool]) -> Logs:
    return {name: [record for record in log if not unwanted(record)] for name, log in logs.items()}


def changed(logs: Logs, change: Callable[[Record], Record]) -> Logs:
    return {name: [change(record) for record in log] for name, log in logs.items()}


def test_a_true_day_passes(logs: Logs) -> None:
    assert faults(logs) == []


def test_a_job_that_never_ran_is_lost(logs: Logs) -> None:
    assert faults(
        without(logs, lambda record: getattr(record, "job_id", "") == "refund-A3" and not _sent(record))
    ) == [("lost", "refund-A3")]


def test_a_job_that_still_waits_is_lost(logs: Logs) -> None:
    cut = without(logs, lambda record: isinstance(record, Settled) and record.job_id == "close_unpaid-A3")
    books = structs.replace(BOOKS, scheduled=frozenset({"close_unpaid-A3"}))
    assert ("lost", "close_unpaid-A3") in faults(cut, books)


def test_a_handler_cut_off_by_the_kill_and_never_run_again_is_lost(logs: Logs) -> None:
    again = [record for record in logs["two"] if getattr(record, "job_id", "") != "close_unpaid-A1"]
    assert faults({**logs, "two": again}) == [("lost", "close_unpaid-A1")]


def test_what_the_killed_worker_acked_without_writing_it_down_is_done(logs: Logs) -> None:
    """The kill came between the server's answer and the line: the job is nowhere, its handler returned."""
    again = [record for record in logs["two"] if getattr(record, "job_id", "") != "close_unpaid-A1"]
    started = next(record for record in logs["one"] if getattr(record, "job_id", "") == "close_unpaid-A1")
    assert isinstance(started, Started)
    ended = Ended("one", "close_unpaid-A1", started.fence, "return", "", started.at_ms + 1)
    assert faults({**logs, "one": [*logs["one"], ended], "two": again}) == []


@pytest.mark.parametrize(
    "change",
    [{"late_ms": -0.5}, {"due_ms": 10_000_000}],
    ids=["by the server's clock", "by the worker's clock"],
)
def test_a_run_before_its_due_time_is_early(logs: Logs, change: dict[str, float]) -> None:
    def early(record: Record) -> Record:
        is_second = isinstance(record, Started) and record.job_id == "notify-A2" and record.snoozes == 1
        return structs.replace(record, **change) if is_second else record

    assert faults(changed(logs, early)) == [("early", "notify-A2")]


def test_the_workers_clocks_do_not_count_for_a_server_elsewhere(logs: Logs) -> None:
    def ahead(record: Record) -> Record:
        is_second = isinstance(record, Started) and record.job_id == "notify-A2" and record.snoozes == 1
        return structs.replace(record, due_ms=10_000_000) if is_second else record

    stories = tell(list(changed(logs, ahead).values()))
    assert judge(ORDERS, stories, BOOKS, same_clock=False) == []


def test_another_due_time_than_enqueue_answered_is_wrong(logs: Logs) -> None:
    def moved(record: Record) -> Record:
        return (
            structs.replace(record, due_ms=500) if _sent(record) and _about(record, "refund-A3") else record
        )

    assert faults(changed(logs, moved)) == [("wrong", "refund-A3")]


def test_a_run_after_its_ack_is_doubled(logs: Logs) -> None:
    day = _Writer()
    day.fence, day.now_ms = 900, 90_000
    day.run("two", "close_unpaid-A3")
    assert faults({**logs, "two": logs["two"] + day.logs["two"]}) == [("doubled", "close_unpaid-A3")]


def test_two_living_workers_with_one_job_are_a_doubling(logs: Logs) -> None:
    """The second run has no cause in the kill: its first was held by the worker that lives."""
    day = _Writer()
    day.fence, day.now_ms = 50, 50
    day.started("two", "close_unpaid-A3")
    assert faults({**logs, "two": day.logs["two"] + logs["two"]}) == [("doubled", "close_unpaid-A3")]


def test_a_retry_with_the_wrong_attempt_is_doubled(logs: Logs) -> None:
    def same(record: Record) -> Record:
        again = isinstance(record, Started) and record.job_id == "call_webhook-A2" and record.attempt == 2
        return structs.replace(record, attempt=1) if again else record

    assert ("doubled", "call_webhook-A2") in faults(changed(logs, same))


def test_a_run_of_a_cancelled_job_is_doubled(logs: Logs) -> None:
    day = _Writer()
    day.fence = 900
    day.run("two", "close_unpaid-A2")
    assert faults({**logs, "two": logs["two"] + day.logs["two"]}) == [("doubled", "close_unpaid-A2")]


def test_the_kill_excuses_only_what_the_killed_worker_held(logs: Logs) -> None:
    """Without the kill the same records show a job that two living workers ran."""
    spared = without(logs, lambda record: isinstance(record, Killed))
    assert faults(spared) == [("doubled", "close_unpaid-A1")]


def test_dead_letters_that_the_records_do_not_know_are_wrong(logs: Logs) -> None:
    books = structs.replace(BOOKS, dead=BOOKS.dead | {"refund-A3", "other"})
    assert faults(logs, books) == [("wrong", "refund-A3"), ("wrong", "other")]


def test_dead_letters_that_are_gone_are_wrong(logs: Logs) -> None:
    assert faults(logs, Books(dead=frozenset({"notify-A4"}))) == [("wrong", "call_webhook-A4")]


def test_an_order_that_was_never_placed_is_lost(logs: Logs) -> None:
    gone = without(logs, lambda record: getattr(record, "job_id", "") == "close_unpaid-A1")
    assert faults(gone) == [("lost", "A1")]


def test_an_outcome_that_the_file_does_not_ask_for_is_wrong(logs: Logs) -> None:
    def acked(record: Record) -> Record:
        match record:
            case Settled(job_id="call_webhook-A4", outcome="bury"):
                return structs.replace(record, outcome="ack")
            case Ended(job_id="call_webhook-A4", fence=fence) if fence == last:
                return structs.replace(record, by="return")
            case _:
                return record

    last = max(record.fence for record in _starts(logs) if record.job_id == "call_webhook-A4")
    books = Books(dead=frozenset({"notify-A4"}))
    assert faults(changed(logs, acked), books) == [("wrong", "A4")]


def test_an_ack_without_a_returned_handler_is_wrong(logs: Logs) -> None:
    def raised(record: Record) -> Record:
        is_it = isinstance(record, Ended) and record.job_id == "refund-A3"
        return structs.replace(record, by="RuntimeError") if is_it else record

    assert faults(changed(logs, raised)) == [("wrong", "refund-A3")]


def test_runs_of_jobs_that_nobody_sent_are_wrong(logs: Logs) -> None:
    day = _Writer()
    day.started("two", "notify-Z9")
    assert faults({**logs, "two": logs["two"] + day.logs["two"]}) == [("wrong", "records")]


def test_the_report_counts_what_the_records_hold(logs: Logs) -> None:
    stories = tell(list(logs.values()))
    seen = report(ORDERS, stories, BOOKS, [], killed="one", took_s=3.21)
    assert seen.passed
    assert (seen.jobs, seen.runs) == (9, 15)
    assert seen.outcomes == {"paid": 2, "closed unpaid": 1, "paid too late, refunded": 1}
    assert seen.runs_per_job == {0: 2, 1: 2, 2: 3, 3: 1, 4: 1}
    assert (seen.recovery.held, seen.recovery.recovered, seen.recovery.last_ms) == (1, 1, 10.0)
    assert seen.late.runs == 14  # the run after the kill is not late but recovered
    assert seen.late_undisturbed.runs == 14
    webhooks = next(each for each in seen.tasks if each.task == "call_webhook")
    assert (webhooks.jobs, webhooks.runs, webhooks.done, webhooks.dead, webhooks.retries) == (2, 6, 1, 1, 4)
    ada, ben, _, dan = seen.orders
    assert (ada.outcome, ada.recovered, ada.runs) == ("closed unpaid", True, 2)
    assert (ada.notification, ada.webhook) == ("", "")
    assert (ben.notification, ben.sends, ben.webhook, ben.calls) == ("done", 2, "done", 2)
    assert (dan.notification, dan.sends, dan.webhook, dan.calls) == ("dead", 3, "dead", 4)


def _sent(record: Record) -> bool:
    return isinstance(record, Sent)


def _about(record: Record, job_id: str) -> bool:
    return getattr(record, "job_id", "") == job_id


def _starts(logs: Logs) -> Iterator[Started]:
    return (record for log in logs.values() for record in log if isinstance(record, Started))
