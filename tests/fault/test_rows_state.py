"""Faults of jobs whose state two parties change at once (docs/faults.md)."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest
import redis

from aiodq import Fixed, Queue, current_job
from aiodq._core.answers import Change
from tests.fault.lab import rounds
from tests.fault.processes import held_by
from tests.fault.site import open_site
from tests.servers import ServerProcess
from tests.workers import Bench


@pytest.fixture
async def bench(valkey: ServerProcess, queue_name: str) -> AsyncIterator[Bench]:
    queue = Queue(queue_name, url=valkey.url)
    async with queue:
        yield Bench(queue, valkey.url)


async def test_b63_a_job_rescheduled_while_it_becomes_due_is_run_once(bench: Bench) -> None:
    """Due in 10 ms, moved by 100 ms after 0 to 20 ms; the answer says who was first."""
    dice = random.Random(63)
    ran_ms: dict[str, list[float]] = {}

    @bench.queue.task
    async def work() -> None:
        ran_ms.setdefault(current_job().id, []).append(current_job().fence / 1000)

    changes: dict[str, tuple[float, Change]] = {}

    async def once(job_id: str, wait_s: float) -> None:
        job = await work.options(job_id=job_id).after(0.01).enqueue()
        await asyncio.sleep(wait_s)
        changes[job_id] = job.due_at.timestamp() * 1000, await job.reschedule(after=0.1)

    async with bench.worker():
        for start in range(0, rounds(200), 10):
            await asyncio.gather(*(once(f"j{n}", dice.random() * 0.02) for n in range(start, start + 10)))
        await bench.until_empty()
    won = {job_id for job_id, (_, change) in changes.items() if change}
    assert 0 < len(won) < len(changes)
    for job_id, (due_ms, change) in changes.items():
        (claimed_ms,) = ran_ms[job_id]
        assert claimed_ms >= (due_ms + 85 if change else due_ms)
        assert change.was == "scheduled" if change else change.was in ("processing", "done")


async def test_b64_the_id_of_a_cancelled_job_is_free_at_once(bench: Bench) -> None:
    finish = asyncio.Event()

    @bench.queue.task
    async def work(n: int) -> None:
        bench.note(f"run {n}")
        await finish.wait()

    mine = work.options(job_id="x")
    assert (await mine.after(60).enqueue(1)).created
    assert await bench.queue.cancel("x")
    assert (await mine.enqueue(2)).created, "added again while the first was waiting"
    assert await bench.queue.cancel("x")
    assert (await mine.enqueue(3)).created, "added again while the first was due"
    async with bench.worker():
        await bench.until(lambda: bench.runs("run 3") == 1)
        change = await bench.queue.cancel("x")
        assert (change.made, change.was) == (False, "processing")
        again = await mine.enqueue(4)
        assert (again.created, again.replaced) == (False, False), "said, not silently ignored"
        finish.set()
        await bench.until_empty()
    assert [run for run, _ in bench.starts] == ["run 3"]


async def test_b66_cancelling_an_unknown_id_leaves_no_mark(bench: Bench, valkey: ServerProcess) -> None:
    @bench.queue.task
    async def work() -> None:
        bench.note("x")

    with valkey.client() as client:
        before = _keys(client)
        for _ in range(2):
            change = await bench.queue.cancel("x")
            assert (change.made, change.was) == (False, "absent")
        assert {key for key in _keys(client) if b":turn:" not in key} == before, (
            "but what makes it repeatable"
        )
    assert (await work.options(job_id="x").enqueue()).created
    async with bench.worker():
        await bench.until_empty()
    assert bench.runs("x") == 1


def _keys(client: redis.Redis) -> set[bytes]:
    return set(cast("Iterator[bytes]", client.scan_iter(count=1000)))


async def test_b71_an_id_is_free_or_explicitly_taken_after_every_ending(bench: Bench) -> None:
    @bench.queue.task(max_attempts=2, backoff=Fixed(0))
    async def fails() -> None:
        bench.note("x")
        raise ValueError("as asked")

    mine = fails.options(job_id="x")
    async with bench.worker():
        assert (await mine.enqueue()).created
        await bench.until_in("dead", "x")
        assert not (await mine.enqueue()).created, "its dead letter has the id"
        again = await mine.options(on_duplicate="replace").enqueue()
        assert (again.created, again.replaced) == (False, True)
        await bench.until(lambda: bench.runs("x") == 4)
        await bench.until_in("dead", "x")
        assert await bench.queue.dead.purge(older_than=0) == 1
        assert (await mine.after(60).enqueue()).created, "purged"
        assert await bench.queue.cancel("x")
        assert (await mine.enqueue()).created, "cancelled"
        await bench.until_in("dead", "x")
    assert await bench.queue.dead.purge(older_than=0) == 1


async def test_b72_what_others_do_to_a_running_job_leaves_it_in_one_place(bench: Bench) -> None:
    finish = asyncio.Event()

    @bench.queue.task
    async def work() -> None:
        bench.note("x")
        await finish.wait()

    await work.options(job_id="x").enqueue()
    async with bench.worker():
        await bench.until(lambda: bench.runs("x") == 1)
        async with Queue(bench.queue.name, url=bench.url) as other:
            assert (await other.cancel("x")).was == "processing"
            assert (await other.reschedule("x", after=0)).was == "processing"
            assert (await other.dead.replay("x")).missing == ("x",)
            assert await other.dead.purge(older_than=0) == 0
            for way in ("keep", "replace"):
                placed = await other.stub("work").options(job_id="x", on_duplicate=way).enqueue()
                assert (placed.created, placed.replaced) == (False, False)
            assert not (await other.check()).findings
            finish.set()
            await bench.until_empty()
            assert not (await other.check()).findings
            assert (await other.stats()).dead == 0
        assert bench.runs("x") == 1


@pytest.mark.slow
async def test_b75_a_large_backlog_outlives_its_only_worker(
    valkey: ServerProcess, queue_name: str, tmp_path: Path
) -> None:
    """No more jobs are claimed than can run, so no more are held by the dead one."""
    jobs = rounds(5000)
    async with open_site(valkey, queue_name, tmp_path, concurrency=20, lease_s=1.0) as site:
        await site.write(jobs, 0.001)
        (victim,) = await site.start(1)
        await asyncio.sleep(0.2)
        killed_ms = await asyncio.to_thread(site.fleet.kill, victim)
        waiting = len((await site.state()).schedule)
        assert 0 < waiting < jobs
        await site.start(1)
        events, verdict = await site.come_to_rest()
        held = held_by(events, victim.name, killed_ms)
        assert len(held) <= 20
        assert verdict.broken() == {}, str(verdict)
        assert len(verdict.ok) == jobs
        assert set(verdict.duplicated) <= set(held)


async def test_b78_jobs_that_vanish_while_they_are_listed_are_passed_over(bench: Bench) -> None:
    jobs = rounds(1500)

    @bench.queue.task
    async def work() -> None: ...

    ids = [f"j{n}" for n in range(jobs)]
    await bench.queue.enqueue_many([work.options(job_id=job_id).job() for job_id in ids])
    async with bench.worker(concurrency=50):
        for n in itertools.count():
            listed = [*await bench.queue.peek("scheduled", limit=1000), *await bench.queue.peek("processing")]
            assert {job.state for job in listed} <= {"scheduled", "processing"}
            for job_id in (ids[n % jobs], f"never{n}", *(job.id for job in listed[:3])):
                states = {"done", "scheduled", "processing"} if job_id in ids else {"absent"}
                job = bench.queue.by_id(job_id)
                assert await job.status() in states
                assert str(await job.explain())
            if not listed:
                break
        await bench.until_empty()
    assert {await bench.queue.by_id(job_id).status() for job_id in ids[:100]} == {"done"}


async def test_b67_an_id_that_is_still_remembered_is_told_and_never_answered_with_nothing(
    bench: Bench,
) -> None:
    @bench.queue.task
    async def work() -> None:
        bench.note("x")

    async with bench.worker():
        assert (await work.options(job_id="x").enqueue()).created
        await bench.until_empty()
        again = await work.options(job_id="x").enqueue()
        assert (again.id, again.created, again.replaced) == ("x", False, False)
        assert await again.status() == "done"
        anew = await work.options(job_id="x", on_duplicate="replace").enqueue()
        assert anew.created
        await bench.until(lambda: bench.runs("x") == 2)
        await bench.until_empty()
