"""purge and trim: dead -> absent, by id or by age and count."""

from __future__ import annotations

from aiodq._core.due import NOW
from aiodq._core.settlement import Buried
from aiodq._core.store import BATCH, Entry
from tests.shards import HOUR_MS, OpenShard, Seeds


async def test_purge_removes_dead_letters_without_a_trace(shard: OpenShard, seeds: Seeds) -> None:
    assert await shard.store.purge(["nobody", seeds.buried, seeds.waiting]) == [False, True, False]
    assert await shard.state() == seeds.state.without(seeds.buried)


async def bury_many(shard: OpenShard, count: int) -> list[str]:
    """Dead letters in the order of their burials."""
    hand = await shard.listener("undertaker")
    names = [f"{n:04d}" for n in range(count)]
    await shard.store.enqueue([Entry(name, b"body", NOW) for name in names])
    while leases := (await hand.claim(BATCH)).leases:
        await hand.settle(*(Buried(lease.job_id, lease.token, b"why") for lease in leases))
        await shard.wait_ms(2)
    return names


async def test_trim_removes_the_oldest_above_the_count(shard: OpenShard) -> None:
    names = await bury_many(shard, 5)
    assert await shard.store.trim(age_ms=HOUR_MS, count=5) == 0
    assert await shard.store.trim(age_ms=HOUR_MS, count=2) == 3
    state = await shard.state()
    assert list(state.dead) == names[3:]
    assert set(state.payload) == set(state.tally) == set(names[3:])


async def test_trim_removes_what_is_older(shard: OpenShard) -> None:
    await bury_many(shard, 3)
    await shard.wait_ms(30)
    assert await shard.store.trim(age_ms=HOUR_MS, count=100) == 0
    assert await shard.store.trim(age_ms=20, count=100) == 3
    state = await shard.state()
    assert not state.dead
    assert not state.payload
    assert not state.tally


async def test_trim_leaves_all_other_places_alone(shard: OpenShard, seeds: Seeds) -> None:
    assert await shard.store.trim(age_ms=HOUR_MS, count=0) == 1
    assert await shard.state() == seeds.state.without(seeds.buried)


async def test_more_than_a_batch(shard: OpenShard) -> None:
    names = await bury_many(shard, 2 * BATCH + 7)
    assert await shard.store.purge(names[: BATCH + 1]) == [True] * (BATCH + 1)
    assert await shard.store.trim(age_ms=HOUR_MS, count=1) == BATCH + 5
    assert list((await shard.state()).dead) == names[-1:]
