"""Sentinel failovers under load that lose acknowledged writes: nothing is lost whose clients are alive.

Replication is cut for a moment before the master is killed, so each failover loses everything that was
written in that moment. `AIODQ_TEST_FAILOVERS` is the number of rounds (2 by default).
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from aiodq import Queue, StoreUnavailable, Worker
from aiodq._redis import backend as redis_backend
from aiodq._redis.store import RedisStore
from aiodq.events import Event
from tests.conftest import require_server
from tests.sentinels import SentinelSet
from tests.servers import wait_until

ROUNDS = int(os.environ.get("AIODQ_TEST_FAILOVERS", "2"))
LOST_FOR_S = 0.3
"""How long before each kill nothing reaches the replicas."""

RATE = 300
"""Jobs per second."""

RESUME_S = 2.0
"""After the election of a new master, at worst."""

AROUND_S = 0.5
"""A job counts as in flight around a failover if it ran between the cut and the moment when both other nodes
follow the new master, or less than this before or after."""


@pytest.fixture(scope="module")
def sentinels(server_directory: Path) -> Iterator[SentinelSet]:
    require_server("valkey")
    group = SentinelSet(server_directory / "failovers")
    try:
        yield group.start()
    finally:
        group.stop()


class Shop:
    """A queue under load, and what became of each job.

    Attributes:
        accepted: job id -> when its enqueue returned.
        runs: job id -> (start, end) of each run.
    """

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.accepted: dict[str, float] = {}
        self.runs: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self.refused = 0
        self.stop = asyncio.Event()
        chance = random.Random(11)

        @queue.task(name="work")
        async def work(name: str) -> None:
            started = time.monotonic()
            await asyncio.sleep(chance.random() / 50)
            self.runs[name].append((started, time.monotonic()))

        self.work = work
        self.chance = chance

    async def produce(self, who: int) -> None:
        """Sends one job after another until stopped; some with an id of its own, some for later."""
        count = 0
        while not self.stop.is_set():
            count += 1
            name = f"{who}-{count}"
            plan = self.work.after(self.chance.choice([0, 0, 0.05, 0.5]))
            if count % 3 == 0:
                plan = plan.options(job_id=f"id-{name}")
            try:
                await plan.enqueue(name)
            except StoreUnavailable:
                self.refused += 1
            else:
                self.accepted[name] = time.monotonic()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), 10 / RATE)

    def first_start_after(self, moment: float) -> float | None:
        starts = [start for runs in self.runs.values() for start, _ in runs if start >= moment]
        return min(starts, default=None)

    def lost(self) -> list[str]:
        return sorted(name for name in self.accepted if not self.runs[name])


@asynccontextmanager
async def open_shop(
    url: str, name: str, *, shards: int = 1, listeners: Sequence[Callable[[Event], None]] = ()
) -> AsyncGenerator[Shop]:
    queue = Queue(name, url=url, shards=shards)
    shop = Shop(queue)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(queue)
        for _ in range(3):
            worker = Worker(queue, concurrency=20, lease=5, listeners=listeners)
            await stack.enter_async_context(worker)
        producers = [asyncio.create_task(shop.produce(n)) for n in range(10)]
        yield shop
        shop.stop.set()
        await asyncio.gather(*producers)


async def soon(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True


async def fail_over(sentinels: SentinelSet, shop: Shop) -> tuple[float, float, float]:
    """One lossy failover. Gives the moments of the cut, of the new master's election, and of the first run
    after it."""
    await asyncio.to_thread(wait_until, lambda: sentinels.online() == 2, 20)
    await asyncio.sleep(0.5)  # load, so that there is something to lose
    cut = time.monotonic()
    await asyncio.to_thread(sentinels.cut_replication)
    await asyncio.sleep(LOST_FOR_S)
    await asyncio.to_thread(sentinels.fail_over)
    elected = sentinels.elected_at
    assert await soon(lambda: shop.first_start_after(elected) is not None, 15), "no job runs any more"
    return cut, elected, shop.first_start_after(elected) or 0.0


async def settle_down(shop: Shop) -> None:
    """All producers have ended; waits until nothing is left to run."""
    shop.stop.set()
    quiet_since = time.monotonic()
    deadline = quiet_since + 30
    while time.monotonic() - quiet_since < 1.5:  # the last enqueues may just be sent again
        stats = await shop.queue.stats()
        if stats.scheduled or stats.processing:
            quiet_since = time.monotonic()
        assert time.monotonic() < deadline, stats
        await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_lossy_failovers_under_load_lose_nothing(sentinels: SentinelSet, queue_name: str) -> None:
    around: list[tuple[float, float]] = []
    delays: list[float] = []
    async with open_shop(sentinels.url, queue_name) as shop:
        for _ in range(ROUNDS):
            cut, elected, first = await fail_over(sentinels, shop)
            delays.append(first - elected)
            # Until it follows the new master, the restarted node is a second one, and Sentinels that have not
            # heard of the election yet lead clients to it: what it acknowledges is lost when it is converted.
            await asyncio.to_thread(wait_until, lambda: sentinels.online() == 2, 30)
            around.append((cut, time.monotonic()))
            await asyncio.sleep(1.0)  # jobs between two failovers
        await settle_down(shop)
        report = await shop.queue.check()
    twice = {name: runs for name, runs in shop.runs.items() if len(runs) > 1}
    store = shop.queue._connections._last
    assert store is not None
    again = store[2]
    assert isinstance(again, RedisStore)
    assert again._again is not None
    print(
        f"{ROUNDS} failovers, {len(shop.accepted)} jobs accepted, {shop.refused} refused, "
        f"{again._again.resent} enqueues sent again, {again._again.missing} of them were missing, "
        f"{len(twice)} jobs ran twice, first run {max(delays):.2f} s after the election at worst"
    )
    assert not shop.lost()
    assert again._again.missing, "no failover lost anything: the test shows nothing"
    unexplained = {
        name: [_when(moment, around) for _, moment in runs]
        for name, runs in twice.items()
        if not any(start - AROUND_S <= runs[0][1] <= end + AROUND_S for start, end in around)
    }
    assert not unexplained
    assert max(delays) < RESUME_S
    assert not report.findings


def _when(moment: float, around: Sequence[tuple[float, float]]) -> str:
    """Where a moment lies in its round, for a message."""
    started = [(start, end) for start, end in around if start <= moment] or [around[0]]
    start, end = started[-1]
    return f"{moment - start:.2f} s after the cut of round {len(started)}, over after {end - start:.2f} s"


def _never(*, url: str | None, client: object | None) -> bool:
    return False


@pytest.mark.slow
async def test_without_sending_again_the_last_enqueues_are_lost(
    sentinels: SentinelSet, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What replaying is for, and that the test above can fail."""
    monkeypatch.setattr(redis_backend, "may_fail_over", _never)
    async with open_shop(sentinels.url, queue_name) as shop:
        for _ in range(ROUNDS):
            await fail_over(sentinels, shop)
        await settle_down(shop)
    lost = shop.lost()
    print(f"{ROUNDS} failovers, {len(shop.accepted)} jobs accepted, {len(lost)} lost")
    assert lost
