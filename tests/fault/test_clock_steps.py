"""Clocks that jump by an hour: the server's while workers run, and a worker's own."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from aiodq import Queue, Worker, current_job
from aiodq._core.store import FIRST_SEAT_CAP_MS
from aiodq.events import ClockStepped, Event, LeaseMissed
from tests.conftest import RunScript, require_server
from tests.fault.clock import SteppedClock, SteppedServer
from tests.fault.events import Started
from tests.fault.site import open_site
from tests.servers import ServerProcess
from tests.shards import until

HOUR_S = 3600
JOBS = int(os.environ.get("AIODQ_TEST_CLOCK_JOBS", "400"))
"""10,000 with steps every 5 s in the figures of docs/reliability.md."""

STEP_EVERY_S = float(os.environ.get("AIODQ_TEST_CLOCK_STEP_S", "2"))
LEASE_S = 2.0
SLOW_MACHINE_S = 2.0


@pytest.fixture
def stepped(server_directory: Path, queue_name: str) -> Iterator[SteppedServer]:
    require_server("valkey")
    server = SteppedServer(server_directory / f"clock-{queue_name}")
    yield server.start()
    server.kill()
    shutil.rmtree(server.directory, ignore_errors=True)


class Steps:
    """What the server's clock showed and shows."""

    def __init__(self, server: SteppedServer) -> None:
        self._clock = server.clock
        self._steps = [(time.monotonic(), 0)]

    def to(self, offset_s: int) -> None:
        self._clock.step_to(offset_s)
        self._steps.append((time.monotonic(), offset_s))

    def latest_s(self, within_s: float) -> float:
        """The highest time that the server's clock has shown in the last `within_s` seconds."""
        now = time.monotonic()
        offsets = [
            offset
            for (_, offset), (until, _) in zip(self._steps, [*self._steps[1:], (now, 0)], strict=True)
            if until >= now - within_s
        ]
        return time.time() + max(offsets)


@pytest.mark.slow
async def test_steps_of_an_hour_lose_and_double_no_job_and_none_is_early(
    stepped: SteppedServer, queue_name: str
) -> None:
    """Three workers; jobs of 20 ms, and some of two leases, that are held over the steps."""
    dice = random.Random(1)
    steps = Steps(stepped)
    due_s: dict[str, float] = {}
    early: list[str] = []
    runs: Counter[str] = Counter()
    events: list[Event] = []
    queue = Queue(queue_name, url=stepped.url)

    @queue.task
    async def work(seconds: float) -> None:
        job_id = current_job().id
        # A claim and the start of its handler are not one moment: a step may lie between.
        if steps.latest_s(within_s=1.0) + 0.01 < due_s.get(job_id, 0):
            early.append(job_id)
        runs[job_id] += 1
        await asyncio.sleep(seconds)

    async def produce() -> None:
        for n in range(JOBS):
            plan = work.options(job_id=f"j{n}").after(dice.choice([0.0, 0.1, 1.0]))
            due_s[f"j{n}"] = (await plan.enqueue(2 * LEASE_S if n % 20 == 0 else 0.02)).due_at.timestamp()
            await asyncio.sleep(STEP_EVERY_S * 6 / JOBS if JOBS < 1000 else 0.01)

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(queue)
        for _ in range(3):
            worker = Worker(queue, concurrency=50, lease=LEASE_S, grace=5, listeners=[events.append])
            await stack.enter_async_context(worker)
        await asyncio.sleep(LEASE_S)
        producing = asyncio.create_task(produce())
        taken = 0
        while not producing.done():
            await asyncio.wait([producing], timeout=STEP_EVERY_S)
            steps.to((HOUR_S, 0, -HOUR_S, 0)[taken % 4])
            taken += 1
        await producing
        # What was written while the clock was ahead is due when it shows that time again.
        steps.to(HOUR_S)
        left_s = FIRST_SEAT_CAP_MS / 1000 + 2 * LEASE_S + 2 * SLOW_MACHINE_S
        await until(lambda: len(runs) == JOBS, left_s + JOBS / 200)
        async with asyncio.timeout(left_s):
            while (stats := await queue.stats()).scheduled or stats.processing:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert not (await queue.check()).findings
    print(f"{JOBS} jobs, {taken + 1} steps, {sum(isinstance(e, ClockStepped) for e in events)} noticed")
    assert early == []
    assert set(runs.values()) == {1}, {job: count for job, count in runs.items() if count > 1}
    assert not [event for event in events if isinstance(event, LeaseMissed)]
    assert taken >= 4
    assert any(isinstance(event, ClockStepped) for event in events)


async def test_a_step_forward_takes_no_living_workers_lease_and_calls_for_renewal(
    stepped: SteppedServer, queue_name: str
) -> None:
    finish = asyncio.Event()
    runs: list[str] = []
    events: list[Event] = []
    queue = Queue(queue_name, url=stepped.url)

    @queue.task
    async def hold() -> None:
        runs.append(current_job().id)
        await finish.wait()

    @queue.task
    async def quick() -> None:
        runs.append(current_job().id)

    async with queue, hearing(stepped, queue_name) as heard:
        # A lease so long that no renewal is due by itself.
        settings: dict[str, Any] = {"lease": 30, "grace": 2, "listeners": [events.append]}
        async with Worker(queue, **settings), Worker(queue, **settings):
            await hold.options(job_id="held").enqueue()
            await until(lambda: runs == ["held"])
            await asyncio.sleep(3.2)  # both are steady
            stepped.clock.step_to(HOUR_S)
            await quick.options(job_id="quick").enqueue()
            await until(lambda: "quick" in runs)
            await until(lambda: any(isinstance(event, ClockStepped) for event in events))
            await until(lambda: b"renew" in heard)
            now_s = time.time() + HOUR_S
            async with asyncio.timeout(SLOW_MACHINE_S):
                while (await queue._stores()[0].find(["held"]))[0].at_ms < (now_s + 20) * 1000:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await asyncio.sleep(3.2)  # steady again, after the step
            await quick.options(job_id="quick2").enqueue()
            await until(lambda: "quick2" in runs)
            finish.set()
    assert sorted(runs) == ["held", "quick", "quick2"]
    assert not [event for event in events if isinstance(event, LeaseMissed)]


