"""The part `watch`: whoever makes something due earlier sees to it that two workers look in time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from aiodq._core.due import Due
from aiodq._core.settlement import Buried, Deferred, Released
from aiodq._core.store import ClaimRequest, Entry, Revival
from tests.shards import HOUR_MS, LEASE_MS, Hand, OpenShard, Seeds

FAR_MS = HOUR_MS


async def waiting(shard: OpenShard, *names: str) -> list[Hand]:
    """Listening workers that plan to look in an hour, the first of them a little earlier than the next."""
    hands = [await shard.listener(name) for name in names]
    now_ms = await shard.now_ms()
    for n, hand in enumerate(hands):
        await shard.poke_plan(hand.id, now_ms + FAR_MS + n)
        hand.notices.clear()
    return hands


async def test_two_workers_are_woken_for_an_earlier_job(shard: OpenShard) -> None:
    first, second, third = await waiting(shard, "a", "b", "c")
    [placed] = await shard.store.enqueue([Entry("x", b"", Due(1000))])
    state = await shard.state()
    assert state.idle[first.id] == placed.due_ms
    assert state.idle[second.id] == placed.due_ms + 100
    assert state.idle[third.id] > placed.due_ms + FAR_MS // 2
    assert 0 < (await first.hears("due")).wait_us <= 1_000_000
    assert 1_000_000 < (await second.hears("due")).wait_us <= 1_100_000
    assert third.heard("due") == []


async def test_nobody_is_woken_for_a_later_job(shard: OpenShard) -> None:
    first, second = await waiting(shard, "a", "b")
    await shard.store.enqueue([Entry("x", b"", Due(1000))])
    before = (await shard.state()).idle
    await shard.store.enqueue([Entry("y", b"", Due(2000)), Entry("z", b"", Due(HOUR_MS * 9))])
    assert (await shard.state()).idle == before
    await first.hears("due")
    await second.hears("due")
    assert len(first.heard("due")) == len(second.heard("due")) == 1


async def test_a_seat_that_looks_early_enough_counts(shard: OpenShard) -> None:
    first, second = await waiting(shard, "a", "b")
    now_ms = await shard.now_ms()
    await shard.poke_plan(first.id, now_ms + 500)
    [placed] = await shard.store.enqueue([Entry("x", b"", Due(1000))])
    await second.hears("due")
    assert (await shard.state()).idle == {first.id: now_ms + 500, second.id: placed.due_ms + 100}
    assert first.heard("due") == []


async def test_those_without_a_receiver_are_dropped(shard: OpenShard) -> None:
    first, second, third = await waiting(shard, "a", "b", "c")
    await shard.silence(first)
    [placed] = await shard.store.enqueue([Entry("x", b"", Due(1000))])
    assert (await shard.state()).idle == {second.id: placed.due_ms, third.id: placed.due_ms + 100}


async def test_the_overdue_are_woken_and_pushed_back_or_dropped(shard: OpenShard) -> None:
    blocked, dead, first, second = await waiting(shard, "blocked", "dead", "a", "b")
    now_ms = await shard.now_ms()
    await shard.poke_plan(blocked.id, now_ms - 1000)
    await shard.poke_plan(dead.id, now_ms - 500)
    await shard.silence(dead)
    [placed] = await shard.store.enqueue([Entry("x", b"", Due(1000))])
    state = await shard.state()
    now_ms = placed.due_ms - 1000
    assert state.idle == {
        first.id: placed.due_ms,
        second.id: placed.due_ms + 100,
        blocked.id: now_ms + 5000,
    }
    await blocked.hears("due")


async def test_the_living_are_woken_behind_a_crowd_of_the_dead_and_the_blocked(shard: OpenShard) -> None:
    """A host with most of the fleet is gone, and another stands still: their plans are overdue and come
    first."""
    first, second = await waiting(shard, "a", "b")
    blocked = [await shard.listener(f"blocked{n}") for n in range(7)]
    now_ms = await shard.now_ms()
    for n, hand in enumerate(blocked):
        await shard.poke_plan(hand.id, now_ms - 1000 - n)
    for n in range(10):
        await shard.poke_plan(f"dead{n}", now_ms - 2000 if n % 2 else now_ms + FAR_MS // 2)
    [placed] = await shard.store.enqueue([Entry("x", b"", Due(1000))])
    idle = (await shard.state()).idle
    pushed_ms = placed.due_ms - 1000 + 5000
    assert idle == {
        first.id: placed.due_ms,
        second.id: placed.due_ms + 100,
        **{hand.id: pushed_ms for hand in blocked},
    }


async def test_the_head_gets_a_new_look_when_those_who_had_it_turn_out_dead(shard: OpenShard) -> None:
    """A later job finds them dead: a worker that looks before that job is enough for it, not for the head."""
    first, second = await waiting(shard, "a", "b")
    await shard.store.enqueue([Entry("head", b"", Due(0))])
    now_ms = await shard.now_ms()
    for n, hand in enumerate((first, second)):
        await shard.poke_plan(hand.id, now_ms + 10_000 + n)
    await shard.poke_plan("dead1", now_ms - 300)
    await shard.poke_plan("dead2", now_ms - 300)
    [placed] = await shard.store.enqueue([Entry("later", b"", Due(HOUR_MS))])
    now_ms = placed.due_ms - HOUR_MS
    assert (await shard.state()).idle == {first.id: now_ms, second.id: now_ms + 100}


async def test_a_crowd_of_the_dead_costs_a_bounded_look(shard: OpenShard) -> None:
    now_ms = await shard.now_ms()
    for n in range(310):
        await shard.poke_plan(f"dead{n:03}", now_ms + FAR_MS + n)
    await shard.store.enqueue([Entry("x", b"", Due(1000))])
    assert len((await shard.state()).idle) == 310 - 6 - 300
    await shard.store.enqueue([Entry("y", b"", Due(100))])
    assert (await shard.state()).idle == {}


def wakes(shard: OpenShard, seeds: Seeds) -> dict[str, Callable[[], Awaitable[object]]]:
    """The scripts that make something due earlier, or leave a seat."""
    store, holder, soon = shard.store, seeds.holder, Due(1000)
    revival = Revival(seeds.buried, seeds.state.dead[seeds.buried], soon, b"")
    return {
        "enqueue": lambda: store.enqueue([Entry("x", b"", soon)]),
        "replace": lambda: store.replace([Entry(seeds.waiting, b"", soon)]),
        "reschedule": lambda: store.reschedule([(seeds.waiting, soon)]),
        "replay": lambda: store.replay([revival]),
        "retry": lambda: holder.settle(Deferred("held", seeds.held.token, soon, b"")),
        "release": lambda: holder.settle(Released("held", seeds.held.token)),
        "leave": lambda: holder.store.leave(holds=True),
        "claim": lambda: holder.ask(ClaimRequest(0, LEASE_MS)),
    }


WAKES = ("enqueue", "replace", "reschedule", "replay", "retry", "release", "leave", "claim")


@pytest.mark.parametrize("name", WAKES)
async def test_every_script_that_can_break_the_invariant_restores_it(
    shard: OpenShard, seeds: Seeds, name: str
) -> None:
    await shard.poke_plan(seeds.holder.id, None)
    if name in ("leave", "claim"):
        await shard.store.enqueue([Entry("head", b"", Due(1000))])
    first, second = await waiting(shard, "a", "b")
    await wakes(shard, seeds)[name]()
    await first.hears("due")
    await second.hears("due")
    state = await shard.state()
    head_ms = min(state.schedule.values())
    late_ms = max(head_ms, await shard.now_ms())
    assert head_ms <= state.idle[first.id] <= late_ms
    assert state.idle[second.id] == state.idle[first.id] + 100


async def test_refused_settlements_wake_nobody(shard: OpenShard, seeds: Seeds) -> None:
    first, second = await waiting(shard, "a", "b")
    before = await shard.state()
    assert (
        await seeds.holder.settle(
            Deferred("held", seeds.stale, Due(0), b""),
            Released("failing", seeds.stale),
            Buried("held", seeds.stale, b""),
        )
        == [False] * 3
    )
    assert await shard.state() == before
    assert first.heard("due") == second.heard("due") == []
