"""occupy and vacate: so many jobs of a name run at a time, and those that wait go on one after the other."""

from __future__ import annotations

from aiodq._core.due import NOW, Due
from aiodq._core.limit import Granted, Permit
from aiodq._core.settlement import Acked, Deferred
from aiodq._core.store import Entry
from tests.shards import HOUR_MS, Hand, OpenShard

NAME = "report:7"


async def claimed(shard: OpenShard, hand: Hand, *names: str) -> dict[str, str]:
    """Puts jobs and claims them; gives their tokens."""
    await shard.store.enqueue([Entry(name, b"", NOW) for name in names])
    return {lease.job_id: lease.token for lease in await hand.take(len(names))}


async def ask(hand: Hand, *names: str, limit: int = 1, due_ms: int = 1, again_ms: int = 0) -> list[bool]:
    permits = [Permit(name, NAME, limit, due_ms, due_ms, again_ms) for name in names]
    return [granted.may_run for granted in await hand.store.occupy(permits)]


async def wait(shard: OpenShard, hand: Hand, tokens: dict[str, str], *names: str, due_ms: int = 1) -> int:
    """These are refused, and go back for an hour. Gives when they would ask again."""
    again_ms = await shard.now_ms() + HOUR_MS
    assert not any(await ask(hand, *names, due_ms=due_ms, again_ms=again_ms))
    due = Due(again_ms, relative=False)
    assert all(await hand.settle(*[Deferred(name, tokens[name], due, b"") for name in names]))
    return again_ms


async def free(hand: Hand, *names: str, limit: int = 1) -> int:
    return await hand.store.vacate([Permit(name, NAME, limit) for name in names])


async def end(hand: Hand, tokens: dict[str, str], name: str) -> None:
    assert await hand.settle(Acked(name, tokens[name])) == [True]


async def test_so_many_may_run_and_no_more(shard: OpenShard) -> None:
    hand = await shard.listener("w")
    await claimed(shard, hand, "a", "b", "c")
    before = await shard.state()
    assert await ask(hand, "a", "b", "c", limit=2) == [True, True, False]
    assert await shard.state() == before, "asking moves no job"


async def test_names_are_apart(shard: OpenShard) -> None:
    hand = await shard.listener("w")
    await claimed(shard, hand, "a", "b", "c")
    answers = await hand.store.occupy([Permit("a", "x", 1), Permit("b", "x:y", 1), Permit("c", "x", 1)])
    assert answers == [
        Granted(may_run=True, crowd=0),
        Granted(may_run=True, crowd=0),
        Granted(may_run=False, crowd=1),
    ]


async def test_asking_twice_changes_nothing(shard: OpenShard) -> None:
    hand = await shard.listener("w")
    await claimed(shard, hand, "a", "b")
    for _ in range(3):
        assert await ask(hand, "a", "b") == [True, False]


async def test_the_first_that_waits_goes_on_at_its_own_due_time(shard: OpenShard) -> None:
    hand = await shard.listener("w")
    tokens = await claimed(shard, hand, "a", "b", "c")
    assert await ask(hand, "a") == [True]
    again_ms = await wait(shard, hand, tokens, "c", due_ms=1000)
    await wait(shard, hand, tokens, "b", due_ms=2000)
    await end(hand, tokens, "a")
    assert await free(hand, "a") == 1
    schedule = (await shard.state()).schedule
    assert schedule["c"] == 1000
    assert schedule["b"] >= again_ms
    (lease,) = await hand.take(5)
    assert (lease.job_id, lease.due_ms) == ("c", 1000)
    assert await ask(hand, "c", due_ms=1000) == [True]
    assert await free(hand, "a") == 0, "its permit was free, and c has it"


async def test_a_free_permit_wakes_a_sleeping_worker(shard: OpenShard) -> None:
    hand, other = await shard.listener("w"), await shard.listener("other")
    tokens = await claimed(shard, hand, "a", "b")
    assert await ask(hand, "a") == [True]
    await wait(shard, hand, tokens, "b")
    assert not await other.take(5)
    await end(hand, tokens, "a")
    assert await free(hand, "a") == 1
    assert (await other.hears("due")).wait_us == 0


async def test_a_job_that_is_being_run_keeps_its_permit(shard: OpenShard) -> None:
    """As of a worker that lost its lease, and says later that it has ended."""
    hand = await shard.listener("w")
    tokens = await claimed(shard, hand, "a", "b")
    assert await ask(hand, "a") == [True]
    await wait(shard, hand, tokens, "b")
    assert await free(hand, "a") == 0
    await shard.lapse("a")
    assert [lease.job_id for lease in await hand.take(1)] == ["a"]
    assert await ask(hand, "a") == [True], "the next run of the job has the permit of the last one"
    assert (await shard.state()).schedule.keys() == {"b"}


async def test_permits_of_jobs_that_are_gone_are_cleared_when_all_are_taken(shard: OpenShard) -> None:
    hand = await shard.listener("w")
    tokens = await claimed(shard, hand, "a", "b")
    assert await ask(hand, "a") == [True]
    await end(hand, tokens, "a")  # and its worker dies before it can say so
    assert await ask(hand, "b") == [True]


async def test_who_asks_while_a_job_is_on_its_way_back_is_not_lost(shard: OpenShard) -> None:
    """The permit comes free between the refusal and the return to the schedule: the return tells again."""
    hand = await shard.listener("w")
    tokens = await claimed(shard, hand, "a", "b")
    again_ms = await shard.now_ms() + HOUR_MS
    assert await ask(hand, "a", "b", again_ms=again_ms) == [True, False]
    await end(hand, tokens, "a")
    assert await free(hand, "a") == 0
    await hand.settle(Deferred("b", tokens["b"], Due(again_ms, relative=False), b""))
    assert await free(hand, "b") == 1
    assert (await shard.state()).schedule == {"b": 1}


async def test_a_job_that_was_given_another_due_time_is_left_alone(shard: OpenShard) -> None:
    hand = await shard.listener("w")
    tokens = await claimed(shard, hand, "a", "b", "c")
    assert await ask(hand, "a") == [True]
    await wait(shard, hand, tokens, "b", "c")
    assert await shard.store.reschedule([("b", Due(5 * HOUR_MS))]) == ["scheduled"]
    later = (await shard.state()).schedule["b"]
    assert await shard.store.cancel(["c"]) == ["scheduled"]
    await end(hand, tokens, "a")
    assert await free(hand, "a") == 0
    assert (await shard.state()).schedule == {"b": later}


async def test_a_greater_limit_lets_several_go_on(shard: OpenShard) -> None:
    hand = await shard.listener("w")
    tokens = await claimed(shard, hand, "a", "b", "c", "d")
    assert await ask(hand, "a") == [True]
    await wait(shard, hand, tokens, "b", "c", "d")
    assert await free(hand, "nobody", limit=3) == 2
    assert sorted(due == 1 for due in (await shard.state()).schedule.values()) == [False, True, True]
