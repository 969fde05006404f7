"""Leases are kept while handlers run, blocked loops included; a lost one stops its handler and changes
nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from aiodq import Fixed, LeaseLost, StoreUnavailable, Worker, current_job
from aiodq._worker.keeper import Keeper
from aiodq._worker.running import Run
from aiodq.events import JobSettled, LeaseMissed, LoopBlocked
from tests.workers import Bench, runtime_of

LEASE_S = 0.4


@contextmanager
def in_a_thread(worker: Worker) -> Generator[None, None, None]:
    """The worker in a thread with an event loop of its own, so that this one may be blocked."""
    thread = threading.Thread(target=lambda: asyncio.run(worker.run()))
    thread.start()
    deadline = time.monotonic() + 10
    while not worker.health().consuming:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield
    finally:
        worker.stop()
        thread.join(10)
        assert not thread.is_alive()


def stop_renewing(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this worker's keeper were cut off from the server, without noticing."""

    def nothing(shard: object, asked_at: object) -> list[tuple[Run, str]]:
        return []

    monkeypatch.setattr(runtime_of(worker)._keeper, "_due", nothing)


async def test_b40_a_handler_that_blocks_the_loop_for_three_leases_is_run_once_and_its_neighbours_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in (("BLOCKED_S", 0.3), ("PERIOD_S", 0.05), ("IDLE_PERIOD_S", 0.05)):
        monkeypatch.setattr(f"aiodq._worker.pulse.{name}", value)

    @bench.queue.task
    async def blocks() -> None:
        bench.note("blocks")
        await asyncio.sleep(0.1)
        time.sleep(3 * LEASE_S)  # noqa: ASYNC251  # the fault under test

    @bench.queue.task
    async def waits(n: int) -> None:
        bench.note(f"waits {n}")
        await asyncio.sleep(2 * LEASE_S)

    async with bench.worker(lease=LEASE_S, concurrency=4):
        await bench.queue.enqueue_many([blocks.job(), *(waits.job(n) for n in range(3))])
        await bench.until(lambda: len(bench.starts) == 4)
        with in_a_thread(bench.worker(lease=LEASE_S, listeners=[])):
            await bench.until_empty()
    assert sorted(job for job, _ in bench.starts) == ["blocks", "waits 0", "waits 1", "waits 2"]
    assert [event.outcome for event in bench.told(JobSettled)] == ["ack"] * 4
    assert "the event loop has been blocked" in caplog.text
    assert "in task blocks" in caplog.text
    assert "time.sleep(3 * LEASE_S)" in caplog.text
    (blocked,) = bench.told(LoopBlocked)
    assert blocked.blocked_for.total_seconds() > LEASE_S
    assert any(name.startswith("waits (") for name in blocked.running)


@pytest.mark.parametrize("drop", [0, 3], ids=["all renewals", "every third renewal dropped"])
async def test_b49_a_job_of_five_leases_is_run_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, drop: int
) -> None:
    sent = dropped = 0
    plain = Keeper._extend

    async def dropping(self: Keeper, shard: Any, page: Sequence[Any]) -> Any:
        nonlocal sent, dropped
        sent += 1
        if drop and sent % drop == 0:
            dropped += 1
            raise StoreUnavailable("dropped by the test")
        return await plain(self, shard, page)

    monkeypatch.setattr(Keeper, "_extend", dropping)

    @bench.queue.task
    async def long() -> None:
        bench.note("long")
        await asyncio.sleep(5 * LEASE_S)

    await long.enqueue()
    async with bench.worker(lease=LEASE_S), bench.worker(lease=LEASE_S), bench.worker(lease=LEASE_S):
        await bench.until_empty()
    assert bench.runs("long") == 1
    assert sent >= 5
    assert dropped >= (1 if drop else 0)


