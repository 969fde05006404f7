"""First in, first out: of jobs due in one millisecond the one that came first is given first."""

from __future__ import annotations

import itertools

import pytest

from aiodq._core.due import NOW, Due
from aiodq._core.errors import WrongOrder
from aiodq._core.settlement import Buried, Deferred, Released
from aiodq._core.store import Entry, Revival
from aiodq._memory import MemoryBackend
from tests.shards import HOUR_MS, MemoryShard, OpenShard, RedisShard

KINDS = ("fifo",)

NAMES = ["m", "z", "a", "k", "b"]
"""In no order that a sorted set would give them."""

_numbers = itertools.count(1)


async def soon(shard: OpenShard) -> Due:
    return Due(await shard.now_ms() + 40, relative=False)


async def put(shard: OpenShard, *names: str, due: Due) -> None:
    await shard.store.enqueue([Entry(name, f"body of {name}".encode(), due) for name in names])


async def given(shard: OpenShard, want: int = 10) -> list[str]:
    """What a worker that comes new is given once all is due."""
    await shard.wait_ms(60)
    return [lease.job_id for lease in await shard.hand(f"taker{next(_numbers)}").take(want)]


async def test_jobs_due_in_one_millisecond_come_as_they_went(shard: OpenShard) -> None:
    due = await soon(shard)
    await put(shard, *NAMES[:3], due=due)
    for name in NAMES[3:]:
        await put(shard, name, due=due)
    assert await given(shard) == NAMES
    assert (await shard.state()).order == NAMES


async def test_what_is_due_earlier_still_comes_earlier(shard: OpenShard) -> None:
    due = await soon(shard)
    await put(shard, "second", due=due)
    await put(shard, "first", due=Due(due.ms - 1, relative=False))
    assert await given(shard) == ["first", "second"]


async def test_several_claims_go_on_where_the_last_one_ended(shard: OpenShard) -> None:
    await put(shard, *NAMES, due=await soon(shard))
    assert await given(shard, 2) == NAMES[:2]
    assert await given(shard, 2) == NAMES[2:4]


async def test_a_job_that_is_enqueued_again_keeps_its_place(shard: OpenShard) -> None:
    due = await soon(shard)
    await put(shard, "one", "two", due=due)
    (again,) = await shard.store.enqueue([Entry("one", b"other", due)])
    assert not again.created
    assert again.due_ms == due.ms
    assert await given(shard) == ["one", "two"]


async def test_a_replaced_job_comes_last(shard: OpenShard) -> None:
    due = await soon(shard)
    await put(shard, "one", "two", due=due)
    placed = await shard.store.replace([Entry("one", b"other", due), Entry("three", b"3", due)])
    assert [(p.created, p.replaced) for p in placed] == [(False, True), (True, False)]
    assert await given(shard) == ["two", "one", "three"]


async def test_a_job_replaced_twice_in_a_batch_has_one_place(shard: OpenShard) -> None:
    due = await soon(shard)
    placed = await shard.store.replace(
        [Entry("one", b"1", due), Entry("two", b"2", due), Entry("one", b"3", due)]
    )
    assert [p.created for p in placed] == [True, True, False]
    assert placed[2].replaced
    state = await shard.state()
    assert state.schedule == {"one": due.ms, "two": due.ms}
    assert await given(shard) == ["two", "one"]


async def test_rescheduling_keeps_the_number(shard: OpenShard) -> None:
    due = await soon(shard)
    await put(shard, "one", due=Due(HOUR_MS))
    await put(shard, "two", due=due)
    assert await shard.store.reschedule([("one", due)]) == ["scheduled"]
    assert await given(shard) == ["one", "two"]


async def test_retry_and_release_keep_the_number(shard: OpenShard) -> None:
    await put(shard, "one", "two", due=NOW)
    worker = shard.hand("w")
    one, two = await worker.take(2)
    due = await soon(shard)
    await put(shard, "three", due=due)
    await worker.settle(Deferred("two", two.token, due, b"failed"))
    await worker.settle(Deferred("one", one.token, due, b"failed"))
    assert await given(shard) == ["one", "two", "three"]


async def test_a_released_job_is_before_those_that_came_after_it(shard: OpenShard) -> None:
    due = await soon(shard)
    await put(shard, "one", "two", due=due)
    await shard.wait_ms(60)
    worker = shard.hand("w")
    (one,) = await worker.take(1)
    await worker.settle(Released("one", one.token))
    assert await given(shard) == ["one", "two"]


