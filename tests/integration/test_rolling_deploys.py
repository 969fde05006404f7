"""Old and new workers on one queue: what one of them cannot run, it gives back for the other."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter

import msgspec
import pytest

import aiodq._worker.executor as executor
from aiodq import Queue, Worker
from aiodq._core.decision import HANDBACK_FIRST_MS, HANDBACK_LONGEST_MS
from aiodq._core.envelope import Envelope, encode_envelope
from aiodq.events import JobSettled, JobStarted, TaskUnknown
from tests.workers import Bench


async def hurry(bench: Bench, job_id: str) -> None:
    """Its delay passes now."""
    await bench.queue.reschedule(job_id, after=0)


async def until_given_back(bench: Bench, times: int) -> None:
    await bench.until(lambda: len(bench.told(TaskUnknown)) == times)


async def until_settled(bench: Bench, job_id: str) -> None:
    await bench.until(lambda: job_id in {event.job_id for event in bench.told(JobSettled)})


async def test_an_unknown_task_is_given_back_uncounted_with_growing_delay(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    @bench.queue.task
    async def known() -> None: ...

    caplog.set_level(logging.WARNING, "aiodq.worker")
    await bench.put("a", "of_the_next_release")
    async with bench.worker():
        for times in (1, 2, 3):
            await until_given_back(bench, times)
            await bench.until_in("scheduled", "a")
            tally = await bench.tally("a")
            assert (tally.handbacks, tally.failures, tally.snoozes, tally.errors) == (times, 0, 0, ())
            assert f"hand-backs in a row by workers without its task so far: {times}" in str(
                await bench.queue.explain("a")
            )
            if times < 3:
                await hurry(bench, "a")
    told = [event.again_in.total_seconds() * 1000 for event in bench.told(TaskUnknown)]
    assert told == [HANDBACK_FIRST_MS, 2 * HANDBACK_FIRST_MS, 4 * HANDBACK_FIRST_MS]
    assert {event.outcome for event in bench.told(JobSettled)} == {"release"}
    assert not bench.told(JobStarted)
    warned = [record.message for record in caplog.records if "of_the_next_release" in record.message]
    assert len(warned) == 1, "said once, not for each job"
    await bench.queue.cancel("a")


async def test_its_delay_ends_at_a_minute_or_so(bench: Bench) -> None:
    """However often it was given back: a new worker finds it soon after its start."""

    @bench.queue.task
    async def known() -> None: ...

    await bench.put("a", "of_the_next_release")
    async with bench.worker():
        for times in range(1, 10):
            await until_given_back(bench, times)
            await bench.until_in("scheduled", "a")
            await hurry(bench, "a")
        await until_given_back(bench, 10)
    assert bench.told(TaskUnknown)[-1].again_in.total_seconds() * 1000 == HANDBACK_LONGEST_MS
    assert HANDBACK_LONGEST_MS <= 60_000
    await bench.until_in("scheduled", "a")
    await bench.queue.cancel("a")


async def test_unknown_tasks_cost_little_and_hold_nobody_up(bench: Bench) -> None:
    """B149: no hot loop while only old workers are up; then the new one runs them."""
    ran: Counter[str] = Counter()

    @bench.queue.task
    async def known(name: str) -> None:
        ran[name] += 1

    for n in range(5):
        await bench.put(f"new-{n}", "of_the_next_release")
    async with bench.worker(), bench.worker():
        started = time.monotonic()
        for n in range(40):
            job = await known.enqueue(str(n))
            await until_settled(bench, job.id)
        await asyncio.sleep(
            max(0.0, 2.5 - (time.monotonic() - started))
        )  # a span of time is what is measured
        assert sum(ran.values()) == 40
        # Given back at 0 s, 1 s, 3 s, 7 s …
        assert 5 <= len(bench.told(TaskUnknown)) <= 5 * 2
    new = Queue(bench.queue.name, url=bench.url)

    @new.task
    async def of_the_next_release() -> None:
        ran["new"] += 1

    async with new, Worker(new):
        for n in range(5):
            await hurry(bench, f"new-{n}")
        await bench.until_empty()
    assert ran["new"] == 5


async def test_old_and_new_workers_share_a_queue(bench: Bench) -> None:
    """Each runs what it knows; what only one knows ends there, by whatever hands it went."""
    ran: Counter[tuple[str, str]] = Counter()
    old, new = bench.queue, Queue(bench.queue.name, url=bench.url)

    @old.task(name="both")
    async def both_old(n: int) -> None:
        ran["old", "both"] += 1

    @old.task(name="dropped")
    async def dropped_in_the_next_release(n: int) -> None:
        ran["old", "dropped"] += 1

    @new.task(name="both")
    async def both_new(n: int, *, colour: str = "red") -> None:
        ran["new", "both"] += 1

    @new.task(name="added")
    async def added(n: int) -> None:
        ran["new", "added"] += 1

    jobs = [await old.send("both", (n,)) for n in range(40)]
    jobs += [await old.send("dropped", (n,)) for n in range(10)]
    jobs += [await new.send("added", (n,)) for n in range(10)]
    jobs += [await new.send("both", (n,), {"colour": "blue"}) for n in range(5)]
    lost: list[str] = []
    async with new, bench.worker(concurrency=3), Worker(new, concurrency=3):
        while (await old.stats()).scheduled or (await old.stats()).processing:
            for waiting in await old.peek("scheduled", limit=100):
                await hurry(bench, waiting.id)
            await asyncio.sleep(0.01)  # between two looks
        lost = [job.id for job in await old.peek("dead", limit=100)]
    assert ran["old", "dropped"] == ran["new", "added"] == 10
    # An old worker cannot know a new argument: such a job ends in the dead letters, where it can be replayed.
    assert ran["old", "both"] + ran["new", "both"] + len(lost) == 45
    assert len(lost) <= 5
    assert await old.dead.purge(older_than=0) == len(lost)


async def test_payloads_of_a_newer_minor_form_are_read(bench: Bench) -> None:
    """More fields at the end of the envelope, and options this release does not know: passed over."""
    seen: list[tuple[int, str]] = []

    @bench.queue.task(max_attempts=1)
    async def work(n: int, *, name: str) -> None:
        seen.append((n, name))
        if len(seen) == 1:
            raise ValueError("to see that known options beside unknown ones still count")

    packed = msgspec.msgpack.encode(
        [
            1,
            "work",
            [7],
            {"name": "x"},
            {"max_attempts": 2, "novel": {"deep": [1, 2]}, "other": None},
            {"trace": "t"},
            "one more field",
            {"and": "another"},
        ]
    )
    await bench.put("a", "work", payload=packed)
    async with bench.worker():
        await bench.until(lambda: len(seen) == 1)
        await bench.until_in("scheduled", "a")
        await hurry(bench, "a")
        await bench.until_empty()
    assert seen == [(7, "x")] * 2


async def test_payloads_of_another_major_form_are_left_to_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    @bench.queue.task
    async def work(n: int) -> None:
        seen.append(n)

    await bench.put("a", "", payload=msgspec.msgpack.encode([2, {"task": "work"}, [7]]))
    await bench.put("b", "", payload=encode_envelope(Envelope(2, "work", msgspec.Raw(b"\x91\x07"))))
    async with bench.worker():
        for job_id in ("a", "b"):
            await until_settled(bench, job_id)
            await bench.until_in("scheduled", job_id)
            tally = await bench.tally(job_id)
            assert (tally.handbacks, tally.failures) == (1, 0)
    assert all("version 2" in str(event.error) for event in bench.told(JobSettled))
    assert "version 2" in caplog.text
    assert not seen
    assert (await bench.queue.stats()).dead == 0

    def of_the_next_release(payload: bytes) -> Envelope:
        _version, head, args = msgspec.msgpack.decode(payload)
        return Envelope(1, head["task"], msgspec.Raw(msgspec.msgpack.encode(args)))

    monkeypatch.setattr(executor, "decode_envelope", of_the_next_release)
    await bench.queue.cancel("b")
    async with bench.worker():
        await hurry(bench, "a")
        await bench.until_empty()
    assert seen == [7]
