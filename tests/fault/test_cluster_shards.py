"""A queue of six shards in a cluster: what happens to one neither holds up the others nor loses a job."""

from __future__ import annotations

import asyncio
import time

import pytest

from aiodq._core.sharding import shard_of
from aiodq.events import Event, JobStarted
from tests.clusters import Cluster, queue_slot
from tests.fault.test_cluster import Change, move_at_once, move_slowly
from tests.fault.test_failover import AROUND_S, LOST_FOR_S, Shop, open_shop, settle_down

SHARDS = 6

ON_TIME_S = 1.0
"""How late a job of another shard may start meanwhile, on a busy machine."""


class Starts:
    """Starts of jobs by their shard: when, and how late they were. A listener of workers."""

    def __init__(self) -> None:
        self.by_shard: dict[int, list[tuple[float, float]]] = {n: [] for n in range(SHARDS)}

    def __call__(self, event: Event) -> None:
        if isinstance(event, JobStarted):
            started = time.monotonic(), event.late_by.total_seconds()
            self.by_shard[shard_of(event.job_id, SHARDS)].append(started)

    def late_between(self, shards: set[int], begin: float, end: float) -> list[float]:
        return sorted(late for shard in shards for at, late in self.by_shard[shard] if begin <= at <= end)

    async def runs_again(self, shard: int, moment: float) -> float:
        """Seconds from then until the shard's next start."""
        async with asyncio.timeout(15):
            while not (later := [at for at, _ in self.by_shard[shard] if at >= moment]):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return later[0] - moment


def masters(cluster: Cluster, queue: str) -> dict[int, int]:
    """By shard, the port of the master that serves it."""
    return {n: cluster.master_of(queue_slot(queue, n)).port for n in range(SHARDS)}


async def test_six_shards_are_on_all_three_masters_and_all_run(cluster: Cluster, queue_name: str) -> None:
    starts = Starts()
    async with open_shop(cluster.url, queue_name, shards=SHARDS, listeners=[starts]) as shop:
        assert len(set(masters(cluster, queue_name).values())) == 3
        await asyncio.sleep(2)
        await settle_down(shop)
    assert not shop.lost()
    assert all(len(found) > 20 for found in starts.by_shard.values())


@pytest.mark.slow
@pytest.mark.parametrize("change", [move_slowly, move_at_once])
async def test_a_busy_shard_on_the_move_loses_nothing_and_the_others_stay_on_time(
    cluster: Cluster, queue_name: str, change: Change
) -> None:
    if change is move_at_once and cluster.nodes[0].kind == "redis7":
        pytest.skip("Valkey 9 and later")
    starts, moving = Starts(), 2
    async with open_shop(cluster.url, queue_name, shards=SHARDS, listeners=[starts]) as shop:
        await asyncio.to_thread(cluster.wait_until_whole)
        await asyncio.sleep(1)
        began, moved = await asyncio.to_thread(change, cluster, queue_slot(queue_name, moving))
        again_s = await starts.runs_again(moving, moved)
        await asyncio.sleep(0.5)
        await settle_down(shop)
        report = await shop.queue.check()
    late = starts.late_between(set(range(SHARDS)) - {moving}, began, moved + again_s)
    print(
        f"{len(shop.accepted)} jobs, others {late[-1]:.3f} s late at most, it runs again {again_s:.2f} s on"
    )
    assert not shop.lost()
    assert not _twice(shop)
    assert len(late) > 10
    assert late[-1] < ON_TIME_S
    assert again_s < 2.0
    assert not report.findings


@pytest.mark.slow
async def test_killing_the_master_of_a_busy_shard_loses_nothing_and_the_others_stay_on_time(
    cluster: Cluster, queue_name: str
) -> None:
    starts = Starts()
    async with open_shop(cluster.url, queue_name, shards=SHARDS, listeners=[starts]) as shop:
        await asyncio.to_thread(cluster.wait_until_whole)
        await asyncio.sleep(1)
        served = masters(cluster, queue_name)
        struck, elsewhere = (
            {n for n, port in served.items() if (port == served[2]) is there} for there in (True, False)
        )
        slot, cut = queue_slot(queue_name, 2), time.monotonic()
        await asyncio.to_thread(cluster.cut_replication, cluster.master_of(slot))
        await asyncio.sleep(LOST_FOR_S)
        await asyncio.to_thread(cluster.fail_over, slot)
        promoted = time.monotonic()
        again_s = max([await starts.runs_again(shard, promoted) for shard in sorted(struck)])
        await asyncio.to_thread(cluster.start)
        whole = time.monotonic()
        await asyncio.sleep(1)
        await settle_down(shop)
        report = await shop.queue.check()
    late = starts.late_between(elsewhere, cut, whole)
    unexplained = [
        name for name, ended in _twice(shop).items() if not cut - AROUND_S <= ended <= whole + AROUND_S
    ]
    print(
        f"{len(shop.accepted)} jobs, {len(_twice(shop))} ran twice, shards elsewhere {late[-1]:.3f} s late "
        f"at most, those that were struck run again {again_s:.2f} s after the promotion"
    )
    assert elsewhere
    assert not shop.lost()
    assert not unexplained
    assert len(late) > 10
    assert late[-1] < ON_TIME_S
    assert again_s < 5.0
    assert not report.findings


def _twice(shop: Shop) -> dict[str, float]:
    """Jobs that ran more than once, and when the first run ended."""
    return {name: runs[0][1] for name, runs in shop.runs.items() if len(runs) > 1}
