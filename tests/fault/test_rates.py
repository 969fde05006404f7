"""A rate over real worker processes that are killed and stopped: nothing is lost, and it is kept."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from typing import cast

import pytest

from aiodq import Queue
from tests.conftest import RunScript
from tests.servers import ServerProcess

pytestmark = pytest.mark.slow

RATE = 50
JOBS = 250

WORKER = f"""
import asyncio, sys

import redis.asyncio

from aiodq import Queue, Rate, Worker, current_job

url, name = sys.argv[1:]
queue = Queue(name, url=url)
client = redis.asyncio.Redis.from_url(url)


@queue.task(rate=Rate({RATE}))
async def close(n: int) -> None:
    job = current_job()
    seconds, micros = await client.time()
    await client.rpush("starts-of:" + name, f"{{n}} {{seconds * 1000 + micros // 1000}} {{job.attempt}}")
    await asyncio.sleep(0.2)


async def main() -> None:
    worker = Worker(queue, grace=0.1)
    asyncio.get_running_loop().call_later(0.5, lambda: print("ready", flush=True))
    await worker.run()


asyncio.run(main())
"""


async def test_a_rate_is_kept_while_workers_die_and_are_replaced(
    valkey: ServerProcess, queue_name: str, run_script: RunScript
) -> None:
    url = valkey.url
    first = [run_script(WORKER, url, queue_name) for _ in range(3)]
    queue = Queue(queue_name, url=url)
    with valkey.client() as client:

        def starts() -> list[tuple[int, int, int]]:
            """(job, server time ms, attempt) of every start so far."""
            found = cast("list[bytes]", client.lrange(f"starts-of:{queue_name}", 0, -1))
            return [cast("tuple[int, int, int]", tuple(map(int, line.split()))) for line in found]

        async with queue:
            task = queue.stub("close")
            await queue.enqueue_many([task.job(n) for n in range(JOBS)])
            await until(lambda: len(starts()) > RATE)
            first[0].kill()
            await until(lambda: len(starts()) > 2 * RATE)
            first[1].send_signal(signal.SIGTERM)  # a deploy: what runs is stopped and given back
            run_script(WORKER, url, queue_name)
            await until(lambda: len({n for n, _, _ in starts()}) == JOBS)
            await until_empty(queue)
        told = starts()

    assert {attempt for _, _, attempt in told} == {1}, "nothing of this is a failure"
    again = len(told) - JOBS
    assert 2 <= again <= 2 * (RATE * 0.2 + 10), "what ran in the two, and nothing else"
    times = sorted(at for _, at, _ in told)
    most = max(sum(at <= other < at + 2000 for other in times) for at in times)
    assert most <= 1 + RATE * 2 + RATE * 0.2, "nor did those that ran again come on top"
    assert times[-1] - times[0] >= (len(told) - 1) / RATE * 1000 - 500


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "not within 30 s"
        await asyncio.sleep(0.02)


async def until_empty(queue: Queue) -> None:
    deadline = time.monotonic() + 30
    while (stats := await queue.stats()).scheduled or stats.processing:
        assert time.monotonic() < deadline, stats
        await asyncio.sleep(0.02)
