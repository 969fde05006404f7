"""Servers that refuse (docs/faults.md), seen by whole workers: full, busy, demoted, evicting."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, cast

import pytest
import redis.asyncio

from aiodq import Fixed, Queue, QueueFull, Worker, current_job
from aiodq.events import Event, JobSettled, LeaseMissed
from tests.conftest import MakeServer
from tests.servers import ServerProcess
from tests.shards import until

JOBS = 40


class Load:
    """A worker with jobs that end at their second run; `say` speaks to the server from beside."""

    def __init__(self, server: ServerProcess, queue: Queue) -> None:
        self.server = server
        self.queue = queue
        self.events: list[Event] = []
        self.runs: list[str] = []
        self._client = redis.asyncio.Redis(host="127.0.0.1", port=server.port, socket_timeout=20)

        @queue.task(backoff=Fixed(0.2), max_attempts=5)
        async def work(n: int) -> None:
            self.runs.append(current_job().id)
            await asyncio.sleep(0.3)
            if current_job().attempt == 1:
                raise ValueError("as asked")

    async def say(self, *command: str | int) -> Any:
        return await cast("Callable[..., Awaitable[Any]]", self._client.execute_command)(*command)

    async def put(self) -> None:
        task = self.queue.stub("work")
        await self.queue.enqueue_many([task.options(job_id=f"j{n}").job(n) for n in range(JOBS)])

    @property
    def acked(self) -> int:
        return sum(isinstance(e, JobSettled) and e.outcome == "ack" for e in self.events)

    async def all_done(self, within_s: float) -> None:
        """Each job ran twice, as it asked for, and no lease was lost."""
        await until(lambda: self.acked == JOBS, within_s)
        assert sorted(self.runs) == sorted(2 * [f"j{n}" for n in range(JOBS)])
        assert not [event for event in self.events if isinstance(event, LeaseMissed)]
        stats = await self.queue.stats()
        assert (stats.scheduled, stats.processing, stats.dead) == (0, 0, 0)
        assert not (await self.queue.check()).findings

    async def aclose(self) -> None:
        await self._client.aclose()


@contextlib.asynccontextmanager
async def open_load(server: ServerProcess, queue_name: str) -> AsyncGenerator[Load]:
    async with Queue(queue_name, url=server.url) as queue:
        load = Load(server, queue)
        async with Worker(queue, concurrency=10, lease=2, grace=3, listeners=[load.events.append]):
            await load.put()
            await until(lambda: len(load.runs) >= 15)  # some ran, some run, some wait
            yield load
        await load.aclose()


async def test_b103_with_memory_full_a_worker_claims_retries_and_finishes_all(
    make_server: MakeServer, queue_name: str
) -> None:
    """Longer than a lease; only new jobs are refused."""
    async with open_load(make_server(), queue_name) as load:
        await load.say("CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(QueueFull):
            await load.queue.stub("work").enqueue(1)
        await load.all_done(within_s=15)
        await load.say("CONFIG", "SET", "maxmemory", 0)


async def test_b106_a_workers_leases_outlive_a_busy_script(make_server: MakeServer, queue_name: str) -> None:
    """A foreign script of half a lease, with the busy limit lowered: every call is refused meanwhile."""
    source = (
        "local t = redis.call('TIME') local from = t[1] * 1000 + t[2] / 1000 "
        "repeat t = redis.call('TIME') until t[1] * 1000 + t[2] / 1000 > from + 1200"
    )
    async with open_load(make_server("--busy-reply-threshold", "50"), queue_name) as load:
        await load.say("EVAL", source, 0)
        await load.all_done(within_s=15)


async def test_b110_a_worker_goes_on_after_its_server_was_demoted_and_promoted(
    make_server: MakeServer, queue_name: str
) -> None:
    """For half a lease; without a tight loop of refused calls."""
    async with open_load(make_server(), queue_name) as load:
        await load.say("CONFIG", "RESETSTAT")
        await load.say("REPLICAOF", "127.0.0.1", 1)
        await asyncio.sleep(1.0)
        stats = cast("dict[str, dict[str, int]]", await load._client.info("commandstats"))
        assert stats.get("cmdstat_evalsha", {"calls": 0})["calls"] < 60
        began = time.monotonic()
        await load.say("REPLICAOF", "NO", "ONE")
        done = load.acked
        await until(lambda: load.acked > done, 5)
        assert time.monotonic() - began < 5
        await load.all_done(within_s=15)


async def test_b105_each_loss_by_eviction_ends_in_a_told_state(
    valkey: ServerProcess, queue_name: str
) -> None:
    """A payload, a lease and a place are evicted by hand."""
    async with Queue(queue_name, url=valkey.url) as queue:

        @queue.task
        async def work() -> None: ...

        jobs = [await work.after(3600).options(job_id=f"j{n}").enqueue() for n in range(2)]
        with valkey.client() as client:
            client.hdel(f"aiodq:{{{queue_name}}}:payload", "j0")
            client.zrem(f"aiodq:{{{queue_name}}}:schedule", "j1")
        assert "payload" in str(await jobs[0].explain())
        found = {finding.subject: finding.kind for finding in (await queue.check(repair=True)).findings}
        assert found == {"j0": "no-payload", "j1": "no-place"}
        assert not (await queue.check()).findings
        assert [await job.status() for job in jobs] == ["absent", "scheduled"]
        assert await queue.cancel("j1")


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "noeviction"])
async def test_b105_a_server_that_evicts_is_warned_of_when_a_worker_starts(
    make_server: MakeServer, queue_name: str, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Queue(queue_name, url=make_server("--maxmemory-policy", policy).url) as queue:

        @queue.task
        async def work() -> None: ...

        async with Worker(queue, grace=1):
            await work.enqueue()
            await until(lambda: bool(caplog.records) or policy == "noeviction")
            while (await queue.stats()).scheduled:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == (0 if policy == "noeviction" else 1)
    assert all(policy in message and "set it to noeviction" in message for message in told)
