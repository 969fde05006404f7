"""find, peek and stats: they tell and change nothing.  pause and resume."""

from __future__ import annotations

import pytest

from aiodq._core.due import NOW, Due
from aiodq._core.lifecycle import Place
from aiodq._core.store import BATCH, Entry, Found, ShardStats
from tests.shards import HOUR_MS, OpenShard, Seeds


def expected(seeds: Seeds) -> dict[str, Found]:
    state = seeds.state
    interruptions = state.tally["held"][2]
    holder = seeds.holder.id
    return {
        "waiting": Found(
            "waiting", "scheduled", state.schedule["waiting"], state.schedule["waiting"], b"body of waiting"
        ),
        "retried": Found(
            "retried",
            "scheduled",
            state.schedule["retried"],
            state.schedule["retried"],
            b"body of retried",
            b"history of retried",
        ),
        "held": Found(
            "held",
            "processing",
            state.processing["held"],
            seeds.held.due_ms,
            b"body of held",
            interruptions=interruptions,
            holder=holder,
        ),
        "failing": Found(
            "failing",
            "processing",
            state.processing["failing"],
            seeds.failing.due_ms,
            b"body of failing",
            b"history of failing",
            holder=holder,
        ),
        "buried": Found(
            "buried", "dead", state.dead["buried"], payload=b"body of buried", tally=b"history of buried"
        ),
        "done": Found("done", "done"),
        "nobody": Found("nobody", "absent"),
    }


async def test_find_tells_all_that_is_stored(shard: OpenShard, seeds: Seeds) -> None:
    jobs = expected(seeds)
    assert await shard.store.find([*jobs]) == [*jobs.values()]
    assert await shard.store.find([]) == []
    assert await shard.state() == seeds.state


async def test_find_takes_more_than_a_batch(shard: OpenShard) -> None:
    names = [f"{n:04d}" for n in range(BATCH + 5)]
    await shard.store.enqueue([Entry(name, name.encode(), NOW) for name in names])
    found = await shard.store.find([*names, "nobody"])
    assert [job.payload for job in found] == [name.encode() for name in names] + [None]


@pytest.mark.parametrize("place", ["scheduled", "processing", "dead"])
async def test_peek_shows_one_place_by_score(shard: OpenShard, seeds: Seeds, place: Place) -> None:
    jobs = [job for job in expected(seeds).values() if job.was == place]
    jobs.sort(key=lambda job: (job.at_ms, job.job_id))
    before_ms = await shard.now_ms()
    page = await shard.store.peek(place, limit=10)
    assert page.jobs == jobs
    assert before_ms <= page.now_ms <= await shard.now_ms()
    assert (await shard.store.peek(place, limit=1)).jobs == jobs[:1]
    assert (await shard.store.peek(place, limit=5, offset=1)).jobs == jobs[1:]
    assert (await shard.store.peek(place, limit=5, offset=9)).jobs == []
    assert await shard.state() == seeds.state


async def test_peek_shows_more_than_a_batch(shard: OpenShard) -> None:
    names = [f"{n:04d}" for n in range(2 * BATCH + 5)]
    at_ms = await shard.now_ms() + HOUR_MS
    await shard.store.enqueue([Entry(name, b"", Due(at_ms, relative=False)) for name in names])
    page = await shard.store.peek("scheduled", limit=BATCH + 20, offset=3)
    assert [job.job_id for job in page.jobs] == names[3 : BATCH + 23]


async def test_stats_count_every_place(shard: OpenShard, seeds: Seeds) -> None:
    await shard.store.enqueue([Entry("due", b"", NOW), Entry("overdue", b"", NOW)])
    overdue_ms = await shard.now_ms() - 60_000
    await shard.poke_due("overdue", overdue_ms)
    await shard.lapse("held")
    await shard.poke_plan("somebody", overdue_ms)
    stats = await shard.store.stats()
    assert stats == ShardStats(
        now_ms=stats.now_ms,
        due=2,
        scheduled=4,
        processing=2,
        expired=1,
        dead=1,
        oldest_overdue_ms=stats.now_ms - overdue_ms,
        paused=None,
        idle=1,
        holders=1,
    )


async def test_stats_of_an_empty_shard(shard: OpenShard) -> None:
    stats = await shard.store.stats()
    assert stats == ShardStats(stats.now_ms, 0, 0, 0, 0, 0, 0, None, 0, 0)


@pytest.mark.parametrize("reason", ["maintenance", "", "übrig: 50 %"])
async def test_a_pause_is_told_with_its_reason_and_ends_with_a_notice(
    shard: OpenShard, seeds: Seeds, reason: str
) -> None:
    await shard.store.pause(reason)
    assert await shard.state() == seeds.state.but(paused=reason)
    assert (await shard.store.stats()).paused == reason
    await shard.store.pause("another")
    assert (await shard.store.stats()).paused == "another"
    await shard.store.resume()
    assert await shard.state() == seeds.state
    await seeds.holder.hears("resume")
    await shard.store.resume()
    assert await shard.state() == seeds.state


async def test_settlements_and_renewals_go_on_while_paused(shard: OpenShard, seeds: Seeds) -> None:
    await shard.store.pause("why")
    assert await seeds.holder.keeper.extend([("held", seeds.held.token)], lease_ms=1000) == [True]
    assert (await shard.store.cancel(["waiting"])) == ["scheduled"]
    await shard.store.resume()
