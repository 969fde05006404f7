"""A cluster under load: slots that move, masters that die with acknowledged writes, masters that step down.

Replication is cut for a moment before a master is killed, so that each such failover loses what was written
in that moment. `AIODQ_TEST_FAILOVERS` is the number of rounds (2 by default).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from aiodq import Queue, Worker
from aiodq._redis import backend as redis_backend
from aiodq._redis.store import RedisStore
from tests.clusters import Cluster, ClusterNode, queue_slot
from tests.fault.test_failover import (
    AROUND_S,
    LOST_FOR_S,
    ROUNDS,
    Shop,
    open_shop,
    settle_down,
    soon,
)
from tests.servers import wait_until

Change = Callable[[Cluster, int], tuple[float, float]]

OPEN_FOR_S = 0.5
"""How long a slot stays half moved."""


def move_slowly(cluster: Cluster, slot: int) -> tuple[float, float]:
    """Moves a busy slot, key by key and with a pause in the middle, as a resharding tool does with a large
    slot. Gives the moments of its beginning and end."""
    source, target = cluster.begin_move(slot)
    began = time.monotonic()
    cluster.move_keys(slot, source, target, most=2)
    time.sleep(OPEN_FOR_S)
    while cluster.move_keys(slot, source, target, most=2):
        pass
    cluster.end_move(slot, source, target)
    return began, time.monotonic()


def move_at_once(cluster: Cluster, slot: int) -> tuple[float, float]:
    """Moves it as Valkey 9 does by itself: all of it, behind the back of its clients."""
    source = cluster.master_of(slot)
    target = next(node for node in cluster.masters() if node is not source)
    began = time.monotonic()
    source.say("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.node_id)
    wait_until(lambda: cluster.master_of(slot) is target, 10, "the slot has moved")
    return began, time.monotonic()


def step_down(cluster: Cluster, slot: int) -> tuple[float, float]:
    """The slot's master hands over to its replica and lives on, as for an upgrade."""
    heir = cluster.replica_of(cluster.master_of(slot))
    began = time.monotonic()
    heir.say("CLUSTER", "FAILOVER")
    wait_until(lambda: cluster.master_of(slot) is heir, 10, "it has handed over")
    return began, time.monotonic()


@pytest.mark.slow
@pytest.mark.parametrize("change", [move_slowly, move_at_once, step_down])
async def test_b114_a_busy_slot_on_the_move_loses_and_doubles_nothing(
    cluster: Cluster, queue_name: str, change: Change
) -> None:
    if change is move_at_once and cluster.nodes[0].kind == "redis7":
        pytest.skip("Valkey 9 and later")
    slot, delays = queue_slot(queue_name), list[float]()
    async with open_shop(cluster.url, queue_name) as shop:
        for _ in range(3):
            await asyncio.to_thread(cluster.wait_until_whole)
            await asyncio.sleep(0.5)
            _, moved = await asyncio.to_thread(change, cluster, slot)
            delays.append(await _first_run_after(shop, moved) - moved)
            await asyncio.sleep(0.5)
        await settle_down(shop)
        report = await shop.queue.check()
    twice = [name for name, runs in shop.runs.items() if len(runs) > 1]
    print(f"{len(shop.accepted)} jobs accepted, first run {max(delays):.2f} s after the move at worst")
    assert len(shop.accepted) > 300
    assert not shop.refused
    assert not shop.lost()
    assert not twice
    assert max(delays) < 2.0
    assert not report.findings


async def _lossy_failover(cluster: Cluster, shop: Shop, slot: int) -> tuple[float, float, float]:
    """Gives the moments of the cut, of the promotion, and of the first run after it."""
    await asyncio.to_thread(cluster.wait_until_whole)
    await asyncio.sleep(0.5)  # load, so that there is something to lose
    cut = time.monotonic()
    await asyncio.to_thread(cluster.cut_replication, cluster.master_of(slot))
    await asyncio.sleep(LOST_FOR_S)
    await asyncio.to_thread(cluster.fail_over, slot)
    promoted = time.monotonic()
    return cut, promoted, await _first_run_after(shop, promoted)


async def _first_run_after(shop: Shop, moment: float) -> float:
    assert await soon(lambda: shop.first_start_after(moment) is not None, 15), "no job runs any more"
    return shop.first_start_after(moment) or 0.0


