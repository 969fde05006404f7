"""Slots of several queues: weights, priorities, limits, lending."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiodq._worker.slots import Limit, Portion, Slots


def test_one_queue_may_have_all() -> None:
    portion = Slots(10).portion()
    assert portion.grant(100) == 10
    portion.take(4)
    assert portion.grant(100) == 6
    assert portion.grant(3) == 3


def test_a_queue_alone_in_wanting_is_lent_everything() -> None:
    slots = Slots(10)
    a, b = slots.portion(), slots.portion(weight=9)
    a.waits = True
    assert a.grant(100) == 10
    assert b.taken == 0


def test_queues_that_want_share_by_weight() -> None:
    slots = Slots(12)
    a, b = slots.portion(weight=1), slots.portion(weight=3)
    a.waits = b.waits = True
    assert a.grant(100) == 3
    a.take(3)
    a.waits = False
    assert b.grant(100) == 9


def test_a_queue_below_its_share_gets_the_slots_that_come_free() -> None:
    slots = Slots(10)
    flooded, small = slots.portion(), slots.portion()
    flooded.take(10)
    flooded.waits = small.waits = True
    flooded.give_back(1)
    assert flooded.grant(100) == 0
    assert small.grant(100) == 1


def test_a_higher_priority_goes_first() -> None:
    slots = Slots(10)
    low, high = slots.portion(weight=100), slots.portion(priority=1)
    low.waits = high.waits = True
    assert low.grant(100) == 0
    assert high.grant(100) == 10
    high.waits = False
    assert low.grant(100) == 10


def test_a_queue_at_its_limit_takes_no_slots_from_others() -> None:
    slots = Slots(10)
    limit = Limit(2)
    capped, other = slots.portion(limit=limit), slots.portion()
    assert capped.grant(100) == 2
    capped.take(2)
    capped.waits = True
    assert capped.grant(100) == 0
    assert other.grant(100) == 8


def test_shards_of_one_queue_share_its_limit() -> None:
    slots = Slots(10)
    limit = Limit(3)
    a, b = slots.portion(limit=limit), slots.portion(limit=limit)
    a.take(2)
    assert b.grant(100) == 1


def test_closed_slots_are_given_to_nobody() -> None:
    slots = Slots(10)
    portion = slots.portion()
    slots.closed = True
    assert portion.grant(100) == 0


@given(
    count=st.integers(1, 50),
    weights=st.lists(st.integers(1, 1000), min_size=1, max_size=8),
    order=st.randoms(use_true_random=False),
)
def test_somebody_who_wants_always_gets_on_and_nobody_gets_too_much(
    count: int, weights: list[int], order: object
) -> None:
    slots = Slots(count)
    portions = [slots.portion(weight=weight) for weight in weights]
    for portion in portions:
        portion.waits = True
    while slots.free:
        before = slots.free
        for portion in portions:
            granted = portion.grant(100)
            assert 0 <= granted <= slots.free
            portion.take(granted)
        assert slots.free < before, "slots are free, all want some, and nobody gets one"


@given(weight=st.integers(1, 1000), freed=st.lists(st.booleans(), min_size=100, max_size=300))
def test_b159_a_small_queue_is_served_beside_a_flooded_one(weight: int, freed: list[bool]) -> None:
    """Whatever the weights, a waiting queue of which nothing runs gets the next free slot."""
    slots = Slots(20)
    flooded, small = slots.portion(weight=weight), slots.portion()
    flooded.take(20)
    small.waits = flooded.waits = True
    flooded.give_back(1)
    turns: list[Portion] = [flooded, small] if freed[0] else [small, flooded]
    granted = {id(portion): portion.grant(100) for portion in turns}
    assert granted[id(small)] == 1
    assert granted[id(flooded)] == 0


def test_a_flooded_rival_counts_while_its_claim_is_on_its_way() -> None:
    slots = Slots(20)
    heavy, light = slots.portion(weight=3), slots.portion()
    light.waits, heavy.flooded = True, True
    heavy.take(10)
    assert light.grant(20) == 5  # the other five are what heavy is short of its fifteen
    heavy.flooded = False  # its claim was answered, and there was no more
    assert light.grant(20) == 10


def test_a_flooded_rival_of_a_higher_priority_keeps_all() -> None:
    slots = Slots(10)
    urgent, slow = slots.portion(priority=1), slots.portion()
    slow.waits, urgent.flooded = True, True
    assert slow.grant(10) == 0
