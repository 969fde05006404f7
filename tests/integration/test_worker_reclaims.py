"""A worker that claims a job again which it still has: its own lease ran out, and nobody else took it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from aiodq._core.settlement import Settlement
from aiodq._core.store import ClaimRequest, TurnAnswer
from aiodq._worker.keeper import Keeper
from aiodq._worker.running import Run
from aiodq._worker.shard import Shard
from tests.workers import Bench, runtime_of


async def test_a_job_that_ends_while_its_own_worker_claims_it_again_runs_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settlement leaves under the old lease, a moment before the new one is taken in."""
    gate = asyncio.Event()

    @bench.queue.task
    async def once() -> None:
        bench.note("x")
        await gate.wait()

    def never_due(self: Keeper, shard: Shard, asked_at: float | None) -> list[tuple[Run, str]]:
        return []

    monkeypatch.setattr(Keeper, "_due", never_due)
    async with bench.worker(lease=1, presence=False) as worker:
        (shard,) = runtime_of(worker)._shards
        real = shard.access.turn

        async def turn(
            settlements: Sequence[Settlement], claim: ClaimRequest | None, /, *, last: bool = False
        ) -> TurnAnswer:
            answer = await real(settlements, claim, last=last)
            if answer.claim is not None and any(lease.recovered for lease in answer.claim.leases):
                gate.set()
                await asyncio.sleep(0.05)
            return answer

        monkeypatch.setattr(shard.access, "turn", turn)
        await once.enqueue()
        await asyncio.wait_for(gate.wait(), 5)
        await asyncio.sleep(0.5)
        assert (await bench.store.stats()).processing == 0
        assert bench.runs("x") == 1
