"""Which shard an id is in, and that a divided queue is one queue to its users."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from aiodq import ConfigError, Queue, StoreUnavailable, Unique, Worker
from aiodq._api.shards import ShardedStore
from aiodq._core.due import NOW, Due
from aiodq._core.errors import WrongShards
from aiodq._core.names import check_queue_name
from aiodq._core.sharding import by_shard, shard_of
from aiodq._core.store import Entry, Placed, QueueStore
from aiodq._memory import MemoryBackend
from aiodq._redis.keys import ShardKeys

ids = st.text(st.characters(codec="utf-8", exclude_characters="{}"), min_size=1, max_size=20)


def test_the_shard_of_an_id_never_changes() -> None:
    """Jobs are in there: another function would lose them."""
    assert [shard_of(name, 8) for name in ("A1001", "A1002", "é", "{t7}x")] == [1, 3, 6, 2]


@given(ids, st.integers(1, 64))
def test_a_shard_key_alone_decides(key: str, count: int) -> None:
    assert shard_of(f"{{{key}}}a", count) == shard_of(f"{{{key}}}b", count) == shard_of(key, count)


def test_ids_are_spread_evenly() -> None:
    counted = Counter(shard_of(f"order-{n}", 8) for n in range(8000))
    assert set(counted) == set(range(8))
    assert max(counted.values()) < 1.2 * 1000


@given(st.lists(ids, max_size=50), st.integers(1, 9))
def test_groups_hold_each_position_once(job_ids: list[str], count: int) -> None:
    groups = by_shard(job_ids, count)
    assert sorted(at for places in groups.values() for at in places) == list(range(len(job_ids)))
    assert all(shard_of(job_ids[at], count) == shard for shard, places in groups.items() for at in places)


@pytest.mark.parametrize("name", ["orders", "emails", "q", "a-very-long-name-of-a-queue", "x:y"])
@pytest.mark.parametrize("count", [4, 6, 8, 16])
def test_the_shards_of_a_queue_are_on_all_masters_of_a_cluster_of_three(name: str, count: int) -> None:
    check_queue_name(name)
    slots = [key_slot(ShardKeys(name, shard=n).named("schedule")) for n in range(count)]
    assert {slot // 5461 for slot in slots if slot // 5461 < 3} == {0, 1, 2}


class Broken:
    """A shard whose server does not answer."""

    async def enqueue(self, entries: object, /) -> list[Placed]:
        raise StoreUnavailable("no answer")


def shards(count: int) -> ShardedStore:
    backend = MemoryBackend()
    return ShardedStore([backend.store("q", shard=n) for n in range(count)])


async def test_answers_come_in_the_order_of_the_questions() -> None:
    store: QueueStore = shards(4)
    names = [f"job-{n}" for n in range(20)]
    await store.enqueue([Entry(name, name.encode(), Due(60_000)) for name in names[:10]])
    placed = await store.enqueue([Entry(name, b"", NOW) for name in names])
    assert [one.created for one in placed] == [False] * 10 + [True] * 10
    assert [found.payload for found in await store.find(names[:10])] == [n.encode() for n in names[:10]]
    assert await store.cancel([*reversed(names[:10]), "nobody"]) == ["scheduled"] * 10 + ["absent"]


async def test_peek_goes_through_all_shards_by_time() -> None:
    store = shards(3)
    await store.enqueue(
        [Entry(f"job-{n}", b"", Due(1000 * n, relative=False)) for n in range(2_000_000, 2_000_030)]
    )
    everything = (await store.peek("scheduled", limit=30)).jobs
    assert [job.at_ms for job in everything] == sorted(job.at_ms for job in everything)
    assert (await store.peek("scheduled", limit=5, offset=7)).jobs == everything[7:12]


async def test_an_error_of_one_shard_is_told_and_the_others_have_done_their_part() -> None:
    good = MemoryBackend().store("q", shard=0)
    store = ShardedStore([good, Broken()])  # type: ignore[list-item]
    names = [f"job-{n}" for n in range(20)]
    with pytest.raises(StoreUnavailable, match="no answer"):
        await store.enqueue([Entry(name, b"", Due(60_000)) for name in names])
    mine = {name for name in names if shard_of(name, 2) == 0}
    assert {job.job_id for job in (await good.peek("scheduled", limit=50)).jobs} == mine


@pytest.mark.parametrize("shards", [0, -1, 1025])
def test_counts_out_of_range_are_refused(shards: int) -> None:
    with pytest.raises(ConfigError, match=f"shards={shards}: expected 1 to 1024"):
        Queue("orders", url="memory://", shards=shards)


@pytest.mark.parametrize("shards", [True, 2.0, "4"])
def test_counts_that_are_no_numbers_are_refused(shards: object) -> None:
    with pytest.raises(ConfigError, match="expected a whole number"):
        Queue("orders", url="memory://", shards=shards)  # type: ignore[arg-type]


async def test_in_memory_every_user_must_say_the_same_number(queue_name: str) -> None:
    url = f"memory://{queue_name}"
    async with Queue("orders", url=url, shards=3) as orders:
        await orders.stub("close").after(60).enqueue(1)
        with pytest.raises(WrongShards, match="pass shards=3"):
            await Queue("orders", url=url, shards=4).stats()
        with pytest.raises(WrongShards, match="pass shards=3"):
            await Queue("orders", url=url).stats()
        other = Queue("orders", url=url, shards=4)

        @other.task
        async def close(n: int) -> None: ...

        with pytest.raises(WrongShards, match="pass shards=3"):
            await Worker(other).run(burst=True)


async def test_unique_jobs_of_one_value_meet_in_one_shard(queue_name: str) -> None:
    async with Queue("orders", url=f"memory://{queue_name}", shards=8) as orders:

        @orders.task(unique=Unique(60, key="tenant"))
        async def report(tenant: str) -> None: ...

        for tenant in "abcdefgh":
            first = await report.after(60).enqueue(tenant)
            second = await report.after(60).enqueue(tenant)
            assert (first.created, second.created, second.id) == (True, False, first.id)
        with pytest.raises(ValueError, match="in a shard of their own"):
            report.options(shard_key="t7").job("a")


def test_a_shard_key_makes_the_id() -> None:
    plan = Queue("orders", url="memory://", shards=4).stub("close")
    job = plan.options(shard_key="t7").job(1)
    assert job.id.startswith("{t7}")
    assert len(job.id) > 10
    assert plan.options(shard_key="t7", job_id="{t7}close-1").job(1).id == "{t7}close-1"


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"shard_key": ""}, ValueError, "expected 1 to 200"),
        ({"shard_key": "a{b"}, ValueError, "without braces"),
        ({"shard_key": "x" * 201}, ValueError, "at most 200 bytes"),
        ({"shard_key": 7}, TypeError, "expected a string"),
        ({"shard_key": "t7", "job_id": "close-1"}, ValueError, "begins with {t7}"),
    ],
)
def test_keys_that_cannot_be_are_refused(
    options: dict[str, object], error: type[Exception], says: str
) -> None:
    plan = Queue("orders", url="memory://", shards=4).stub("close")
    with pytest.raises(error, match=says):
        plan.options(**options)  # type: ignore[arg-type]