@pytest.mark.slow
async def test_b112_killing_the_master_of_a_busy_slot_loses_nothing(
    cluster: Cluster, queue_name: str
) -> None:
    slot, around, delays = queue_slot(queue_name), list[tuple[float, float]](), list[float]()
    async with open_shop(cluster.url, queue_name) as shop:
        for _ in range(ROUNDS):
            cut, promoted, first = await _lossy_failover(cluster, shop, slot)
            delays.append(first - promoted)
            await asyncio.to_thread(cluster.start)
            around.append((cut, time.monotonic()))
            await asyncio.sleep(1.0)  # jobs between two failovers
        await settle_down(shop)
        report = await shop.queue.check()
        again = _store_of(shop.queue)._again
    assert again is not None
    twice = {name: runs for name, runs in shop.runs.items() if len(runs) > 1}
    print(
        f"{ROUNDS} failovers, {len(shop.accepted)} jobs accepted, {shop.refused} refused, "
        f"{again.resent} enqueues sent again, {again.missing} of them were missing, {len(twice)} jobs ran "
        f"twice, first run {max(delays):.2f} s after the promotion at worst"
    )
    assert not shop.lost()
    assert again.missing, "no failover lost anything: the test shows nothing"
    unexplained = {
        name: runs
        for name, runs in twice.items()
        if not any(start - AROUND_S <= runs[0][1] <= end + AROUND_S for start, end in around)
    }
    assert not unexplained
    assert max(delays) < 5.0
    assert not report.findings


def _never(*, url: str | None, client: object | None) -> bool:
    return False


@pytest.mark.slow
async def test_without_sending_again_a_dead_master_takes_jobs_with_it(
    cluster: Cluster, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What replaying is for, and that the test above can fail."""
    monkeypatch.setattr(redis_backend, "may_fail_over", _never)
    async with open_shop(cluster.url, queue_name) as shop:
        for _ in range(ROUNDS):
            await _lossy_failover(cluster, shop, queue_slot(queue_name))
            await asyncio.to_thread(cluster.start)
        await settle_down(shop)
    assert shop.lost()


def _store_of(queue: Queue) -> RedisStore:
    (store,) = queue._stores()
    assert isinstance(store, RedisStore)
    return store


async def test_leases_that_ran_out_while_the_slot_moved_are_still_their_holders(
    cluster: Cluster, queue_name: str
) -> None:
    """Nobody could renew meanwhile: whoever is first at the new node must not take the jobs of the living."""
    starts: list[str] = []
    done = asyncio.Event()
    queue = Queue(queue_name, url=cluster.url)

    @queue.task
    async def work(name: str) -> None:
        starts.append(name)
        await done.wait()

    slot = queue_slot(queue_name)
    async with queue, Worker(queue, lease=2, concurrency=5), Worker(queue, lease=2, concurrency=5):
        for n in range(5):
            await work.enqueue(str(n))
        assert await soon(lambda: len(starts) == 5, 5)
        await asyncio.sleep(3.5)  # both workers are steady, and could take expired leases
        source, target = await asyncio.to_thread(cluster.begin_move, slot)
        await asyncio.to_thread(cluster.move_keys, slot, source, target, 1)
        await asyncio.sleep(3)
        while await asyncio.to_thread(cluster.move_keys, slot, source, target):
            pass
        await asyncio.to_thread(cluster.end_move, slot, source, target)
        await asyncio.sleep(4.5)
        done.set()
    stats = await queue.stats()
    assert (stats.scheduled, stats.processing) == (0, 0)
    await queue.aclose()
    assert sorted(starts) == [str(n) for n in range(5)]


async def test_a_frozen_master_is_replaced(cluster: Cluster, queue_name: str) -> None:
    """Its connections stay open and say nothing; when it wakes up, it is a replica."""
    ran: list[int] = []
    queue = Queue(queue_name, url=cluster.url)

    @queue.task
    async def note(n: int) -> None:
        ran.append(n)

    slot = queue_slot(queue_name)
    async with queue, Worker(queue):
        await note.enqueue(1)
        assert await soon(lambda: ran == [1], 5)
        await asyncio.to_thread(cluster.wait_until_whole)
        old = cluster.master_of(slot)
        heir = cluster.replica_of(old)
        old.pause()
        try:
            await asyncio.to_thread(wait_until, lambda: _is_master(heir), 20)
            await note.enqueue(2)
            assert await soon(lambda: ran == [1, 2], 10)
        finally:
            old.resume()
        await asyncio.to_thread(wait_until, lambda: old.role() == "slave", 20)
        await asyncio.to_thread(cluster.wait_until_whole)
        await note.enqueue(3)
        assert await soon(lambda: ran == [1, 2, 3], 10)


def _is_master(node: ClusterNode) -> bool:
    return node.role() == "master"
