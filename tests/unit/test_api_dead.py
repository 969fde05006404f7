"""Dead letters: listed, scanned while they go, replayed, purged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from aiodq import DeadRetention, Queue
from aiodq._core.due import Due
from aiodq._core.envelope import Envelope, encode_envelope
from aiodq._core.errors import ConfigError
from aiodq._core.settlement import Buried
from aiodq._core.store import ClaimRequest, Entry
from aiodq._core.tally import ErrorRecord, Tally, encode_tally, read_tally
from aiodq.types import DeadJob, Replayed


@pytest.fixture
async def orders(queue_name: str) -> AsyncIterator[Queue]:
    async with Queue(queue_name, url=f"memory://{queue_name}") as queue:
        yield queue


async def bury(queue: Queue, *job_ids: str, task: str = "close_order", error: str = "OSError") -> None:
    """Buries jobs as a worker does."""
    (store,) = queue._stores()
    payload = encode_envelope(Envelope(1, task))
    await store.enqueue([Entry(job_id, payload, Due(0)) for job_id in job_ids])
    worker = store.worker("w" * 20, lambda _: None)
    tally = (
        Tally().failed(ErrorRecord(1_800_000_000_000, error, "no database")).buried("all 10 attempts failed")
    )
    for _ in range(0, len(job_ids), 100):
        claim = (await worker.turn([], ClaimRequest(100, 1000))).claim
        assert claim is not None
        burials = [Buried(lease.job_id, lease.token, encode_tally(tally)) for lease in claim.leases]
        assert all((await worker.turn(burials, None, last=True)).settled)


async def ids(queue: Queue) -> set[str]:
    return {dead.id async for dead in queue.dead.scan()}


async def test_a_dead_letter_says_what_it_was_and_why_it_died(orders: Queue) -> None:
    @orders.task
    async def close_order(order_id: str, note: str) -> None: ...

    await orders.enqueue(close_order.options(job_id="x").job("A1", note="late"))
    await bury(orders, "x")
    (dead,) = await orders.dead.list()
    assert abs(dead.buried_at - datetime.now(UTC)) < timedelta(seconds=5)
    assert dead == DeadJob(
        "x", "close_order", "all 10 attempts failed", dead.buried_at, 1, ("A1",), {"note": "late"}
    )
    assert await orders.dead.get("x") == dead
    assert await orders.dead.get("y") is None
    assert (await orders.peek("dead"))[0].id == "x"
    text = (await orders.explain("x")).text
    assert "buried" in text
    assert "all 10 attempts failed" in text
    assert "error at 2027-01-15 08:00:00.000+00:00: OSError: no database" in text


async def test_lists_are_limited_and_filtered(orders: Queue) -> None:
    await bury(orders, *(f"a{n}" for n in range(150)))
    await bury(orders, "b1", task="ship")
    await bury(orders, "b2", error="shop.errors.NoStock")
    assert len(await orders.dead.list()) == 100
    assert len(await orders.dead.list(limit=1000)) == 152
    assert [dead.id for dead in await orders.dead.list(task="ship")] == ["b1"]
    assert [dead.id for dead in await orders.dead.list(error="NoStock")] == ["b2"]
    assert [dead.id for dead in await orders.dead.list(error="shop.errors.NoStock")] == ["b2"]
    assert await orders.dead.list(task="ship", error="NoStock") == []
    with pytest.raises(ValueError, match=r"limit=0: expected at least 1; scan\(\) goes through all"):
        await orders.dead.list(limit=0)


async def test_a_scan_sees_all_while_its_body_takes_them_away(orders: Queue) -> None:
    wanted = [f"a{n:03}" for n in range(350)]
    await bury(orders, *wanted)
    seen: list[str] = []
    async for dead in orders.dead.scan():
        seen.append(dead.id)
        if len(seen) % 3:
            await orders.dead.replay(dead.id)
    assert sorted(seen) == wanted
    assert len(await ids(orders)) == 116


async def test_a_scan_sees_all_while_others_take_those_behind_it(orders: Queue) -> None:
    wanted = [f"a{n:03}" for n in range(350)]
    await bury(orders, *wanted)
    (store,) = orders._stores()
    seen: list[str] = []
    async for dead in orders.dead.scan():
        seen.append(dead.id)
        if len(seen) == 220:
            await store.purge(seen[:210])
    assert sorted(seen) == wanted


async def test_a_scan_ends_although_jobs_are_buried_again_meanwhile(orders: Queue) -> None:
    await bury(orders, *(f"a{n}" for n in range(120)))
    seen = 0
    async for dead in orders.dead.scan():
        seen += 1
        assert seen <= 120
        await orders.dead.replay(dead.id)
        await bury(orders, dead.id)
    assert seen == 120


async def test_replay_gives_all_attempts_again_and_keeps_the_history(orders: Queue) -> None:
    await bury(orders, *(f"a{n}" for n in range(250)))
    some = [f"a{n}" for n in range(230)]
    answer = await orders.dead.replay([*some, "never", "a0"], after=60)
    assert answer == Replayed(tuple(some), ("never",))
    assert len(await ids(orders)) == 20
    assert (await orders.stats()).scheduled == 230
    (found,) = await orders._stores()[0].find(["a0"])
    tally = read_tally(found.tally)
    assert (tally.failures, tally.reason, len(tally.errors)) == (0, "", 1)
    assert found.due_ms is not None
    assert found.due_ms > datetime.now(UTC).timestamp() * 1000 + 50_000
    assert await orders.dead.replay("a0") == Replayed((), ("a0",))


async def test_replay_takes_one_id_as_one_id(orders: Queue) -> None:
    await bury(orders, "abc", "a")
    assert await orders.dead.replay("abc") == Replayed(("abc",), ())
    assert await ids(orders) == {"a"}
    assert await orders.dead.replay([]) == Replayed((), ())


async def test_nothing_is_replayed_when_an_id_or_the_delay_is_impossible(orders: Queue) -> None:
    await bury(orders, "a")
    with pytest.raises(ValueError, match="job id"):
        await orders.dead.replay(["a", "b\n"])
    with pytest.raises(TypeError, match="after='1'"):
        await orders.dead.replay("a", after=cast("float", "1"))
    assert await ids(orders) == {"a"}


async def test_purge_removes_for_good(orders: Queue) -> None:
    await bury(orders, *(f"a{n}" for n in range(150)))
    await bury(orders, "b1", task="ship")
    assert await orders.dead.purge(older_than=timedelta(days=1)) == 0
    assert await orders.dead.purge(older_than=0, task="ship") == 1
    assert await orders.dead.purge(older_than=timedelta(days=1), task="close_order") == 0
    assert await orders.dead.purge(older_than=0) == 150
    assert await ids(orders) == set()
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="older_than"):
            await orders.dead.purge(older_than=wrong)


async def test_unreadable_dead_letters_are_shown_as_such(orders: Queue) -> None:
    (store,) = orders._stores()
    await store.enqueue([Entry("x", b"\xc1random", Due(0))])
    await bury(orders, "x")
    (dead,) = await orders.dead.list()
    assert (dead.task, dead.args, dead.kwargs) == ("?", (), {})
    assert (await orders.peek("dead"))[0].task == "?"


def test_retention_is_checked() -> None:
    assert DeadRetention().age_ms == 30 * 86_400_000
    for age, count in [(0, 1), (-1, 1), (1, 0), (1, True), (float("nan"), 1)]:
        with pytest.raises(ConfigError, match="DeadRetention"):
            DeadRetention(age=age, count=count)
