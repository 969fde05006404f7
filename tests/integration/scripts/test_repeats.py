"""Twice is once: a call whose reply was lost is repeated under its call id, and has no second effect.

Only servers lose replies. A thief stands at the store's connections: the script is carried out, its reply is
taken away, and the store repeats the call as it does after any lost connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aiodq._core.due import NOW, Due
from aiodq._core.lease import Lease, parse_token
from aiodq._core.lifecycle import BY_NAME
from aiodq._core.rate import Booking
from aiodq._core.settlement import Acked, Buried, Deferred, Released
from aiodq._core.store import ClaimRequest, Entry, Placed, Revival
from aiodq._core.unique import Hold
from aiodq._memory.failover import Resent, Told
from aiodq._redis.faults import Lost
from aiodq._redis.link import Link, Reply
from aiodq._redis.scripts import load_scripts
from tests.shards import HOUR_MS, LEASE_MS, ClusterShard, OpenShard, RedisShard, Seeds, let_go
from tests.telling import finished, resend, sha

KINDS = ("scripts",)

LATER = Due(4_000_000_000_000, relative=False)
LATE = Due(4_000_000_000_001, relative=False)
HOLD = Hold("close:7", HOUR_MS)


class Thief:
    """Sees the calls of one script, and takes away the first reply after the script was carried out.

    Attributes:
        sent: the calls of that script, as they were sent.
        meanwhile: what happens between the loss and the repeat.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._shas: tuple[bytes, ...] = ()
        self._steals = True
        self.sent: list[bytes] = []
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        self._errands: set[asyncio.Task[None]] = set()
        real_send = Link.send

        def send(link: Link, command: bytes) -> asyncio.Future[Reply]:
            future = real_send(link, command)
            if not any(sha in command for sha in self._shas):
                return future
            self.sent.append(command)
            return self._without_reply(future) if self._steals and len(self.sent) == 1 else future

        monkeypatch.setattr(Link, "send", send)

    def watch(self, name: str, *, steals: bool = True) -> None:
        both = (load_scripts()[name], load_scripts(sharded=True)[name])
        self._shas, self._steals, self.sent = tuple(script.sha.encode() for script in both), steals, []

    def rest(self) -> list[bytes]:
        self._shas = ()
        return self.sent

    def _without_reply(self, future: asyncio.Future[Reply]) -> asyncio.Future[Reply]:
        lost: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        async def lose() -> None:
            reply = await future
            assert not isinstance(reply, Exception), reply
            if self.meanwhile is not None:
                await self.meanwhile()
            lost.set_result(Lost("the reply was lost", sent=True))

        errand = asyncio.create_task(lose())
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)
        return lost


@pytest.fixture
def thief(monkeypatch: pytest.MonkeyPatch) -> Thief:
    return Thief(monkeypatch)


@pytest.fixture
async def server_shard(shard: OpenShard) -> RedisShard:
    """Its scripts are loaded, so that the first call of each is carried out."""
    assert isinstance(shard, RedisShard)
    for script in load_scripts(sharded=isinstance(shard, ClusterShard)).values():
        await shard.client.script_load(script.source)
    return shard


def calls(shard: OpenShard, seeds: Seeds) -> dict[str, Callable[[], Awaitable[object]]]:
    """One call of each repeatable script, by name: each has an effect, and most also a job to refuse."""
    store, holder, held, failing = shard.store, seeds.holder, seeds.held, seeds.failing
    revival = Revival(seeds.buried, seeds.state.dead[seeds.buried], LATER, b"h")

    async def claim() -> list[tuple[str, bytes | None]]:
        return [(lease.job_id, lease.payload) for lease in await holder.take(5)]

    return {
        "enqueue": lambda: store.enqueue([Entry("x", b"1", LATER), Entry(seeds.done, b"2", LATER, True)]),
        "replace": lambda: store.replace([Entry("x", b"1", LATER), Entry(seeds.buried, b"2", LATER)]),
        "unite": lambda: store.unite(
            [Entry("x", b"1", LATER, hold=HOLD), Entry("y", b"2", LATER, hold=HOLD)]
        ),
        "reschedule": lambda: store.reschedule([(seeds.waiting, LATE), ("nobody", LATE)]),
        "vacate": lambda: let_go(holder, seeds.state.schedule[seeds.waiting]),
        "cancel": lambda: store.cancel([seeds.waiting, "nobody"]),
        "replay": lambda: store.replay([revival]),
        "purge": lambda: store.purge([seeds.buried, "nobody"]),
        "claim": claim,
        "ack": lambda: holder.settle(Acked("held", held.token, True), Acked("failing", "stale")),
        "retry": lambda: holder.settle(
            Deferred("held", held.token, LATER, b"h"), Deferred("failing", "stale", LATER, b"")
        ),
        "release": lambda: holder.settle(Released("held", held.token), Released("failing", "stale")),
        "bury": lambda: holder.settle(
            Buried("held", held.token, b"h"), Buried("failing", failing.token, b"i")
        ),
        "resend": lambda: resend(
            shard, [Resent(Entry("x", b"1", LATER), 1), Resent(Entry(seeds.waiting, b"2", LATER), 1)]
        ),
        "finished": lambda: finished(
            shard, [Told("held", held.token, ""), Told(seeds.waiting, held.token, sha(b"other"))]
        ),
    }


