"""Bounds of a store: a batch that would go beyond them is refused before anything is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aiodq._core.due import Due
from aiodq._core.errors import QueueFull
from aiodq._core.settlement import Buried
from aiodq._core.store import Bounds, Entry, Store
from aiodq._memory import MemoryBackend
from aiodq._memory.store import MemoryStore
from aiodq._redis.backend import RedisBackend
from aiodq._redis.store import RedisStore
from tests.shards import HOUR_MS, MemoryShard, OpenShard, RedisShard, Seeds

LATER = Due(HOUR_MS)

MakeStore = Callable[[Bounds], Store]


@pytest.fixture
def bounded(shard: OpenShard, queue_name: str) -> MakeStore:
    """A store of the same shard with bounds."""

    def make(bounds: Bounds) -> Store:
        if isinstance(shard, MemoryShard):
            return MemoryStore(shard.data, bounds)
        assert isinstance(shard, RedisShard)
        assert isinstance(shard.store, RedisStore)
        return shard.store._backend.store(queue_name, fifo=shard.fifo, bounds=bounds)

    return make


def jobs(*names: str, size: int = 1) -> list[Entry]:
    return [Entry(name, b"x" * size, LATER) for name in names]


async def test_a_batch_that_fits_is_written_and_one_job_more_is_refused_whole(
    shard: OpenShard, bounded: MakeStore
) -> None:
    store = bounded(Bounds(jobs=3))
    assert [p.created for p in await store.enqueue(jobs("a", "b", "c"))] == [True] * 3
    before = await shard.state()
    with pytest.raises(QueueFull, match=r"3 jobs that wait or run.*Backlog\(max_jobs=3\).*nothing"):
        await store.enqueue(jobs("d"))
    await shard.store.cancel(["a"])
    with pytest.raises(QueueFull, match="max_jobs=3"):
        await store.enqueue(jobs("d", "e"))
    with pytest.raises(QueueFull, match="max_jobs=3"):
        await store.replace(jobs("d", "e"))
    assert await shard.state() == before.without("a")
    assert (await store.replace(jobs("d")))[0].created
    await shard.store.cancel(["b", "c", "d"])


async def test_what_is_there_already_needs_no_room(shard: OpenShard, bounded: MakeStore) -> None:
    store = bounded(Bounds(jobs=2))
    await store.enqueue(jobs("a", "b"))
    assert [p.created for p in await store.enqueue(jobs("a", "b"))] == [False] * 2
    assert [p.replaced for p in await store.replace(jobs("a"))] == [True]
    with pytest.raises(QueueFull):
        await store.enqueue(jobs("a", "c"))
    await shard.store.cancel(["a", "b"])


async def test_jobs_that_run_count_and_dead_letters_do_not(
    shard: OpenShard, seeds: Seeds, bounded: MakeStore
) -> None:
    """Seeded are two that wait, two that run, and a dead letter."""
    with pytest.raises(QueueFull, match="has 4 jobs"):
        await bounded(Bounds(jobs=4)).enqueue(jobs("a"))
    store = bounded(Bounds(jobs=5))
    assert (await store.enqueue(jobs("a")))[0].created
    assert await seeds.holder.settle(Buried("held", seeds.held.token, b""))
    assert (await store.enqueue(jobs("b")))[0].created


async def test_others_without_bounds_are_not_held_up(shard: OpenShard, bounded: MakeStore) -> None:
    store = bounded(Bounds(jobs=1))
    await store.enqueue(jobs("a"))
    assert (await shard.store.enqueue(jobs("b")))[0].created
    with pytest.raises(QueueFull, match="has 2 jobs"):
        await store.enqueue(jobs("c"))
    await shard.store.cancel(["a", "b"])


async def test_payload_bytes_are_bounded(shard: OpenShard, bounded: MakeStore) -> None:
    """A server counts what its memory holds of them: about the bytes, and some overhead for each."""
    store = bounded(Bounds(bytes=1_000_000))
    await store.enqueue(jobs(*(f"j{n}" for n in range(40)), size=10_000))
    before = await shard.state()
    with pytest.raises(QueueFull, match=r"bytes of payloads.*Backlog\(max_bytes=1,000,000\)"):
        await store.enqueue(jobs(*(f"k{n}" for n in range(20)), size=40_000))
    assert await shard.state() == before
    await store.enqueue(jobs(*(f"k{n}" for n in range(40)), size=10_000))
    with pytest.raises(QueueFull):
        await store.enqueue(jobs("l", size=400_000))
    await shard.store.cancel([f"{letter}{n}" for letter in "jk" for n in range(40)])
    assert (await store.enqueue(jobs("l", size=400_000)))[0].created
    await shard.store.cancel(["l"])


async def test_callers_that_share_a_call_share_the_room(shard: OpenShard, bounded: MakeStore) -> None:
    """The first ones get what there is; what belongs to one caller stays together."""
    store = bounded(Bounds(jobs=10))
    await store.enqueue(jobs("a"))

    async def put(*names: str) -> bool:
        try:
            await store.enqueue(jobs(*names))
        except QueueFull:
            return False
        return True

    first = asyncio.create_task(put("b"))  # on its way while the others gather
    await asyncio.sleep(0)
    callers = [put(f"c{n}", f"d{n}") for n in range(10)]
    took = await asyncio.gather(first, *callers)
    state = await shard.state()
    assert took.count(True) == 5, took
    assert len(state.schedule) == 10
    for n in range(10):
        assert (f"c{n}" in state.schedule) == (f"d{n}" in state.schedule)
    await shard.store.cancel(list(state.schedule))


async def test_a_repeat_of_a_sender_with_bounds_is_not_taken_for_one_without(
    shard: OpenShard, bounded: MakeStore
) -> None:
    """Both stores of one process write side by side: the server must not mix up whose call is whose."""
    store = bounded(Bounds(jobs=1000))

    async def one(n: int) -> None:
        await asyncio.gather(store.enqueue(jobs(f"a{n}")), shard.store.enqueue(jobs(f"b{n}")))

    await asyncio.gather(*(one(n) for n in range(50)))
    state = await shard.state()
    assert len(state.schedule) == 100
    await shard.store.cancel(list(state.schedule))


def test_the_same_store_is_given_for_the_same_bounds() -> None:
    backend = MemoryBackend()
    assert backend.store("q", bounds=Bounds(jobs=1)) is backend.store("q", bounds=Bounds(jobs=1))
    assert backend.store("q") is not backend.store("q", bounds=Bounds(jobs=1))
    assert backend.store("q").shard is backend.store("q", bounds=Bounds(jobs=1)).shard
    redis = RedisBackend(url="redis://127.0.0.1:1/0")
    assert redis.store("q", bounds=Bounds(jobs=1)) is redis.store("q", bounds=Bounds(jobs=1))
