"""Whoever holds leases is on the list of holders: only those on it are found when they die."""

from __future__ import annotations

import asyncio

import pytest

from tests.workers import Bench


@pytest.mark.parametrize("count", [1, 100])
async def test_a_worker_stays_listed_when_the_claim_after_its_jobs_finds_nothing(
    bench: Bench, count: int
) -> None:
    """100 jobs are one full claim: the next one leaves before these jobs have begun."""
    begun, gate = list[int](), asyncio.Event()

    @bench.queue.task
    async def wait(n: int) -> None:
        begun.append(n)
        await gate.wait()

    await bench.queue.enqueue_many([wait.job(n) for n in range(count)])
    async with bench.worker(concurrency=200, lease=30):
        await bench.until(lambda: len(begun) == count)
        await asyncio.sleep(0.1)  # for the claim after
        stats = await bench.store.stats()
        assert (stats.processing, stats.holders) == (count, 1)
        gate.set()
        await bench.until_empty()