def answers(seeds: Seeds) -> dict[str, object]:
    return {
        "enqueue": [Placed(True, False, LATER.ms), Placed(False, False, seeds.state.done[seeds.done])],
        "replace": [Placed(True, False, LATER.ms), Placed(False, True, LATER.ms)],
        "unite": [Placed(True, False, LATER.ms), Placed(False, False, LATER.ms, "x")],
        "reschedule": ["scheduled", "absent"],
        "vacate": 1,
        "cancel": ["scheduled", "absent"],
        "replay": [True],
        "purge": [True, False],
        "claim": [("a", b"1"), ("b", b"2")],
        "ack": [True, False],
        "retry": [True, False],
        "release": [True, False],
        "bury": [True, True],
        "resend": [True, False],
        "finished": "10",
    }


REPEATED = sorted(t.name for t in BY_NAME.values() if t.repeats)


@pytest.mark.parametrize("name", REPEATED)
async def test_a_repeat_has_no_second_effect_and_gives_the_same_answer(
    server_shard: RedisShard, seeds: Seeds, thief: Thief, name: str
) -> None:
    shard = server_shard
    if name == "claim":
        await shard.store.enqueue([Entry("a", b"1", NOW), Entry("b", b"2", NOW)])
    thief.watch(name)
    assert await calls(shard, seeds)[name]() == answers(seeds)[name]
    first, second = thief.rest()
    assert first == second
    state = await shard.state()
    assert state != seeds.state
    # One more copy, as of a packet that was long on its way.
    await shard.send_raw(first)
    after = await shard.state()
    assert after == state.but(processing=after.processing if name == "claim" else state.processing)


async def test_a_repeated_claim_gives_only_what_nobody_took_meanwhile(
    server_shard: RedisShard, thief: Thief
) -> None:
    shard = server_shard
    hand, other = await shard.listener("w"), await shard.listener("other")
    await shard.store.enqueue([Entry(name, name.encode(), NOW) for name in "abcde"])
    taken: list[Lease] = []

    async def take_two() -> None:
        await shard.lapse("b", "d")
        taken.extend(await other.take(2))

    thief.watch("claim")
    thief.meanwhile = take_two
    answer = await hand.claim(5)
    assert sorted(lease.job_id for lease in taken) == ["b", "d"]
    assert sorted((lease.job_id, lease.payload) for lease in answer.leases) == [
        ("a", b"a"),
        ("c", b"c"),
        ("e", b"e"),
    ]
    state = await shard.state()
    for lease in [*answer.leases, *taken]:
        assert state.lease[lease.job_id] == lease.token
    assert {parse_token(lease.token).worker for lease in answer.leases} == {hand.id}
    ends = [Acked(lease.job_id, lease.token) for lease in answer.leases]
    assert await hand.settle(*ends) == [True] * 3


