"""Faults of waking up (docs/faults.md): lost notices, dead subscriptions, earlier jobs added later."""

from __future__ import annotations

import asyncio
import logging
import random
import time

import pytest

from aiodq import Queue, Worker, current_job
from aiodq._core.store import FIRST_SEAT_CAP_MS
from aiodq._redis import ears
from tests.fault.lab import rounds
from tests.fault.line import Line, open_line
from tests.fault.proxy import Pair
from tests.servers import ServerProcess
from tests.shards import until

SLOW_MACHINE_S = 1.0


def subscribers(line: Line) -> list[Pair]:
    return [pair for pair in line.proxy._pairs if pair._subscriber]


async def test_b90_a_dead_subscription_is_noticed_and_replaced(
    valkey: ServerProcess, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A black hole: the server end lives, so claims cannot tell; the worker's own pings do."""
    monkeypatch.setattr(ears, "PING_S", 0.5)
    monkeypatch.setattr(ears, "PONG_S", 0.5)
    async with open_line(valkey, queue_name) as line:
        await line.put("first")
        await line.ended()
        before = line.proxy.stats.commands["subscribe"]
        for pair in subscribers(line):
            pair.own_gates["down"].clear()
        await line.put("unheard")
        await until(lambda: line.proxy.stats.commands["subscribe"] > before, 2 * 0.5 + 2 * SLOW_MACHINE_S)
        await line.started("unheard", within_s=SLOW_MACHINE_S)  # each subscription is followed by a look
        await line.put("heard")
        await line.started("heard", within_s=SLOW_MACHINE_S)


@pytest.mark.slow
async def test_b96_a_job_whose_notice_is_lost_runs_within_the_longest_sleep(
    valkey: ServerProcess, queue_name: str
) -> None:
    async with open_line(valkey, queue_name, lease=30) as line:
        await line.put("first")
        await line.ended()
        line.proxy.swallow_pushes = True
        enqueued = time.monotonic()
        await line.put("unheard")
        await line.started("unheard", within_s=FIRST_SEAT_CAP_MS / 1000 + SLOW_MACHINE_S)
        assert line.proxy.stats.swallowed > 0
        assert line.starts[-1][1] - enqueued > 0.5, "nobody told it"


async def test_after_a_hurt_link_a_worker_looks_though_its_notices_are_lost(
    valkey: ServerProcess, queue_name: str
) -> None:
    """Its call was answered late and on the same connection, so nothing else tells."""
    async with open_line(valkey, queue_name, lease=30) as line:
        await line.put("running", 0.1)
        await line.started("running")
        line.proxy.swallow_pushes = True
        line.proxy.hold()
        await line.put("unheard", after_s=0.5)
        await asyncio.sleep(1.5)
        line.proxy.go_on()
        await line.started("unheard", within_s=SLOW_MACHINE_S)
        assert line.proxy.stats.swallowed > 0


async def test_b93_jobs_are_on_time_after_the_subscriptions_were_killed(
    valkey: ServerProcess, queue_name: str
) -> None:
    async with open_line(valkey, queue_name) as line:
        began = time.monotonic()
        for n in range(100):
            await line.put(f"j{n}", after_s=2.0)
        written = time.monotonic()
        for pair in subscribers(line):
            pair.cut()
        await line.started(*(f"j{n}" for n in range(100)))
        starts = [at for _, at in line.starts]
        assert len(starts) == 100
        assert min(starts) >= began + 2.0 - 0.01
        assert max(starts) <= written + 2.0 + SLOW_MACHINE_S


async def test_b94_a_shorter_delay_added_later_runs_at_its_own_time(
    valkey: ServerProcess, queue_name: str
) -> None:
    """Pairs on queues of their own, so that each has a sleeping worker of its own."""
    dice = random.Random(94)
    late_s: dict[str, float] = {}
    queues = [Queue(f"{queue_name}-{n}", url=valkey.url) for n in range(25)]

    async def run() -> None:
        job = current_job()
        late_s[job.id] = job.late_by.total_seconds()

    async def pair(queue: Queue, n: int) -> None:
        task = queue.stub("run")
        long = await task.options(job_id=f"long{n}").after(50).enqueue()
        await asyncio.sleep(dice.random() * 0.2)
        await task.options(job_id=f"{queue.name}-{n}").after(dice.uniform(0.05, 0.5)).enqueue()
        await until(lambda: f"{queue.name}-{n}" in late_s, 5)
        assert await long.cancel()

    for queue in queues:
        queue.task(run)
    async with Worker(*queues, grace=1):
        for n in range(rounds(2)):
            await asyncio.gather(*(pair(queue, n) for queue in queues))
    assert len(late_s) == 25 * rounds(2)
    assert max(late_s.values()) < SLOW_MACHINE_S
    for queue in queues:
        await queue.aclose()


async def test_b98_a_short_socket_timeout_does_not_end_the_waiting(
    valkey: ServerProcess, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "aiodq")
    async with open_line(valkey, queue_name, options="?socket_timeout=0.5") as line:
        await asyncio.sleep(2.5)
        connections = line.proxy.stats.connections
        began = time.monotonic()
        await line.put("x")
        await line.started("x")
        assert line.starts[0][1] - began < 0.2 + SLOW_MACHINE_S / 2
        assert line.proxy.stats.connections == connections
        assert line.proxy.stats.commands["subscribe"] <= 2
    assert caplog.records == []
