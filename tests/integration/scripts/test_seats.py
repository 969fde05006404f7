"""claim, for who finds nothing: how long to sleep, and who answers for the head (`idle`)."""

from __future__ import annotations

import pytest

from aiodq._core.due import Due
from aiodq._core.store import ClaimRequest, Entry
from tests.shards import HOUR_MS, LEASE_MS, Hand, OpenShard


async def waiting(shard: OpenShard, due_ms: int = 5000) -> int:
    """One job that is due in a while; returns its due time."""
    [placed] = await shard.store.enqueue([Entry("later", b"", Due(due_ms))])
    return placed.due_ms


async def test_the_first_sleeps_until_the_head_and_a_second_100_ms_longer(shard: OpenShard) -> None:
    due_ms = await waiting(shard)
    first, second, third = [await shard.listener(name) for name in ("first", "second", "third")]
    answer = await first.claim(1)
    assert answer.seat == 1
    assert answer.wait_us == due_ms * 1000 - answer.now_us
    answer = await second.claim(1)
    assert answer.seat == 2
    assert answer.wait_us == (due_ms + 100) * 1000 - answer.now_us
    answer = await third.ask(ClaimRequest(1, LEASE_MS, far=1.25))
    assert answer.seat == 0
    now_ms = answer.now_us // 1000
    assert answer.wait_us == (now_ms + 12_500) * 1000 - answer.now_us
    assert (await shard.state()).idle == {
        first.id: due_ms,
        second.id: due_ms + 100,
        third.id: now_ms + 12_500,
    }


async def test_a_seat_lasts_ten_seconds_at_most(shard: OpenShard) -> None:
    await waiting(shard, 300 * 365 * 86_400_000)
    hand = await shard.listener("w")
    answer = await hand.claim(1)
    assert answer.seat == 1
    assert answer.wait_us is not None
    assert 9_999_000 < answer.wait_us <= 10_000_000
    plan_ms = answer.now_us // 1000 + 10_000
    assert (await shard.state()).idle == {hand.id: plan_ms}


async def test_the_head_may_be_a_lease(shard: OpenShard) -> None:
    await shard.store.enqueue([Entry("a", b"", Due(0))])
    holder, hand = await shard.listener("holder"), await shard.listener("w")
    await holder.take(1, 3000)
    await waiting(shard, 9000)
    deadline_ms = (await shard.state()).processing["a"]
    answer = await hand.claim(1)
    assert (answer.seat, answer.wait_us) == (1, deadline_ms * 1000 - answer.now_us)


async def test_a_deputy_of_a_later_job_is_no_first_seat(shard: OpenShard) -> None:
    """The two counts must differ: a plan just after the head leaves the first seat free."""
    due_ms = await waiting(shard)
    hand, other = await shard.listener("w"), await shard.listener("other")
    await shard.poke_plan(other.id, due_ms + 60)
    answer = await hand.claim(1)
    assert answer.seat == 1
    assert (await shard.state()).idle[hand.id] == due_ms


@pytest.mark.parametrize(("late_ms", "seat"), [(50, 2), (2000, 1)])
async def test_a_worker_that_is_overdue_holds_no_seat(shard: OpenShard, late_ms: int, seat: int) -> None:
    await waiting(shard)
    hand, other = await shard.listener("w"), await shard.listener("other")
    await shard.poke_plan(other.id, await shard.now_ms() - late_ms)
    assert (await hand.claim(1)).seat == seat


async def test_far_looks_grow_with_the_number_of_waiting_workers(shard: OpenShard) -> None:
    due_ms = await waiting(shard)
    hand = await shard.listener("w")
    for n in range(20):
        await shard.poke_plan(f"other{n:02d}", due_ms + n)
    answer = await hand.ask(ClaimRequest(1, LEASE_MS, far=1.5))
    assert answer.seat == 0
    assert (await shard.state()).idle[hand.id] == answer.now_us // 1000 + 60_000


async def seat_of(shard: OpenShard, hand: Hand) -> int | None:
    return (await shard.state()).idle.get(hand.id)


async def test_a_worker_that_looks_again_changes_its_plan(shard: OpenShard) -> None:
    due_ms = await waiting(shard)
    hand = await shard.listener("w")
    assert (await hand.claim(1)).seat == 1
    assert (await hand.claim(1)).seat == 1
    await shard.store.reschedule([("later", Due(due_ms + 1000, relative=False))])
    assert (await hand.claim(1)).seat == 1
    assert await seat_of(shard, hand) == due_ms + 1000


async def test_a_full_worker_leaves_and_wakes_somebody_for_the_head(shard: OpenShard) -> None:
    hand, other = await shard.listener("w"), await shard.listener("other")
    await hand.claim(1)
    await other.claim(1)
    other.notices.clear()
    await shard.store.enqueue([Entry("due", b"", Due(0))])
    await waiting(shard, 4000)
    answer = await hand.claim(1)
    assert len(answer.leases) == 1
    assert answer.wait_us is None
    state = await shard.state()
    assert set(state.idle) == {other.id}
    assert state.idle[other.id] <= state.schedule["later"]
    await other.hears("due")


async def test_want_0_gives_nothing_leaves_the_seat_and_wakes_somebody(shard: OpenShard) -> None:
    due_ms = await waiting(shard, 4000)
    hand, other, third = [await shard.listener(name) for name in ("w", "x", "y")]
    for each in (hand, other, third):
        await each.claim(1)
    await shard.poke_plan(other.id, due_ms + HOUR_MS)
    await shard.poke_plan(third.id, due_ms + HOUR_MS + 1)
    answer = await hand.claim(0)
    assert (answer.leases, answer.wait_us, answer.seat) == ([], None, 0)
    assert (await shard.state()).idle == {other.id: due_ms, third.id: due_ms + 100}
    notice = await other.hears("due")
    assert 0 < notice.wait_us <= 4_000_000
    assert (await third.hears("due")).wait_us > notice.wait_us


async def test_want_0_with_due_jobs_leaves_them_there(shard: OpenShard) -> None:
    hand, other = await shard.listener("w"), await shard.listener("other")
    await other.claim(1)
    await shard.store.enqueue([Entry("due", b"", Due(0))])
    await other.hears("due")
    other.notices.clear()
    await shard.poke_plan(other.id, await shard.now_ms() + HOUR_MS)
    answer = await hand.claim(0)
    assert (answer.leases, answer.wait_us) == ([], None)
    assert (await other.hears("due")).wait_us == 0
    assert list((await shard.state()).schedule) == ["due"]


async def test_a_deaf_worker_takes_no_seat(shard: OpenShard) -> None:
    await waiting(shard, 300)
    hand = shard.hand("deaf")
    answer = await hand.claim(1)
    assert (answer.deaf, answer.seat) == (True, 0)
    assert answer.wait_us is not None
    assert 0 < answer.wait_us <= 300_000
    assert (await shard.state()).idle == {}
