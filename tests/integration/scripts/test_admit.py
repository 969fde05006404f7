"""admit: a bucket's time is given away once, in the order of the calls, and forgotten when it has passed."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import cast

import pytest

from aiodq._core.rate import FARTHEST_US, Booking
from tests.shards import MemoryShard, OpenShard, RedisShard, Seeds

SECOND_US = 1_000_000
LONG_US = 60 * SECOND_US


async def kept(shard: OpenShard) -> dict[str, int]:
    """Buckets as they are stored: up to when their time is given away."""
    if isinstance(shard, RedisShard):
        found = await cast(
            "Awaitable[dict[bytes, bytes]]", shard.client.hgetall(shard.keys.named("rate").decode())
        )
        return {bucket.decode(): int(until) for bucket, until in found.items()}
    assert isinstance(shard, MemoryShard)
    return shard.data.rate


async def test_a_bucket_is_free_from_now_on_and_then_from_its_last_booking(shard: OpenShard) -> None:
    hand, other = shard.hand("w1"), shard.hand("w2")
    first = await hand.store.admit([Booking("close", LONG_US)])
    assert first.begins_us == [first.now_us]
    assert abs(first.now_us - await shard.now_us()) < SECOND_US
    second = await other.store.admit([Booking("close", 5)])
    third = await hand.store.admit([Booking("close", LONG_US)])
    assert second.begins_us == [first.now_us + LONG_US]
    assert third.begins_us == [first.now_us + LONG_US + 5]
    assert await kept(shard) == {"close": first.now_us + 2 * LONG_US + 5}


async def test_buckets_do_not_touch_each_other(shard: OpenShard) -> None:
    hand = shard.hand("w")
    await hand.store.admit([Booking("close:a", LONG_US)])
    booked = await hand.store.admit([Booking(name, 7) for name in ("close:a", "close:é", "ship")])
    assert booked.begins_us[0] > booked.now_us
    assert booked.begins_us[1:] == [booked.now_us] * 2


async def test_time_that_has_passed_is_not_given_away_later(shard: OpenShard) -> None:
    hand = shard.hand("w")
    first = await hand.store.admit([Booking("close", 20_000)])
    await shard.wait_ms(30)
    second = await hand.store.admit([Booking("close", 20_000)])
    assert second.now_us >= first.now_us + 30_000
    assert second.begins_us == [second.now_us]


async def test_bookings_end_where_numbers_are_exact(shard: OpenShard) -> None:
    hand = shard.hand("w")
    await hand.store.admit([Booking("close", FARTHEST_US)])
    booked = await hand.store.admit([Booking("close", FARTHEST_US)])
    assert booked.begins_us == [FARTHEST_US]
    assert await kept(shard) == {"close": FARTHEST_US}


async def test_jobs_are_left_alone(shard: OpenShard, seeds: Seeds) -> None:
    before = await shard.state()
    await seeds.holder.store.admit([Booking("close", 5)])
    assert await shard.state() == before


async def test_no_booking_is_no_question(shard: OpenShard) -> None:
    assert (await shard.hand("w").store.admit([])).begins_us == []
    assert await kept(shard) == {}


async def test_the_key_lives_as_long_as_the_farthest_booking(shard: OpenShard) -> None:
    if not isinstance(shard, RedisShard):
        pytest.skip("memory has no lifetimes")
    key, hand = shard.keys.named("rate").decode(), shard.hand("w")
    await hand.store.admit([Booking("a", 1000 * SECOND_US)])
    assert 1_000_000 < await shard.client.pttl(key) <= 1_060_000 + 1
    await hand.store.admit([Booking("b", SECOND_US)])
    assert await shard.client.pttl(key) > 990_000, "never shortened"
    await hand.store.admit([Booking("a", 4000 * SECOND_US)])
    assert await shard.client.pttl(key) > 4_990_000


async def test_buckets_whose_time_has_passed_are_forgotten(shard: OpenShard) -> None:
    """A rate for each of many tenants leaves about as many buckets as are in use at a time."""
    hand, most = shard.hand("w"), 0
    await hand.store.admit([Booking("slow", LONG_US)])
    for call in range(60):
        await hand.store.admit([Booking(f"tenant:{call}:{n}", 1) for n in range(100)])
        await shard.wait_ms(1)
        most = max(most, len(await kept(shard)))
    assert most < 1500, "of 6,000"
    assert "slow" in await kept(shard)


async def test_a_paused_queue_answers(shard: OpenShard) -> None:
    await shard.store.pause("why")
    assert (await shard.hand("w").store.admit([Booking("close", 5)])).begins_us
    await shard.store.resume()
