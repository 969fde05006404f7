"""Whatever a handler does ends in a documented settlement, and never harms the worker or leaks a slot."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import msgspec
import pytest

from aiodq import Bury, Fixed, Retry, ScriptError, Snooze, current_job
from aiodq._core.envelope import Envelope, encode_envelope
from aiodq.events import JobSettled, JobStarted
from tests.workers import Bench, runtime_of


async def neighbours_still_run(bench: Bench, count: int = 10) -> None:
    """With two slots, of which a leaked one would show: neighbours queued behind all run."""
    runtime = [event for event in bench.told(JobStarted) if event.task == "neighbour"]
    assert len(runtime) == count


def with_neighbours(bench: Bench) -> Any:
    @bench.queue.task
    async def neighbour() -> None:
        await asyncio.sleep(0)

    return neighbour


@pytest.mark.parametrize(
    "error",
    [
        BaseException("direct"),
        GeneratorExit(),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        StopIteration(),
        StopAsyncIteration(),
        BaseExceptionGroup("g", [SystemExit(), ValueError("x")]),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("waits_first", [False, True], ids=["at once", "after a wait"])
async def test_b33_b34_any_exception_is_a_failure_of_its_job_alone(
    bench: Bench, error: BaseException, waits_first: bool
) -> None:
    @bench.queue.task(max_attempts=2, backoff=Fixed(0))
    async def bad() -> None:
        bench.note("bad")
        if waits_first:
            await asyncio.sleep(0.001)
        raise error

    neighbour = with_neighbours(bench)
    await bad.options(job_id="bad").enqueue()
    await bench.queue.enqueue_many([neighbour.job() for _ in range(10)])
    async with bench.worker(concurrency=2) as worker:
        await bench.until_empty()
        assert worker.health().running == 0
        slots = runtime_of(worker)._slots  # a claim on its way holds the free ones
        await bench.until(lambda: slots.free == 2, "two free slots")
    await neighbours_still_run(bench)
    assert bench.runs("bad") == 2
    assert await bench.where("bad") == "dead"
    tally = await bench.tally("bad")
    assert tally.failures == 2
    assert tally.reason.startswith("failed 2 of 2 attempts")


async def test_b33_system_exit_in_a_thread_is_a_failure_too(bench: Bench) -> None:
    @bench.queue.task(max_attempts=1)
    def bad(kind: str) -> None:
        raise {"exit": SystemExit(1), "stop": StopIteration(), "cancel": asyncio.CancelledError()}[kind]

    for kind in ("exit", "stop", "cancel"):
        await bad.options(job_id=kind).enqueue(kind)
    async with bench.worker():
        await bench.until_empty()
    assert [await bench.where(kind) for kind in ("exit", "stop", "cancel")] == ["dead"] * 3


async def test_b34_an_inner_task_that_was_cancelled_is_a_failure(bench: Bench) -> None:
    @bench.queue.task(max_attempts=1)
    async def bad() -> None:
        inner = asyncio.create_task(asyncio.sleep(60))
        inner.cancel()
        await inner

    await bad.options(job_id="bad").enqueue()
    async with bench.worker():
        await bench.until_in("dead", "bad")
    assert (await bench.tally("bad")).errors[0].type == "CancelledError"


async def test_b24_what_cannot_be_stored_is_no_reason_to_run_again(bench: Bench) -> None:
    class Rude:
        def __repr__(self) -> str:
            raise ValueError("no repr")

    results: dict[str, Any] = {"lock": threading.Lock(), "generator": (n for n in range(3)), "rude": Rude()}

    @bench.queue.task
    async def give(what: str) -> object:
        return results[what]

    for what in results:
        await give.options(job_id=what).enqueue(what)
    async with bench.worker():
        await bench.until_empty()
    assert {event.outcome for event in bench.told(JobSettled)} == {"ack"}


async def test_b25_the_error_is_stored_as_text_with_its_cause(bench: Bench) -> None:
    class NeedsArguments(Exception):
        def __init__(self, code: int, socket: object) -> None:
            super().__init__(code, socket)

    @bench.queue.task(max_attempts=1)
    async def bad() -> None:
        try:
            raise OSError("cut")
        except OSError as cause:
            raise NeedsArguments(5, threading.Lock()) from cause

    await bad.options(job_id="bad").enqueue()
    async with bench.worker():
        await bench.until_in("dead", "bad")
    (record,) = (await bench.tally("bad")).errors
    assert "NeedsArguments" in record.type
    assert "OSError: cut" in record.traceback
    assert "in bad" in record.traceback
    assert "aiodq/_worker" not in record.traceback


@pytest.mark.parametrize(
    "payload",
    [b"\xff\x00garbage", b"", b"\x96\x01\xa3bad\x91", b"\x96\x01\x05\x90\x80\xc0\xc0", b"\x91\x01"],
    ids=["random", "empty", "truncated", "wrong types", "too short"],
)
async def test_b27_a_poison_payload_is_buried_and_the_others_run(bench: Bench, payload: bytes) -> None:
    neighbour = with_neighbours(bench)
    await bench.put("poison", "neighbour", payload=payload)
    await bench.queue.enqueue_many([neighbour.job() for _ in range(10)])
    async with bench.worker(concurrency=2):
        await bench.until_empty()
    await neighbours_still_run(bench)
    assert await bench.where("poison") == "dead"
    assert "PayloadError" in (await bench.tally("poison")).reason


async def test_b27_a_payload_of_a_later_version_is_left_to_others(bench: Bench) -> None:
    with_neighbours(bench)
    await bench.put("later", "neighbour", payload=b"\x93\x63\xa9neighbour\xc0")
    async with bench.worker():
        await bench.until(lambda: bool(bench.told(JobSettled)))
        assert await bench.where("later") == "scheduled"
    assert [event.outcome for event in bench.told(JobSettled)] == ["release"]
    assert (await bench.tally("later")).failures == 0
    await bench.queue.cancel("later")


async def test_arguments_that_do_not_fit_are_buried_with_the_reason(bench: Bench) -> None:
    @bench.queue.task
    async def work(n: int) -> None: ...

    args = msgspec.Raw(msgspec.msgpack.encode(["not a number"]))
    await bench.put("x", "work", payload=encode_envelope(Envelope(1, "work", args)))
    async with bench.worker():
        await bench.until_in("dead", "x")
    assert "PayloadError" in (await bench.tally("x")).reason


async def test_directives_do_what_they_say(bench: Bench) -> None:
    @bench.queue.task
    async def work(what: str) -> None:
        bench.note(what)
        if bench.runs(what) > 1:
            return
        match what:
            case "retry":
                raise Retry(0, reason="once more")
            case "snooze":
                raise Snooze(0.02)
            case "group":
                async with asyncio.TaskGroup() as group:
                    group.create_task(snooze_in_a_group())
            case _:
                raise Bury("no use")

    async def snooze_in_a_group() -> None:
        raise Snooze(0.02)

    for what in ("retry", "snooze", "group", "bury"):
        await work.options(job_id=what).enqueue(what)
    async with bench.worker():
        await bench.until_empty()
    outcomes = {(event.job_id, event.outcome) for event in bench.told(JobSettled)}
    assert outcomes == {
        ("retry", "retry"),
        ("retry", "ack"),
        ("snooze", "snooze"),
        ("snooze", "ack"),
        ("group", "snooze"),
        ("group", "ack"),
        ("bury", "bury"),
    }
    assert (await bench.tally("bury")).reason == "no use"


async def test_attempts_and_snoozes_are_counted_apart(bench: Bench) -> None:
    seen: list[tuple[int, int, int, bool]] = []

    @bench.queue.task(max_attempts=3, backoff=Fixed(0))
    async def work() -> None:
        job = current_job()
        seen.append((job.attempt, job.failures, job.snoozes, job.last_attempt))
        if len(seen) in {1, 3}:
            raise Snooze(0)
        raise ValueError(len(seen))

    await work.options(job_id="x").enqueue()
    async with bench.worker():
        await bench.until_in("dead", "x")
    assert seen == [(1, 0, 0, False), (1, 0, 1, False), (2, 1, 1, False), (2, 1, 2, False), (3, 2, 2, True)]


async def test_a_timeout_is_a_failure_and_frees_the_slot(bench: Bench) -> None:
    cleaned: list[str] = []

    @bench.queue.task(max_attempts=1, timeout=0.05)
    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append("yes")

    neighbour = with_neighbours(bench)
    await slow.options(job_id="slow").enqueue()
    await bench.queue.enqueue_many([neighbour.job() for _ in range(10)])
    async with bench.worker(concurrency=1):
        await bench.until_in("dead", "slow")
        await bench.until_empty()
    await neighbours_still_run(bench)
    assert cleaned == ["yes"]
    (record,) = (await bench.tally("slow")).errors
    assert str(record) == "TimeoutError: stopped at its timeout of 0.05 s"


async def test_timeouts_of_different_lengths_each_end_at_their_own_time(bench: Bench) -> None:
    ended: dict[str, float] = {}

    @bench.queue.task(max_attempts=1)
    async def slow(name: str) -> None:
        started = time.monotonic()
        try:
            await asyncio.sleep(60)
        finally:
            ended[name] = time.monotonic() - started

    for name, timeout in (("long", 0.4), ("short", 0.1), ("middle", 0.2)):
        await slow.options(job_id=name, timeout=timeout).enqueue(name)
    async with bench.worker():
        await bench.until_empty()
    before_s = 0.005  # the time counts from a moment before the handler's first line
    assert 0.1 - before_s <= ended["short"] < 0.19
    assert 0.2 - before_s <= ended["middle"] < 0.35
    assert 0.4 - before_s <= ended["long"] < 0.7


async def test_a_thread_that_times_out_keeps_its_slot_until_it_ends(bench: Bench) -> None:
    stopping: list[bool] = []
    proceed = threading.Event()

    @bench.queue.task(max_attempts=1, timeout=0.05)
    def slow() -> None:
        job = current_job()
        while not job.stopping:
            time.sleep(0.005)
        stopping.append(True)
        proceed.wait(5)
        raise ValueError("stopped by hand")

    await slow.options(job_id="slow").enqueue()
    async with bench.worker(concurrency=1) as worker:
        await bench.until(lambda: bool(stopping))
        assert worker.health().running == 1
        proceed.set()
        await bench.until_in("dead", "slow")
    assert "TimeoutError" in (await bench.tally("slow")).reason


async def test_b38_a_swallowed_timeout_is_reported_and_its_slot_stays_taken(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiodq._worker.timeouts.STUCK_AFTER_S", 0.1)
    proceed = asyncio.Event()

    @bench.queue.task(timeout=0.05, max_attempts=2, backoff=Fixed(0))
    async def stubborn() -> None:
        bench.note("stubborn")
        while not proceed.is_set():
            try:
                await proceed.wait()
            except asyncio.CancelledError:
                continue

    await stubborn.options(job_id="s").enqueue()
    async with bench.worker(lease=0.3, concurrency=1) as worker:
        await bench.until(lambda: "ignores its cancellation" in caplog.text)
        assert worker.health().running == 1
        # Its lease is not renewed any more: it runs out, and the job goes to another worker.
        async with bench.worker(lease=0.3):
            await bench.until(lambda: bench.runs("stubborn") == 2)
            proceed.set()
            await bench.until_empty()
        await bench.until(lambda: worker.health().running == 0)


@pytest.mark.parametrize("error", [ValueError("hook"), asyncio.CancelledError(), SystemExit(1)])
async def test_b43_errors_of_rules_and_listeners_stay_where_they_are(
    bench: Bench, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> Any:
        raise error

    @bench.queue.task(max_attempts=2, backoff=broken, on_error=broken)
    async def bad() -> None:
        bench.note("bad")
        raise KeyError("job")

    await bad.options(job_id="bad").enqueue()
    async with bench.worker(listeners=[broken, bench.events.append]) as worker:
        await bench.until(lambda: bool(bench.told(JobSettled)))
        slots = runtime_of(worker)._slots  # a claim on its way holds the free ones
        await bench.until(lambda: slots.free == 100, "a hundred free slots")
    history = [record.type for record in (await bench.tally("bad")).errors]
    assert history[:2] == ["KeyError", type(error).__name__]
    assert "listener" in caplog.text
    await bench.queue.cancel("bad")


async def test_expired_jobs_are_dropped_or_buried_unrun(bench: Bench) -> None:
    @bench.queue.task(expires=0.05)
    async def dropped() -> None:
        bench.note("dropped")

    @bench.queue.task(expires=0.05, on_expired="bury")
    async def kept() -> None:
        bench.note("kept")

    await dropped.options(job_id="d").enqueue()
    await kept.options(job_id="k").enqueue()
    await asyncio.sleep(0.1)
    async with bench.worker():
        await bench.until_empty()
    assert bench.starts == []
    assert (await bench.where("d"), await bench.where("k")) in {("absent", "dead"), ("done", "dead")}
    assert {(event.job_id, event.outcome) for event in bench.told(JobSettled)} == {
        ("d", "expire"),
        ("k", "bury"),
    }


async def test_the_log_says_what_failed(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aiodq")

    @bench.queue.task(max_attempts=2, backoff=Fixed(0))
    async def bad() -> None:
        raise ValueError("boom")

    await bad.options(job_id="bad").enqueue()
    async with bench.worker():
        await bench.until_in("dead", "bad")
    text = caplog.text
    assert "job bad (task bad) failed in attempt 1 of 2" in text
    assert "job bad (task bad) is buried: ValueError: boom" in text
    (dead,) = await bench.queue.dead.list()
    where = 'in bad\n    raise ValueError("boom")\n'
    assert text.count(where) == 2
    assert where in dead.traceback
    assert "_worker/executor.py" not in text + dead.traceback


async def test_an_error_that_cannot_be_shown_ends_its_job_all_the_same(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    @bench.queue.task(max_attempts=1)
    async def deep() -> None:
        error: Exception = ValueError("boom")
        for _ in range(5000):
            error = ExceptionGroup[Exception]("one more", [error])
        raise error

    await deep.options(job_id="deep").enqueue()
    async with bench.worker():
        await bench.until_in("dead", "deep")
    assert "job deep (task deep)" in caplog.text


async def test_the_log_shows_no_traceback_of_what_a_handler_asks_for(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    @bench.queue.task(max_attempts=2)
    async def picky() -> None:
        if current_job().attempt == 1:
            raise Retry(0, reason="busy")
        raise Bury("no such order")

    await picky.options(job_id="picky").enqueue()
    async with bench.worker():
        await bench.until_in("dead", "picky")
    assert "job picky (task picky) is buried: no such order" in caplog.text
    assert "Traceback" not in caplog.text


async def test_one_broken_settlement_does_not_hold_up_its_neighbours(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    neighbour = with_neighbours(bench)
    async with bench.worker() as worker:
        (shard,) = runtime_of(worker)._shards
        plain_turn = shard.access.turn

        async def refusing(settlements: Any, claim: Any, /, *, last: bool = False) -> Any:
            if any(settlement.job_id == "broken" for settlement in settlements):
                raise ScriptError("a script was refused")
            return await plain_turn(settlements, claim, last=last)

        monkeypatch.setattr(shard.access, "turn", refusing)
        await bench.queue.enqueue_many(
            [*(neighbour.job() for _ in range(10)), neighbour.options(job_id="broken").job()]
        )
        await bench.until(lambda: len(bench.told(JobSettled)) == 10)
        await bench.until(lambda: "cannot be settled" in caplog.text)
        monkeypatch.setattr(shard.access, "turn", plain_turn)
        await bench.until_empty()  # its lease runs out, and it is run and settled again