async def test_nothing_is_renewed_for_jobs_shorter_than_a_third_of_the_lease(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed: list[int] = []
    plain = Keeper._extend

    async def counting(self: Keeper, shard: Any, page: Sequence[Any]) -> Any:
        renewed.append(len(page))
        return await plain(self, shard, page)

    @bench.queue.task
    async def short() -> None:
        await asyncio.sleep(0.05)

    async with bench.worker(lease=2):
        monkeypatch.setattr(Keeper, "_extend", counting)
        for _ in range(3):
            await short.enqueue()
            await bench.until_empty()
    assert renewed == []


async def test_b50_time_limits_around_the_lease_never_give_two_runs_at_once(bench: Bench) -> None:
    running: dict[str, int] = {}
    attempts: dict[str, list[int]] = {}

    @bench.queue.task(max_attempts=3, backoff=Fixed(0))
    async def slow() -> None:
        job = current_job()
        running[job.id] = running.get(job.id, 0) + 1
        assert running[job.id] == 1, "two at once"
        attempts.setdefault(job.id, []).append(job.attempt)
        try:
            await asyncio.sleep(60)
        finally:
            running[job.id] -= 1

    jobs = [slow.options(job_id=f"j{n}", timeout=LEASE_S + (n - 20) / 4000).job() for n in range(41)]
    await bench.queue.enqueue_many(jobs)
    async with bench.worker(lease=LEASE_S), bench.worker(lease=LEASE_S):
        await bench.until_empty()
    assert attempts == {f"j{n}": [1, 2, 3] for n in range(41)}
    for job in jobs:
        assert await bench.where(job.id) == "dead"


async def test_b53_a_late_finish_is_refused_and_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    second_ends = asyncio.Event()
    first_ends = asyncio.Event()

    @bench.queue.task
    async def work() -> None:
        bench.note("work")
        await (first_ends if bench.runs("work") == 1 else second_ends).wait()

    first = bench.worker(lease=LEASE_S)
    async with first:
        stop_renewing(first, monkeypatch)
        await work.options(job_id="x").enqueue()
        await bench.until(lambda: bench.runs("work") == 1)
        (shard,) = runtime_of(first)._shards
        shard.portion.limit.most = 1  # it may not take its own lapsed job back
        async with bench.worker(lease=LEASE_S, listeners=[]):
            await bench.until(lambda: bench.runs("work") == 2)
            holder = (await bench.find("x")).holder
            first_ends.set()
            await bench.until(lambda: bool(bench.told(LeaseMissed)))
            assert bench.told(JobSettled) == []
            still = await bench.find("x")
            assert (still.was, still.holder) == ("processing", holder)
            second_ends.set()
            await bench.until_empty()
    assert bench.runs("work") == 2


async def test_b53_a_worker_that_claims_its_own_lapsed_job_goes_on_with_the_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fences: list[int] = []

    @bench.queue.task
    async def work() -> None:
        bench.note("work")
        job = current_job()
        fences.append(job.fence)
        await asyncio.sleep(2.5 * LEASE_S)
        fences.append(job.fence)

    async with bench.worker(lease=LEASE_S) as worker:
        stop_renewing(worker, monkeypatch)
        await work.options(job_id="x").enqueue()
        await bench.until_empty()
        assert runtime_of(worker)._slots.free == 100
    assert bench.runs("work") == 1
    assert fences[1] > fences[0]
    assert [event.outcome for event in bench.told(JobSettled)] == ["ack"]


async def test_b55_a_handler_whose_lease_is_lost_is_cancelled_and_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[str] = []

    @bench.queue.task
    async def work() -> None:
        bench.note("work")
        job = current_job()
        first = bench.runs("work") == 1
        try:
            await asyncio.sleep(60 if first else 0.01)
        except asyncio.CancelledError:
            with pytest.raises(LeaseLost):
                await job.extend()
            ends.append(f"cancelled, stopping={job.stopping}")
            raise

    first = bench.worker(lease=LEASE_S)
    async with first:
        with monkeypatch.context() as cut_off:
            stop_renewing(first, cut_off)
            await work.options(job_id="x").enqueue()
            await bench.until(lambda: bench.runs("work") == 1)
            (shard,) = runtime_of(first)._shards
            shard.portion.limit.most = 1
            async with bench.worker(lease=LEASE_S, listeners=[]):
                await bench.until_empty()
                run = next(iter(shard.held.values()))
        # Renewing again: the keeper is told that the lease is gone.
        runtime_of(first)._keeper.renew_now()
        await bench.until(lambda: bool(ends))
        assert run.lost
        await bench.until(lambda: first.health().running == 0)
        await bench.until(lambda: runtime_of(first)._slots.free == 100, "its slot is free again")
    assert ends == ["cancelled, stopping=True"]
    assert len(bench.told(LeaseMissed)) == 1
    assert bench.told(JobSettled) == []


async def test_a_swallowed_timeout_reclaimed_by_its_own_worker_fails_the_job(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiodq._worker.timeouts.STUCK_AFTER_S", 0.1)
    proceed = asyncio.Event()

    @bench.queue.task(timeout=0.05, max_attempts=2, backoff=Fixed(0))
    async def stubborn() -> None:
        bench.note("stubborn")
        if bench.runs("stubborn") > 1:
            return
        while not proceed.is_set():
            try:
                await proceed.wait()
            except asyncio.CancelledError:
                continue

    await stubborn.options(job_id="s").enqueue()
    async with bench.worker(lease=0.3, concurrency=2) as worker:
        try:
            await bench.until_empty()
            assert worker.health().running == 1
        finally:
            proceed.set()
        await bench.until(lambda: worker.health().running == 0)
        assert runtime_of(worker)._slots.free == 2
    assert bench.runs("stubborn") == 2
    assert [event.outcome for event in bench.told(JobSettled)] == ["retry", "ack"]


async def test_renewals_go_on_while_a_settlement_waits_for_the_server(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = asyncio.Event()

    @bench.queue.task
    async def work() -> None:
        bench.note("work")

    async with bench.worker(lease=LEASE_S) as worker:
        (shard,) = runtime_of(worker)._shards
        plain_turn = shard.access.turn

        async def holding_back(settlements: Any, claim: Any, /, *, last: bool = False) -> Any:
            if settlements:
                await blocked.wait()
            return await plain_turn(settlements, claim, last=last)

        monkeypatch.setattr(shard.access, "turn", holding_back)
        await work.options(job_id="x").enqueue()
        await bench.until(lambda: bench.runs("work") == 1)
        async with bench.worker(lease=LEASE_S, listeners=[]):
            await asyncio.sleep(2.5 * LEASE_S)
            blocked.set()
            await bench.until_empty()
    assert bench.runs("work") == 1
    assert [event.outcome for event in bench.told(JobSettled)] == ["ack"]
