"""Settlements wait in order, in batches, and one by one after a refusal."""

from __future__ import annotations

from typing import cast

from aiodq._core.lease import Lease
from aiodq._worker.running import Host, Run
from aiodq._worker.settler import Settler


def runs(count: int) -> list[Run]:
    host = cast("Host", None)
    return [Run(lease=Lease(f"j{n}", "tok", 1, 0, b""), host=host, token="tok") for n in range(count)]


def filled(items: list[Run]) -> Settler:
    settler = Settler()
    for item in items:
        settler.add(item)
    return settler


def test_at_most_a_batch_is_taken_in_order() -> None:
    items = runs(250)
    settler = filled(items)
    taken = [settler.take() for _ in range(4)]
    assert [len(batch) for batch in taken] == [100, 100, 50, 0]
    assert [run for batch in taken for run in batch] == items


def test_what_was_not_written_comes_first_again() -> None:
    items = runs(5)
    settler = filled(items[:3])
    batch = settler.take()
    settler.add(items[3])
    settler.put_back(batch)
    settler.add(items[4])
    assert settler.take() == items
    assert len(settler) == 0


def test_after_a_refusal_they_go_one_by_one_and_then_together_again() -> None:
    items = runs(4)
    settler = filled(items)
    settler.put_back(settler.take()[:3], one_by_one=True)
    alone = [(settler.solo, settler.take()) for _ in range(3)]
    assert alone == [(True, [items[0]]), (True, [items[1]]), (True, [items[2]])]
    together = settler.solo
    assert not together
    for item in items:
        settler.add(item)
    assert settler.take() == items
