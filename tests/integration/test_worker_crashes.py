"""Jobs that take their worker down are found out and buried; the innocent beside them are not."""

from __future__ import annotations

import asyncio
import secrets

import pytest

from aiodq import Queue
from aiodq._core.store import ClaimRequest, Notice
from aiodq.events import JobRecovered, JobSettled
from tests.conftest import RunScript
from tests.servers import ServerProcess, wait_until
from tests.workers import Bench

LEASE_MS = 100


async def die_with(bench: Bench, *job_ids: str, times: int = 1) -> None:
    """Workers that claim these due jobs and die with them, one after the other."""
    bench.dead_workers = True
    for _ in range(times):
        heard: asyncio.Queue[Notice] = asyncio.Queue()
        access = bench.store.worker(f"1{secrets.token_hex(10)[:19]}", heard.put_nowait)
        ears = asyncio.create_task(access.listen())
        await heard.get()
        answer = await access.turn([], ClaimRequest(want=10, lease_ms=LEASE_MS, expected_now_us=None))
        assert answer.claim is not None
        assert sorted(lease.job_id for lease in answer.claim.leases) == sorted(job_ids)
        await access.leave(holds=True)  # its seat would let newer workers believe for a while that it looks
        ears.cancel()
        await asyncio.wait([ears])
        await access.aclose()
        await asyncio.sleep(LEASE_MS / 1000 + 0.02)


async def test_b139_after_three_crashes_a_job_is_buried_unrun(bench: Bench) -> None:
    @bench.queue.task
    async def work() -> None:
        bench.note("work")

    await work.options(job_id="x").enqueue()
    await die_with(bench, "x", times=3)
    async with bench.worker():
        await bench.until_in("dead", "x")
    assert bench.starts == []
    tally = await bench.tally("x")
    assert tally.failures == 0
    assert "died 3 times" in tally.reason
    (recovered,) = bench.told(JobRecovered)
    assert (recovered.crashes, recovered.started) == (3, False)


async def test_b175_each_recovery_is_logged_and_told(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    @bench.queue.task
    async def work() -> None:
        bench.note("work")

    await work.options(job_id="x").enqueue()
    await die_with(bench, "x")
    async with bench.worker():
        await bench.until_empty()
    assert bench.runs("work") == 1
    assert "job x (task work" in caplog.text
    assert "was recovered" in caplog.text
    assert [(event.crashes, event.started) for event in bench.told(JobRecovered)] == [(1, True)]


async def test_a_job_with_two_crashes_runs_alone(bench: Bench) -> None:
    running: set[str] = set()
    beside: dict[str, set[str]] = {}
    finish = asyncio.Event()

    @bench.queue.task
    async def work(name: str) -> None:
        beside[name] = set(running)
        running.add(name)
        bench.note(name)
        await (finish.wait() if name == "early" else asyncio.sleep(0.05))
        running.discard(name)

    await work.options(job_id="suspect").enqueue("suspect")
    await die_with(bench, "suspect", times=2)
    await work.enqueue("early")
    async with bench.worker(concurrency=10):
        await bench.until(lambda: "early" in running)
        await work.enqueue("late")
        await asyncio.sleep(0.1)
        assert bench.runs("suspect") == 0, "it waits for the others to end"
        finish.set()
        await bench.until_empty()
    assert beside["suspect"] == set()
    assert "suspect" not in beside["early"] | beside["late"]
    assert [bench.runs(name) for name in ("suspect", "early", "late")] == [1, 1, 1]


async def test_two_suspects_run_one_after_the_other(bench: Bench) -> None:
    running: set[str] = set()

    @bench.queue.task
    async def work(name: str) -> None:
        assert not running
        running.add(name)
        bench.note(name)
        await asyncio.sleep(0.02)
        running.discard(name)

    await work.options(job_id="a").enqueue("a")
    await work.options(job_id="b").enqueue("b")
    await die_with(bench, "a", "b", times=2)
    async with bench.worker():
        await bench.until_empty()
    assert [bench.runs(name) for name in "ab"] == [1, 1]
    assert [event.outcome for event in bench.told(JobSettled)] == ["release", "ack", "ack"]


async def test_a_suspect_that_cannot_be_alone_is_given_back_uncounted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiodq._worker.isolation.PATIENCE_S", 0.1)
    finish = asyncio.Event()

    @bench.queue.task
    async def work(name: str) -> None:
        bench.note(name)
        await finish.wait()

    await work.options(job_id="suspect").enqueue("suspect")
    await die_with(bench, "suspect", times=2)
    await work.enqueue("long")
    async with bench.worker():
        await bench.until(lambda: bool(bench.told(JobSettled)))
        (settled,) = bench.told(JobSettled)
        assert (settled.job_id, settled.outcome) == ("suspect", "release")
        assert bench.runs("suspect") == 0
        # Slots are given out again.
        await work.enqueue("other")
        await bench.until(lambda: bench.runs("other") == 1)
        finish.set()
        await bench.until(lambda: len(bench.told(JobSettled)) == 3)
    assert (await bench.tally("suspect")).failures == 0
    await bench.queue.cancel("suspect")


async def test_a_stop_gives_waiting_suspects_back(bench: Bench) -> None:
    @bench.queue.task
    async def work(name: str) -> None:
        bench.note(name)
        await asyncio.sleep(60)

    await work.options(job_id="suspect").enqueue("suspect")
    await die_with(bench, "suspect", times=2)
    await work.options(job_id="long").enqueue("long")
    async with bench.worker(grace=0.5):
        await bench.until(lambda: bool(bench.told(JobRecovered)))
        await bench.until(lambda: bench.runs("long") == 1)
    assert bench.runs("suspect") == 0
    for name in ("suspect", "long"):
        assert await bench.where(name) == "scheduled"
        await bench.queue.cancel(name)


PROGRAM = """
import anyio, os, sys
from aiodq import Queue, Worker

queue = Queue(sys.argv[1], url=sys.argv[2])

@queue.task(max_attempts=3)
async def deadly() -> None:
    os._exit(9)

@queue.task
async def harmless(n: int) -> None:
    await anyio.sleep(0.1)
    print(f"harmless {n}", flush=True)

print("ready", flush=True)
anyio.run(Worker(queue, lease=1, grace=1).run)
"""


async def test_b139_a_job_that_kills_its_process_each_time_is_buried_and_others_go_on(
    valkey: ServerProcess, queue_name: str, run_script: RunScript
) -> None:
    async with Queue(queue_name, url=valkey.url) as queue:
        deadly = queue.stub("deadly")
        harmless = queue.stub("harmless")
        await deadly.options(job_id="deadly").enqueue()
        for n in range(5):
            await harmless.options(job_id=f"h{n}").enqueue(n)
        processes = [run_script(PROGRAM, queue_name, valkey.url)]
        deaths = 0
        for _ in range(300):
            if processes[-1].returncode is not None:
                deaths += 1
                processes.append(run_script(PROGRAM, queue_name, valkey.url))
            stats = await queue.stats()
            if stats.dead == 1 and not stats.scheduled and not stats.processing:
                break
            await asyncio.sleep(0.05)
        assert deaths == 3
        (dead,) = await queue.dead.list()
        assert dead.id == "deadly"
        assert "died 3 times" in dead.reason
        await queue.dead.purge(older_than=0)
        processes[-1].terminate()
        wait_until(lambda: processes[-1].returncode is not None)
