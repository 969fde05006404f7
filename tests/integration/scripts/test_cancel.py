"""cancel: scheduled -> absent."""

from __future__ import annotations

from aiodq._core.due import NOW, Due
from aiodq._core.store import BATCH, Entry
from tests.shards import HOUR_MS, OpenShard, Seeds


async def test_a_waiting_job_goes_without_a_trace(shard: OpenShard, seeds: Seeds) -> None:
    assert await shard.store.cancel([seeds.retried, seeds.waiting]) == ["scheduled", "scheduled"]
    assert await shard.state() == seeds.state.without(seeds.retried, seeds.waiting)


async def test_it_says_where_each_job_was(shard: OpenShard, seeds: Seeds) -> None:
    names = ["nobody", seeds.held.job_id, seeds.buried, seeds.done]
    assert await shard.store.cancel(names) == ["absent", "processing", "dead", "done"]
    assert await shard.state() == seeds.state


async def test_the_id_is_free_at_once_and_an_unknown_one_leaves_no_mark(shard: OpenShard) -> None:
    """B64, B66."""
    await shard.store.enqueue([Entry("x", b"1", Due(HOUR_MS))])
    assert await shard.store.cancel(["x", "unknown"]) == ["scheduled", "absent"]
    placed = await shard.store.enqueue(
        [Entry("x", b"2", NOW, remember=True), Entry("unknown", b"3", NOW, True)]
    )
    assert [p.created for p in placed] == [True, True]
    hand = await shard.listener("w")
    assert {(lease.job_id, lease.payload) for lease in await hand.take(9)} == {("x", b"2"), ("unknown", b"3")}


async def test_more_than_a_batch_is_answered_in_order(shard: OpenShard) -> None:
    names = [f"{n:04d}" for n in range(BATCH + 7)]
    await shard.store.enqueue([Entry(name, b"", Due(HOUR_MS)) for name in names])
    assert await shard.store.cancel(["nobody", *names]) == ["absent"] + ["scheduled"] * len(names)
    assert not (await shard.state()).payload