async def test_a_dead_letter_keeps_its_number_until_it_is_replayed(shard: OpenShard) -> None:
    await put(shard, "one", "two", due=NOW)
    worker = shard.hand("w")
    one, two = await worker.take(2)
    await worker.settle(Buried("one", one.token, b"history"))
    (found,) = await shard.store.find(["one"])
    due = await soon(shard)
    await worker.settle(Deferred("two", two.token, due, b"failed"))
    assert await shard.store.replay([Revival("one", found.at_ms, due, b"history")]) == [True]
    assert await given(shard) == ["one", "two"]


async def test_an_id_that_comes_back_after_its_end_comes_last(shard: OpenShard) -> None:
    due = await soon(shard)
    await put(shard, "one", "two", due=due)
    assert await shard.store.cancel(["one"]) == ["scheduled"]
    assert (await shard.state()).order == ["two"]
    await put(shard, "one", due=due)
    assert await given(shard) == ["two", "one"]


async def test_questions_show_bare_ids(shard: OpenShard) -> None:
    due = await soon(shard)
    await put(shard, *NAMES, due=due)
    page = await shard.store.peek("scheduled", limit=3, offset=1)
    assert [job.job_id for job in page.jobs] == NAMES[1:4]
    assert [job.payload for job in page.jobs] == [f"body of {name}".encode() for name in NAMES[1:4]]
    (found,) = await shard.store.find(["a"])
    assert (found.was, found.due_ms) == ("scheduled", due.ms)


async def test_a_number_that_belongs_to_nothing_is_found_and_removed(shard: OpenShard) -> None:
    await put(shard, "one", "two", due=Due(HOUR_MS))
    await shard.lose("schedule", "one")
    await shard.lose("payload", "one")
    inspector = shard.store.inspector()
    assert (await inspector.scan("order", 0)).members == ["one", "two"]
    assert [d.fault for d in await inspector.diagnose(["one", "two"])] == ["t", "-"]
    assert await inspector.repair(["one", "two"]) == ["t", "-"]
    assert (await shard.state()).order == ["two"]


async def test_a_job_without_its_number_gets_one_when_it_is_put_back(shard: OpenShard) -> None:
    await put(shard, "one", due=NOW)
    worker = shard.hand("w")
    (one,) = await worker.take(1)
    if isinstance(shard, MemoryShard):
        shard.data.order.clear()
    else:
        assert isinstance(shard, RedisShard)
        await shard.client.delete(shard.keys.named("order"))
    await worker.settle(Released("one", one.token))
    assert await given(shard) == ["one"]
    assert (await shard.state()).order == ["one"]


async def test_a_plain_queue_with_jobs_does_not_become_ordered(shard: OpenShard) -> None:
    if not isinstance(shard, RedisShard):
        pytest.skip("in memory a queue is made as one or the other")
    await shard.client.delete(shard.keys.named("meta"))
    plain, ordered = shard.plain(), shard.store
    await plain.enqueue([Entry("one", b"1", Due(HOUR_MS))])
    with pytest.raises(WrongOrder, match="came in no order"):
        await ordered.enqueue([Entry("two", b"2", Due(HOUR_MS))])
    assert [job.job_id for job in (await plain.peek("scheduled", limit=5)).jobs] == ["one"]
    assert await plain.cancel(["one"]) == ["scheduled"]
    await ordered.enqueue([Entry("two", b"2", Due(HOUR_MS))])  # empty: it may
    with pytest.raises(WrongOrder, match="pass fifo=True"):
        await plain.enqueue([Entry("three", b"3", Due(HOUR_MS))])
    assert (await shard.state()).schedule.keys() == {"two"}


async def test_an_ordered_queue_is_one_again_after_its_server_lost_all(shard: OpenShard) -> None:
    if not isinstance(shard, RedisShard):
        pytest.skip("a memory loses nothing")
    await put(shard, "one", due=Due(HOUR_MS))
    await shard.client.delete(*[shard.keys.named(name) for name in ("meta", "schedule", "payload", "order")])
    due = await soon(shard)
    await put(shard, *NAMES, due=due)
    assert await given(shard) == NAMES


async def test_in_memory_a_queue_is_one_or_the_other(shard: OpenShard) -> None:
    del shard
    backend = MemoryBackend()
    backend.store("q", fifo=True)
    with pytest.raises(WrongOrder, match="fifo=True"):
        backend.store("q")