@asynccontextmanager
async def hearing(server: ServerProcess, queue_name: str) -> AsyncGenerator[list[bytes]]:
    """What is published to the workers of a queue, from now on."""
    heard: list[bytes] = []
    with server.client() as client:
        listener = client.pubsub(ignore_subscribe_messages=True)
        listener.psubscribe(f"aiodq:{{{queue_name}}}:wake:*")
        get_message = cast("Callable[..., dict[str, bytes] | None]", listener.get_message)
        get_message(timeout=1)

        async def listen() -> None:
            while True:
                message = await asyncio.to_thread(get_message, timeout=0.2)
                if message is not None:
                    heard.append(message["data"])

        listening = asyncio.create_task(listen())
        yield heard
        listening.cancel()
        await asyncio.wait([listening])
        await asyncio.sleep(0.25)  # the thread's last look
        listener.close()


@pytest.mark.slow
@pytest.mark.parametrize("presence", [False, True])
async def test_after_a_step_back_a_dead_workers_jobs_are_found_all_the_same(
    stepped: SteppedServer, queue_name: str, tmp_path: Path, presence: bool
) -> None:
    """Its leases reach an hour ahead, and nobody renews them any more."""
    async with open_site(
        stepped, queue_name, tmp_path, presence=presence, lease_s=LEASE_S, concurrency=5
    ) as site:
        (victim,) = await site.start(1)
        await site.write(5, 1.0)
        held = await site.until(lambda state: len(state.processing) == 5)
        (other,) = await site.start(1)
        await asyncio.sleep(0.1)
        victim.send(signal.SIGSTOP)
        stepped.clock.step_to(-HOUR_S)
        await asyncio.to_thread(site.fleet.kill, victim)
        began = time.monotonic()
        await site.until(lambda state: not state.payload, FIRST_SEAT_CAP_MS / 1000 + 3 * LEASE_S + 5)
        print(f"presence {presence}: all ended {time.monotonic() - began:.1f} s after the kill")
        runs = Counter(event.job_id for event in site.fleet.history() if isinstance(event, Started))
        assert set(runs) == set(held.processing)
        assert max(runs.values()) <= 2
        assert other.alive


SHIFTED = """
import anyio, asyncio, sys, time
from aiodq import Queue, Worker, current_job

queue = Queue(sys.argv[1], url=sys.argv[2])

@queue.task
async def work(seconds: float) -> None:
    print("started", current_job().id, flush=True)
    await asyncio.sleep(seconds)

@queue.task
async def clock() -> None:
    print("clock", time.time(), flush=True)

async def main() -> None:
    worker = Worker(queue, lease=1, grace=2)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        while not worker.health().consuming:
            await asyncio.sleep(0.01)
        print("ready", flush=True)

anyio.run(main)
"""


@pytest.mark.slow
async def test_b131_a_workers_own_clock_takes_no_part(
    valkey: ServerProcess, queue_name: str, run_script: RunScript, tmp_path: Path
) -> None:
    """Shifted by an hour either way while it holds a job of three leases and waits for others, beside a
    worker that would take over what is not renewed."""
    clock = SteppedClock(tmp_path / "clock")
    script = run_script(SHIFTED, queue_name, valkey.url, env=clock.environment)
    taken: list[str] = []
    async with Queue(queue_name, url=valkey.url) as queue:
        work, show = queue.stub("work"), queue.stub("clock")
        other = Queue(queue_name, url=valkey.url)

        @other.task(name="work")
        async def takes(seconds: float) -> None:
            taken.append(current_job().id)

        for n, offset_s in enumerate((HOUR_S, -HOUR_S, 0)):
            await work.options(job_id=f"long{n}").enqueue(3.0)
            await asyncio.to_thread(script.wait_for, f"started long{n}")
            clock.step_to(offset_s)
            await show.enqueue()
            shown = await asyncio.to_thread(script.wait_for, "clock")
            assert abs(float(shown.split()[1]) - time.time() - offset_s) < 60, "the shift must work"
            job = await work.options(job_id=f"timed{n}").after(1.0).enqueue(0.0)
            await asyncio.to_thread(script.wait_for, f"started timed{n}")
            late_s = time.time() - job.due_at.timestamp()
            assert -0.05 <= late_s <= SLOW_MACHINE_S
            async with Worker(other, lease=1, grace=1):  # steady after a second: it would take the long job
                await asyncio.sleep(1.7)
        async with asyncio.timeout(10):
            while (stats := await queue.stats()).scheduled or stats.processing:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await other.aclose()
    assert taken == []
    starts = Counter(line for line in script.lines if line.startswith("started"))
    assert set(starts.values()) == {1}
    assert len(starts) == 6
