"""One job at a time of each key, over real worker processes that are killed, frozen and cut off.

What must not overlap are runs under live leases. A frozen process loses its lease and goes on with its code
when it wakes up: no limit can stop that, the fence tells it.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections import defaultdict
from typing import cast

import pytest

from aiodq import Queue
from tests.conftest import RunScript
from tests.servers import ScriptProcess, ServerProcess

pytestmark = pytest.mark.slow

KEYS = 6
JOBS = 720
LEASE_S = 1.0

WORKER = f"""
import asyncio, sys

import redis.asyncio

from aiodq import MaxRunning, Queue, Worker, current_job

url, name = sys.argv[1:]
queue = Queue(name, url=url)
client = redis.asyncio.Redis.from_url(url)


async def now() -> int:
    seconds, micros = await client.time()
    return seconds * 1000 + micros // 1000


@queue.task(max_running=MaxRunning(1, key="key"))
async def visit(key: str, n: int) -> None:
    fence = current_job().fence
    await client.rpush("log-of:" + name, f"{{key}} {{n}} {{fence}} start {{await now()}}")
    await asyncio.sleep(0.1)
    await client.rpush("log-of:" + name, f"{{key}} {{n}} {{fence}} end {{await now()}}")


async def main() -> None:
    worker = Worker(queue, lease={LEASE_S}, grace=0.5, concurrency=8)
    asyncio.get_running_loop().call_later(0.5, lambda: print("ready", flush=True))
    await worker.run()


asyncio.run(main())
"""


async def test_runs_of_one_key_never_overlap_while_workers_die(
    valkey: ServerProcess, queue_name: str, run_script: RunScript
) -> None:
    url = valkey.url
    workers = [run_script(WORKER, url, queue_name) for _ in range(4)]
    killed = 0
    frozen: list[tuple[float, float]] = []
    at = 0
    queue = Queue(queue_name, url=url)
    async with queue:
        task = queue.stub("visit")
        jobs = [task.job(str(n % KEYS), n) for n in range(JOBS)]
        await queue.enqueue_many(jobs)
        deadline = time.monotonic() + 60
        while (stats := await queue.stats()).scheduled or stats.processing:
            assert time.monotonic() < deadline, f"stuck: {stats}"
            await asyncio.sleep(0.5)
            if killed < 6:
                at, killed = killed % 4, killed + 1
                workers[at].kill()
                workers[at] = run_script(WORKER, url, queue_name)
            if killed in (2, 4, 6) and len(frozen) < killed / 2:
                await _freeze(workers[(at + 1) % 4], frozen)
        report = await queue.check()
    with valkey.client() as client:
        lines = [
            line.decode().split()
            for line in cast("list[bytes]", client.lrange(f"log-of:{queue_name}", 0, -1))
        ]
        left = [client.zcard(f"aiodq:{{{queue_name}}}:{key}") for key in ("permits", "waiting")]

    assert not _overlaps(lines, frozen)
    assert {int(n) for _, n, _, what, _ in lines if what == "end"} == set(range(JOBS))
    assert not report.findings
    assert left[0] <= killed * 8, "permits of jobs whose worker died before it could say that they ended"
    assert (killed, len(frozen)) == (6, 3)


async def _freeze(worker: ScriptProcess, frozen: list[tuple[float, float]]) -> None:
    """Longer than a lease, so that its jobs are taken over; it wakes up in the middle of them."""
    began = time.time() * 1000
    worker.send_signal(signal.SIGSTOP)
    await asyncio.sleep(LEASE_S + 0.8)
    worker.send_signal(signal.SIGCONT)
    frozen.append((began, time.time() * 1000))


def _overlaps(lines: list[list[str]], frozen: list[tuple[float, float]]) -> list[str]:
    """Runs of one key that began while another one was under way. A run without an end was killed with its
    worker, and one of an older fence than the newest of its job had lost its lease: they end there."""
    runs: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    began: dict[tuple[str, str, str], int] = {}
    newest: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for key, n, fence, what, at in lines:
        if what == "start":
            began[key, n, fence] = int(at)
            newest[n].append((int(fence), int(at)))
    for key, n, fence, what, at in lines:
        if what == "end":
            later = [start for other, start in newest[n] if other > int(fence)]
            end = min([int(at), *later])
            runs[key].append((began[key, n, fence], end, int(n)))
    found: list[str] = []
    for key, spans in runs.items():
        spans.sort()
        for (start, stop, one), (other, _, two) in itertools.pairwise(spans):
            thawed = any(a <= start <= b or a <= other <= b for a, b in frozen)
            if other < stop - 5 and one != two and not thawed:
                found.append(f"key {key}: job {one} from {start} to {stop}, job {two} from {other}")
    return found