async def test_leases_that_ran_out_meanwhile_and_that_nobody_took_are_renewed_by_the_repeat(
    server_shard: RedisShard, thief: Thief
) -> None:
    shard = server_shard
    hand = await shard.listener("w")
    await shard.store.enqueue([Entry(name, b"", NOW) for name in "ab"])
    thief.watch("claim")
    thief.meanwhile = lambda: shard.lapse("a", "b")
    leases = await hand.take(2)
    assert [lease.job_id for lease in leases] == ["a", "b"]
    now_ms = await shard.now_ms()
    assert all(at > now_ms + LEASE_MS // 2 for at in (await shard.state()).processing.values())


async def test_a_repeated_enqueue_does_not_revive_a_job_that_has_run_meanwhile(
    server_shard: RedisShard, thief: Thief
) -> None:
    shard = server_shard
    hand = await shard.listener("w")

    async def run() -> None:
        [lease] = await hand.take()
        assert await hand.settle(Acked(lease.job_id, lease.token)) == [True]

    thief.watch("enqueue")
    thief.meanwhile = run
    [placed] = await shard.store.enqueue([Entry("a", b"", NOW)])
    assert placed.created
    state = await shard.state()
    assert state.schedule == state.processing == {}


@pytest.mark.parametrize("name", ["enqueue", "cancel", "ack", "claim"])
async def test_a_call_that_arrives_after_a_later_one_of_its_sender_has_no_effect(
    server_shard: RedisShard, seeds: Seeds, thief: Thief, name: str
) -> None:
    shard, store, holder = server_shard, server_shard.store, seeds.holder
    later: dict[str, Callable[[], Awaitable[object]]] = {
        "enqueue": lambda: store.enqueue([Entry("y", b"", LATER)]),
        "cancel": lambda: store.cancel(["nobody"]),
        "ack": lambda: holder.settle(Acked("nobody", "stale")),
        "claim": holder.take,
    }
    await store.enqueue([Entry("a", b"1", NOW)])
    thief.watch(name, steals=False)
    await calls(shard, seeds)[name]()
    early = thief.rest()[0]
    await store.enqueue([Entry("b", b"2", NOW)])
    await later[name]()
    # What the early call did is undone by others: it must not be done again.
    await store.cancel(["x"])
    await store.enqueue([Entry(seeds.waiting, b"", Due(HOUR_MS)), Entry("c", b"", NOW)])
    before = await shard.state()
    await shard.send_raw(early)
    assert await shard.state() == before


async def test_a_turn_is_repeated_part_by_part(server_shard: RedisShard, seeds: Seeds, thief: Thief) -> None:
    await server_shard.store.enqueue([Entry("due", b"body", NOW)])
    thief.watch("ack")
    answer = await seeds.holder.turn(
        Acked("held", seeds.held.token),
        Deferred("failing", seeds.failing.token, LATER, b"h"),
        claim=ClaimRequest(1, LEASE_MS),
    )
    assert answer.settled == [True, True]
    assert answer.claim is not None
    assert [lease.payload for lease in answer.claim.leases] == [b"body"]
    assert len(thief.sent) == 2


async def test_a_repeated_admit_books_once_and_gives_the_same_answer(
    server_shard: RedisShard, thief: Thief
) -> None:
    shard = server_shard
    hand, other = shard.hand("w1"), shard.hand("w2")
    minute_us = 60_000_000

    async def book_between() -> None:
        await other.store.admit([Booking("close", minute_us)])

    thief.watch("admit")
    thief.meanwhile = book_between
    booked = await hand.store.admit([Booking("close", minute_us), Booking("ship", 5)])
    first, *copies, repeat = thief.rest()
    assert repeat == first
    assert len(copies) == 1, "that of the other worker"
    assert booked.begins_us == [booked.now_us] * 2
    # Two bookings, not three; and a copy that comes when its sender has gone on books nothing either.
    third = await hand.store.admit([Booking("close", 7)])
    assert third.begins_us[0] - booked.now_us >= 2 * minute_us
    await shard.send_raw(first)
    fourth = await hand.store.admit([Booking("close", 7)])
    assert fourth.begins_us[0] == third.begins_us[0] + 7


async def test_admits_of_one_worker_wait_for_each_other(server_shard: RedisShard, thief: Thief) -> None:
    """The server remembers the last call of a sender: a repeat of an earlier one would book once more."""
    hand = server_shard.hand("w")
    thief.watch("admit")
    booked = await asyncio.gather(*(hand.store.admit([Booking("close", 1_000_000)]) for _ in range(5)))
    begins = sorted(one.begins_us[0] for one in booked)
    assert len(thief.sent) == 6
    assert [at - begins[0] for at in begins] == [n * 1_000_000 for n in range(5)]
