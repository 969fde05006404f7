"""Worker processes that die, freeze or go deaf: nothing is lost, and only what a dead one held runs again."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import redis.asyncio

from aiodq import Queue
from tests.fault.events import Claimed, Event
from tests.fault.history import Verdict, check
from tests.fault.lab import rounds
from tests.fault.processes import Fleet, WorkerProcess, held_by, restarts_ms
from tests.fault.programs.settings import WorkerSettings
from tests.fault.recording import recording_producer
from tests.servers import ServerProcess
from tests.shards import RedisShard, State

pytestmark = pytest.mark.slow

STEADY_S = 3.0
"""After so long without a fault a worker may accuse others, and take expired leases."""

SLOW_MACHINE_MS = 400
"""Added to what is promised: on a busy machine a process may wait that long for the processor."""


class Site:
    """A queue with its fleet, in this test's event loop."""

    def __init__(self, server: ServerProcess, fleet: Fleet, queue: Queue) -> None:
        self.fleet = fleet
        self.queue = queue
        self.client = redis.asyncio.Redis(host="127.0.0.1", port=server.port)
        self._shard = RedisShard(cast("Any", None), self.client, queue.name, server.kind)

    async def state(self) -> State:
        return await self._shard.state()

    async def start(self, count: int) -> list[WorkerProcess]:
        return await asyncio.to_thread(self.fleet.start, count)

    async def write(self, count: int, run_s: float, *, over_s: float = 0.0) -> None:
        """Writes jobs due evenly over that time."""
        task = self.queue.stub("work")
        await self.queue.enqueue_many([task.after(over_s * n / count).job(run_s) for n in range(count)])

    async def until(self, condition: Callable[[State], bool], timeout_s: float = 60.0) -> State:
        async with asyncio.timeout(timeout_s):
            while not condition(state := await self.state()):  # noqa: ASYNC110 - the server tells no event
                await asyncio.sleep(0.02)
        return state

    async def come_to_rest(self) -> tuple[list[Event], Verdict]:
        """Waits until nothing waits or is held, and judges."""
        await self.until(lambda state: not state.schedule and not state.processing)
        await asyncio.to_thread(self.fleet.stop_all)
        events = self.fleet.history()
        return events, check(events, await self.state(), late_ms=60_000)


@asynccontextmanager
async def open_site(server: ServerProcess, queue: str, folder: Path, **settings: Any) -> AsyncGenerator[Site]:
    told = WorkerSettings(url=server.url, queue=queue, folder=str(folder), **settings)
    with Fleet(told) as fleet, recording_producer(fleet.recorder):
        site = Site(server, fleet, Queue(queue, url=server.url))
        try:
            yield site
        finally:
            await site.queue.aclose()
            await site.client.aclose()


async def test_a_killed_worker_of_three_loses_none_of_1000_jobs(
    server: ServerProcess, queue_name: str, tmp_path: Path
) -> None:
    """Its jobs restart within a second, since the others have free slots; only they run again."""
    dice = random.Random(queue_name)
    for turn in range(rounds(1)):
        async with open_site(server, f"{queue_name}-{turn}", tmp_path / str(turn)) as site:
            workers = await site.start(3)
            await asyncio.sleep(STEADY_S)
            await site.write(1000, 0.1, over_s=5.0)
            await asyncio.sleep(dice.uniform(0.5, 3.0))
            victim = dice.choice(workers)
            killed_ms = await asyncio.to_thread(site.fleet.kill, victim)
            events, verdict = await site.come_to_rest()
            held = held_by(events, victim.name, killed_ms)
            again_ms = restarts_ms(events, held, killed_ms)
            print(f"{server.kind}: held {len(held)}, restarted after {again_ms[:1]}..{again_ms[-1:]} ms")
            assert verdict.broken() == {}, str(verdict)
            assert verdict.acknowledged == len(verdict.ok) == 1000
            assert held
            assert set(verdict.duplicated) <= set(held)
            assert len(again_ms) >= len(held) - 1
            assert again_ms[-1] <= 1000 + SLOW_MACHINE_MS


async def test_without_presence_held_jobs_restart_when_their_leases_run_out(
    valkey: ServerProcess, queue_name: str, tmp_path: Path
) -> None:
    lease_s = 1.5
    async with open_site(valkey, queue_name, tmp_path, presence=False, lease_s=lease_s) as site:
        victim, _ = await site.start(2)
        await asyncio.sleep(lease_s)
        await site.write(400, 0.2)
        await asyncio.sleep(0.5)
        killed_ms = await asyncio.to_thread(site.fleet.kill, victim)
        events, verdict = await site.come_to_rest()
        held = held_by(events, victim.name, killed_ms)
        again_ms = restarts_ms(events, held, killed_ms)
        print(f"held {len(held)}, restarted after {again_ms[:1]}..{again_ms[-1:]} ms")
        assert verdict.broken() == {}, str(verdict)
        assert held
        assert set(verdict.duplicated) <= set(held)
        assert again_ms[-1] <= (lease_s + 1) * 1000 + SLOW_MACHINE_MS


async def test_a_frozen_process_and_lost_subscriptions_are_no_death(
    valkey: ServerProcess, queue_name: str, tmp_path: Path
) -> None:
    """SIGSTOP for 3 s keeps the sockets; all subscriber sockets killed, and subscribed again."""
    async with open_site(valkey, queue_name, tmp_path, concurrency=5) as site:
        frozen, deaf = await site.start(2)
        await asyncio.sleep(STEADY_S)
        await site.write(8, 6.0)
        await site.until(lambda state: len(state.processing) == 8)
        frozen.send(signal.SIGSTOP)
        began_ms = site.fleet.recorder.now_ms()
        await asyncio.sleep(3)
        frozen.send(signal.SIGCONT)
        site.fleet.note("stop", frozen.name, since_ms=began_ms)
        say = cast("Callable[..., Awaitable[object]]", site.client.execute_command)
        for _ in range(4):
            await say("CLIENT", "KILL", "TYPE", "pubsub")
            site.fleet.note("deaf")
            await asyncio.sleep(0.5)
        events, verdict = await site.come_to_rest()
        claims = [event for event in events if isinstance(event, Claimed)]
        assert {claim.worker for claim in claims} == {frozen.name, deaf.name}
        assert len(claims) == 8
        assert verdict.duplicated == []
        assert verdict.broken() == {}
