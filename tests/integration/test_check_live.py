"""A check of a queue at work finds nothing and moves nothing; one of a large queue holds nobody up."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import cast

import pytest
import redis.asyncio

from aiodq import Bury, Queue, Snooze, Worker
from aiodq._core.due import Due
from aiodq._core.envelope import Envelope, encode_envelope
from aiodq._core.store import BATCH, Entry
from aiodq._redis.keys import ShardKeys
from tests.servers import ServerProcess

LARGE = int(os.environ.get("AIODQ_TEST_CHECK_JOBS", "20000"))
"""Jobs of the large queue; the figures in docs/protocol.md are of 1,000,000."""

BROKEN_EVERY = 1000


async def test_repairs_in_a_loop_beside_four_workers_find_nothing(
    server: ServerProcess, queue_name: str
) -> None:
    """Every move is one script, so a check between two of them never sees a job in halves."""
    queue = Queue(queue_name, url=server.url, defaults={"max_attempts": 5})
    runs: Counter[str] = Counter()
    chance = random.Random(5)

    @queue.task(name="t")
    async def work(name: str) -> None:
        runs[name] += 1
        await asyncio.sleep(chance.random() / 100)
        if runs[name] == 1:
            match int(name) % 5:
                case 0:
                    raise Snooze(0.01)
                case 1:
                    raise ValueError("once")
                case 2 if int(name) % 10 == 2:
                    raise Bury("enough")
                case _:
                    pass

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(queue)
        for _ in range(4):
            await stack.enter_async_context(Worker(queue, concurrency=20, lease=1))
        jobs = [work.options(job_id=f"job-{n}").after(chance.random() * 2).job(str(n)) for n in range(1500)]
        rounds = 0
        sending = asyncio.create_task(queue.enqueue_many(jobs))
        while True:
            report = await queue.check(repair=True)
            rounds += 1
            assert not report.findings, report.findings
            stats = await queue.stats()
            if sending.done() and not stats.scheduled and not stats.processing:
                break
        assert all(placed.created for placed in await sending)
        assert rounds >= 10
        retried = {str(n) for n in range(1500) if n % 5 in (0, 1)}
        assert {name for name, count in runs.items() if count == 2} == retried
        assert len(runs) == 1500
        assert sum(runs.values()) == 1500 + len(retried), "a repair must not run anything again"
        assert (await queue.stats()).dead == 150
        assert await queue.dead.purge(older_than=0) == 150


async def _fill(url: str, name: str, count: int) -> None:
    async with Queue(name, url=url) as queue:
        store = queue._stores()[0]
        body = encode_envelope(Envelope(1, "close_order"))
        for start in range(0, count, 5000):
            span = range(start, min(count, start + 5000))
            await store.enqueue([Entry(f"job-{n:07d}", body, Due(3_600_000 + n)) for n in span])


@pytest.mark.slow
@pytest.mark.leaves_keys("a large queue of waiting jobs")
async def test_a_large_queue_is_checked_in_short_steps(server: ServerProcess, queue_name: str) -> None:
    await _fill(server.url, queue_name, LARGE)
    client = redis.asyncio.Redis(host="127.0.0.1", port=server.port)
    keys = ShardKeys(queue_name)
    broken = [f"job-{n:07d}" for n in range(0, LARGE, BROKEN_EVERY)]
    await client.zrem(keys.named("schedule"), *broken)
    await client.config_set("slowlog-log-slower-than", 0)
    await client.config_set("slowlog-max-len", 1_000_000)
    await client.slowlog_reset()
    waits: list[float] = []

    async def somebody_else() -> None:
        while True:
            started = time.monotonic()
            await client.ping()
            waits.append(time.monotonic() - started)
            await asyncio.sleep(0.002)

    other = asyncio.create_task(somebody_else())
    async with Queue(queue_name, url=server.url) as queue:
        started = time.monotonic()
        report = await queue.check(repair=True)
        took_s = time.monotonic() - started
        assert report.found == {"no-place": len(broken)}
        assert report.ok
        assert report.checked == 2 * LARGE - len(broken)
        other.cancel()
        log = cast(
            "list[dict[str, object]]",
            await client.slowlog_get(1_000_000),
        )
        await client.config_set("slowlog-log-slower-than", 10_000)
        await client.slowlog_reset()
        times = sorted(
            cast("int", entry["duration"])
            for entry in log
            if cast("bytes", entry["command"]).split()[0].upper() in (b"EVALSHA", b"HSCAN", b"ZSCAN")
        )
        waits.sort()
        p50_us, p999_us, longest_us = times[len(times) // 2], times[int(len(times) * 0.999)], times[-1]
        print(
            f"{LARGE} jobs on {server.kind}: {took_s:.1f} s, {len(times)} calls, "
            f"server {sum(times) / 1e6:.2f} s, p50 {p50_us} us, p99.9 {p999_us} us, "
            f"max {longest_us} us; another client waited at most {waits[-1] * 1000:.1f} ms"
        )
        assert len(times) >= report.checked / BATCH, "a call looks at a page of about a hundred at most"
        # The tail is printed, not asserted: it tells of the machine, whose clock goes on without a core.
        assert p50_us < 2000
        assert not (await queue.check()).findings
    await client.aclose()
