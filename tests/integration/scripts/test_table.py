"""Every transition leaves a job alone that is not where the table of transitions lets it be moved from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from aiodq._core.due import NOW
from aiodq._core.lifecycle import BY_NAME
from aiodq._core.settlement import Acked, Buried, Deferred, Released
from aiodq._core.store import Entry, Revival
from aiodq._core.unique import Hold
from aiodq._memory.failover import Resent, Told
from tests.shards import LEASE_MS, OpenShard, Seeds
from tests.telling import finished, resend, sha

Move: TypeAlias = Callable[[OpenShard, Seeds, str], Awaitable[list[object]]]


async def _enqueue(shard: OpenShard, seeds: Seeds, job_id: str) -> list[object]:
    return [p.created for p in await shard.store.enqueue([Entry(job_id, b"other", NOW, remember=True)])]


async def _replace(shard: OpenShard, seeds: Seeds, job_id: str) -> list[object]:
    return [p.created or p.replaced for p in await shard.store.replace([Entry(job_id, b"other", NOW)])]


async def _unite(shard: OpenShard, seeds: Seeds, job_id: str) -> list[object]:
    entry = Entry(job_id, b"other", NOW, hold=Hold("close:7", 1000))
    return [p.created or p.replaced for p in await shard.store.unite([entry])]


async def _reschedule(shard: OpenShard, seeds: Seeds, job_id: str) -> list[object]:
    return [was == "scheduled" for was in await shard.store.reschedule([(job_id, NOW)])]


async def _cancel(shard: OpenShard, seeds: Seeds, job_id: str) -> list[object]:
    return [was == "scheduled" for was in await shard.store.cancel([job_id])]


async def _replay(shard: OpenShard, seeds: Seeds, job_id: str) -> list[object]:
    buried_ms = seeds.state.dead[seeds.buried]
    return list(await shard.store.replay([Revival(job_id, buried_ms, NOW, b"")]))


async def _purge(shard: OpenShard, seeds: Seeds, job_id: str) -> list[object]:
    return list(await shard.store.purge([job_id]))


async def _resend(shard: OpenShard, seeds: Seeds, job_id: str) -> list[object]:
    return list(await resend(shard, [Resent(Entry(job_id, b"other", NOW, remember=True), 1)]))


async def _finished(shard: OpenShard, seeds: Seeds, job_id: str) -> list[object]:
    payload = sha(f"body of {job_id}".encode())
    return [bit == "1" for bit in await finished(shard, [Told(job_id, seeds.held.token, payload)])]


async def _extend(shard: OpenShard, seeds: Seeds, job_id: str) -> list[object]:
    return list(await seeds.holder.keeper.extend([(job_id, seeds.held.token)], lease_ms=LEASE_MS))


async def _ack(shard: OpenShard, seeds: Seeds, job_id: str) -> list[object]:
    return list(await seeds.holder.settle(Acked(job_id, seeds.held.token, remember=True)))


async def _retry(shard: OpenShard, seeds: Seeds, job_id: str) -> list[object]:
    return list(await seeds.holder.settle(Deferred(job_id, seeds.held.token, NOW, b"other")))


async def _release(shard: OpenShard, seeds: Seeds, job_id: str) -> list[object]:
    return list(await seeds.holder.settle(Released(job_id, seeds.held.token)))


async def _bury(shard: OpenShard, seeds: Seeds, job_id: str) -> list[object]:
    return list(await seeds.holder.settle(Buried(job_id, seeds.held.token, b"other")))


MOVES: dict[str, Move] = {
    "enqueue": _enqueue,
    "replace": _replace,
    "unite": _unite,
    "reschedule": _reschedule,
    "cancel": _cancel,
    "replay": _replay,
    "purge": _purge,
    "extend": _extend,
    "ack": _ack,
    "retry": _retry,
    "release": _release,
    "bury": _bury,
    "resend": _resend,
    "finished": _finished,
}
BY_ID = sorted(MOVES)
"""`claim`, `convict`, `trim` and `vacate` are not asked about single jobs: see their own files."""

PLACES = ("absent", "scheduled", "processing", "dead", "done")


def test_every_transition_is_tried() -> None:
    assert {*MOVES, "claim", "convict", "trim", "vacate"} == set(BY_NAME)


WRONG = [
    (name, place)
    for name in BY_ID
    for place in PLACES
    # a finished job is absent, but its done mark is there: only `enqueue` with `remember` is kept out by it
    if (place if place != "done" or name in ("enqueue", "resend") else "absent")
    not in {a for a, _ in BY_NAME[name].moves}
]


@pytest.mark.parametrize(("name", "place"), WRONG)
async def test_a_job_in_the_wrong_place_is_left_as_it_is(
    shard: OpenShard, seeds: Seeds, name: str, place: str
) -> None:
    before = await shard.state()
    assert await MOVES[name](shard, seeds, seeds.places[place]) == [False]
    assert await shard.state() == before


async def _finished_under(shard: OpenShard, job_id: str, token: str) -> list[bool]:
    told = Told(job_id, token, sha(f"body of {job_id}".encode()))
    return [bit == "1" for bit in await finished(shard, [told])]


FENCED = sorted(t.name for t in BY_NAME.values() if t.fenced)


@pytest.mark.parametrize("name", FENCED)
async def test_the_token_of_an_earlier_claim_changes_nothing(
    shard: OpenShard, seeds: Seeds, name: str
) -> None:
    held, stale = seeds.held, seeds.stale
    assert held.token != stale
    before = await shard.state()
    settle = seeds.holder.settle
    answers = {
        "ack": lambda: settle(Acked(held.job_id, stale)),
        "retry": lambda: settle(Deferred(held.job_id, stale, NOW, b"other")),
        "release": lambda: settle(Released(held.job_id, stale)),
        "bury": lambda: settle(Buried(held.job_id, stale, b"other")),
        "finished": lambda: _finished_under(shard, held.job_id, stale),
        "extend": lambda: seeds.holder.keeper.extend([(held.job_id, stale)], lease_ms=1000),
    }
    assert await answers[name]() == [False]
    assert await shard.state() == before


@pytest.mark.parametrize("name", [name for name in FENCED if name != "extend"])
async def test_a_second_ending_of_the_same_run_changes_nothing(
    shard: OpenShard, seeds: Seeds, name: str
) -> None:
    assert await MOVES[name](shard, seeds, seeds.held.job_id) == [True]
    between = await shard.state()
    assert await MOVES[name](shard, seeds, seeds.held.job_id) == [False]
    assert await shard.state() == between
