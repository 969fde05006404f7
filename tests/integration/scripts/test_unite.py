"""unite: while a job of the same name waits or runs, and its window lasts, no second one is made."""

from __future__ import annotations

import pytest

from aiodq._core.due import NOW, Due
from aiodq._core.errors import QueueFull
from aiodq._core.settlement import Acked, Buried, Deferred
from aiodq._core.store import Bounds, Entry, Placed
from aiodq._core.unique import Hold, Mode
from aiodq._memory.store import MemoryStore
from aiodq._redis.store import RedisStore
from tests.shards import HOUR_MS, MemoryShard, OpenShard, RedisShard

LATER = Due(HOUR_MS)


def job(
    job_id: str,
    *,
    name: str = "close:7",
    body: bytes = b"",
    due: Due = LATER,
    window_ms: int = 2 * HOUR_MS,
    mode: Mode = "first",
) -> Entry:
    return Entry(job_id, body or job_id.encode(), due, hold=Hold(name, window_ms, mode))


async def unite(shard: OpenShard, *entries: Entry) -> list[Placed]:
    return await shard.store.unite(entries)


async def clear(shard: OpenShard) -> None:
    await shard.store.cancel(list((await shard.state()).schedule))


async def test_the_first_job_stays_and_others_are_told_of_it(shard: OpenShard) -> None:
    [first] = await unite(shard, job("a"))
    assert (first.created, first.job_id) == (True, None)
    before = await shard.state()
    assert (
        await unite(shard, job("b", due=NOW), job("c", window_ms=1))
        == [Placed(False, False, first.due_ms, "a")] * 2
    )
    assert await shard.state() == before
    [other] = await unite(shard, job("d", name="close:8"))
    assert (other.created, other.job_id) == (True, None)
    await clear(shard)


async def test_within_one_call_the_first_counts_as_well(shard: OpenShard) -> None:
    placed = await unite(shard, job("a"), job("b"), job("c", name="x"), job("é", name="x"))
    assert [(p.created, p.job_id) for p in placed] == [(True, None), (False, "a"), (True, None), (False, "c")]
    assert set((await shard.state()).schedule) == {"a", "c"}
    await clear(shard)


async def test_the_same_job_sent_again_is_kept_as_it_is(shard: OpenShard) -> None:
    await unite(shard, job("a", mode="last"))
    before = await shard.state()
    [again] = await unite(shard, job("a", body=b"other", due=NOW, mode="last"))
    assert (again.created, again.replaced, again.job_id) == (False, False, None)
    assert await shard.state() == before
    await clear(shard)


async def test_the_last_gives_the_waiting_job_its_arguments_and_time(shard: OpenShard) -> None:
    hand = await shard.listener("w")
    await unite(shard, job("a", due=NOW, mode="last"))
    [lease] = await hand.take()
    await hand.settle(Deferred("a", lease.token, LATER, b"history"))
    now_ms = await shard.now_ms()
    [placed] = await unite(shard, job("b", body=b"new", due=Due(60_000), mode="last"))
    state = await shard.state()
    assert (placed.created, placed.replaced, placed.job_id) == (False, True, "a")
    assert 0 <= placed.due_ms - now_ms - 60_000 < 1000
    assert state.schedule == {"a": placed.due_ms}
    assert state.payload == {"a": b"new"}
    assert state.tally == {}, "counters and history start anew"
    await clear(shard)


async def test_no_time_is_later_than_the_end_of_the_first_ones_window(shard: OpenShard) -> None:
    now_ms = await shard.now_ms()
    await unite(shard, job("a", due=Due(10_000), window_ms=60_000, mode="last"))
    for n in range(3):
        [placed] = await unite(shard, job(f"b{n}", due=LATER, window_ms=9_000_000, mode="last"))
        assert placed.job_id == "a"
        assert 0 <= placed.due_ms - now_ms - 60_000 < 1000
    await clear(shard)


@pytest.mark.parametrize("mode", ["first", "last"])
async def test_beside_a_job_that_runs(shard: OpenShard, mode: Mode) -> None:
    hand = await shard.listener("w")
    await unite(shard, job("a", due=NOW, mode=mode))
    [lease] = await hand.take()
    [second] = await unite(shard, job("b", mode=mode))
    if mode == "first":
        assert second == Placed(False, False, lease.due_ms, "a")
    else:
        assert (second.created, second.job_id) == (True, None)
        [third] = await unite(shard, job("c", mode=mode))
        assert (third.replaced, third.job_id) == (True, "b"), "the new one has the name now"
    assert (await shard.state()).lease == {"a": lease.token}
    await hand.settle(Acked("a", lease.token))
    await clear(shard)


@pytest.mark.parametrize("end", ["ack", "bury", "cancel", "window"])
async def test_the_name_is_free_when_the_job_has_ended_or_its_window(shard: OpenShard, end: str) -> None:
    hand = await shard.listener("w")
    await unite(shard, job("a", due=NOW, window_ms=30 if end == "window" else HOUR_MS))
    if end == "cancel":
        await shard.store.cancel(["a"])
    elif end == "window":
        await shard.wait_ms(40)
    else:
        [lease] = await hand.take()
        await hand.settle(Acked("a", lease.token) if end == "ack" else Buried("a", lease.token, b""))
    [second] = await unite(shard, job("b"))
    assert (second.created, second.job_id) == (True, None)
    [third] = await unite(shard, job("c"))
    assert (third.created, third.job_id) == (False, "b")
    await clear(shard)
    await shard.store.purge(["a"])


async def test_names_live_no_longer_than_their_windows(shard: OpenShard) -> None:
    if not isinstance(shard, RedisShard):
        pytest.skip("memory has no lifetimes")
    key = shard.keys.named("unique").decode()
    await unite(shard, job("a", window_ms=1_000_000))
    assert 1_000_000 < await shard.client.pttl(key) <= 1_060_000
    await unite(shard, job("b", name="x", window_ms=5))
    assert await shard.client.pttl(key) > 990_000, "never shortened"
    await unite(shard, job("c", name="y", window_ms=4_000_000))
    assert await shard.client.pttl(key) > 3_990_000
    await clear(shard)


async def test_names_whose_window_has_ended_are_forgotten(shard: OpenShard) -> None:
    most = 0
    await unite(shard, job("slow", name="slow"))
    for call in range(40):
        ids = [f"{call}-{n}" for n in range(30)]
        await unite(shard, *(job(name, name=name, window_ms=1) for name in ids))
        await shard.wait_ms(2)
        await shard.store.cancel(ids)
        if isinstance(shard, RedisShard):
            length = shard.client.hlen(shard.keys.named("unique").decode())
            most = max(most, await length)
        else:
            assert isinstance(shard, MemoryShard)
            most = max(most, len(shard.data.unique))
    assert most < 1100, "of 1,200; on servers far fewer"
    if isinstance(shard, RedisShard):
        assert most < 400
    [again] = await unite(shard, job("other", name="slow"))
    assert again.job_id == "slow"
    await clear(shard)


async def test_bounds_hold_here_too(shard: OpenShard, queue_name: str) -> None:
    bounds = Bounds(jobs=1)
    if isinstance(shard, MemoryShard):
        store: MemoryStore | RedisStore = MemoryStore(shard.data, bounds)
    else:
        assert isinstance(shard.store, RedisStore)
        store = shard.store._backend.store(queue_name, fifo=shard.fifo, bounds=bounds)
    await store.unite([job("a")])
    before = await shard.state()
    with pytest.raises(QueueFull):
        await store.unite([job("b", name="x")])
    assert await shard.state() == before
    await clear(shard)
