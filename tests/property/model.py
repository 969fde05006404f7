"""What is known of a queue without looking: where each job is, when it is due, whose lease is the newest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from hypothesis.stateful import RuleBasedStateMachine, invariant

from aiodq._core.due import Due
from aiodq._core.lease import Lease
from aiodq._core.settlement import Acked, Buried, Deferred, Released, Settlement
from aiodq._core.store import SECOND_SEAT_MS, ClaimAnswer, ClaimRequest, Was
from tests.property.twins import START_US, Actor, Clock, Held, SharedClockMemory, Twin, shape

T = TypeVar("T")

WORKERS = ("w1", "w2", "w3")
JOBS = ("a", "b", "c", "d:1", "é", "f", "g")
BODIES = (b"", b"\x00\xff", b"x" * 40)


class ModelMachine(RuleBasedStateMachine):
    """Does the same on all stores, and keeps a model beside them. The moves are in `machine.py`.

    `odd`: also claims after which nobody need look in time: of unsteady workers, with false clocks.
    """

    odd = False

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.loop = asyncio.new_event_loop()
        self.twins: list[Twin] = self.run(self.open())
        self.actors: dict[str, Actor] = {}
        self.where: dict[str, Was] = {}
        self.due_ms: dict[str, int] = {}
        self.newest: dict[str, Held] = {}
        self.last_fence = 0
        self.booked_us: dict[str, int] = {}
        self.holds: dict[str, tuple[int, str]] = {}
        self.paused = False
        self.bodies = 0
        self.run(self._start())
        for actor in self.actors.values():
            self._listen(actor)

    async def open(self) -> list[Twin]:
        return [SharedClockMemory("q", START_US)]

    async def _start(self) -> None:
        await self._set_time(START_US)
        for name in WORKERS:
            self.actors[name] = Actor(name, [twin.hand(name) for twin in self.twins])

    async def close(self) -> None:
        for twin in self.twins:
            await twin.aclose()

    def teardown(self) -> None:
        try:
            self.run(self.close())
        finally:
            self.loop.close()

    # -- doing the same on all stores

    def run(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self.loop.run_until_complete(awaited())

    def all(self, ask: Callable[[int], Awaitable[T]]) -> T:
        """Asks every store, by its number; the answers must have the same shape. Returns the first."""
        return self.each(ask)[0]

    def each(self, ask: Callable[[int], Awaitable[T]]) -> list[T]:
        async def one_after_another() -> list[T]:
            return [await ask(n) for n in range(len(self.twins))]

        answers = self.run(one_after_another())
        for answer in answers[1:]:
            assert shape(answer) == shape(answers[0])
        return answers

    async def _set_time(self, now_us: int) -> None:
        self.clock.now_us = now_us
        for twin in self.twins:
            await twin.set_time(now_us)

    def _after_notices(self, actor: Actor) -> None:
        """Takes in what was heard, the same on all stores."""

        async def heard() -> None:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            notices = actor.hands[0].notices
            for hand in actor.hands[1:]:
                await hand.hears_in_all(len(notices))
                assert [shape(notice) for notice in hand.notices] == [shape(notice) for notice in notices]

        self.run(heard())
        for notice in actor.hands[0].notices:
            if notice.kind == "due" and actor.look_at_us is not None:
                actor.look_at_us = min(actor.look_at_us, self.clock.now_us + notice.wait_us)
        resumed = any(notice.kind in ("resume", "connected") for notice in actor.hands[0].notices)
        for hand in actor.hands:
            hand.notices.clear()
        if resumed and actor.listening and actor.punctual:
            self._claim(actor, actor.free)

    def _listen(self, actor: Actor) -> None:
        async def listen() -> None:
            for hand in actor.hands:
                await hand.listen()

        self.run(listen())
        actor.listening = True
        self._after_notices(actor)

    # -- the model

    def _placed(self, job_id: str, due: Due) -> None:
        now_ms = self.clock.now_ms
        self.where[job_id] = "scheduled"
        self.due_ms[job_id] = max(now_ms, now_ms + due.ms if due.relative else due.ms)

    def _given(self, actor: Actor, leases: Sequence[Sequence[Lease]], lease_ms: int) -> None:
        fences = {lease.fence for lease in leases[0]}
        assert len(fences) <= 1
        for run in zip(*leases, strict=True):
            lease, held = run[0], Held(run)
            job_id = lease.job_id
            assert lease.fence > self.last_fence
            assert lease.fence >= self.clock.now_us
            assert lease.due_ms <= self.clock.now_ms, "never early"
            assert lease.due_ms == self.due_ms[job_id]
            assert self.where[job_id] == ("processing" if lease.recovered else "scheduled")
            self.where[job_id] = "processing"
            self.newest[job_id] = held
            # What it held of this job before it has lost, but does not know.
            actor.held.append(held)
        self.last_fence = max(fences, default=self.last_fence)

    def _claim(
        self, actor: Actor, want: int, lease_ms: int = 2000, request: ClaimRequest | None = None
    ) -> None:
        asked = request or ClaimRequest(want, lease_ms, expected_now_us=self.clock.now_us)

        async def ask(n: int) -> ClaimAnswer:
            return await actor.hands[n].ask(asked)

        answers = self.each(ask)
        self._given(actor, [answer.leases for answer in answers], asked.lease_ms)
        wait_us = answers[0].wait_us
        assert (wait_us is None) == (len(answers[0].leases) == asked.want)
        assert answers[0].paused == self.paused
        actor.look_at_us = None if wait_us is None else self.clock.now_us + wait_us

    def _body(self) -> bytes:
        self.bodies += 1
        return BODIES[self.bodies % 3] + str(self.bodies).encode()

    def _gone(self, job_id: str) -> None:
        self.where[job_id] = "absent"
        self._look_for_marks()

    def _look_for_marks(self) -> None:
        """An absent job may have a done mark of an earlier run, and marks end with time: the store knows."""
        names = [i for i in JOBS if self.where.get(i, "absent") in ("absent", "done")]
        for found in self.all(lambda n: self.twins[n].store.find(names)):
            assert found.was in ("absent", "done")
            self.where[found.job_id] = found.was

    def _end(self, held: Held, n: int, kind: str, due: Due) -> Settlement:
        token = held.tokens[n]
        match kind:
            case "ack" | "ack and remember":
                return Acked(held.job_id, token, remember=kind != "ack")
            case "retry":
                return Deferred(held.job_id, token, due, b"failed")
            case "release":
                return Released(held.job_id, token)
            case _:
                return Buried(held.job_id, token, b"buried")

    def _ended(self, held: Held, kind: str, due: Due) -> None:
        job_id = held.job_id
        del self.newest[job_id]
        match kind:
            case "ack" | "ack and remember":
                self._gone(job_id)
                assert kind == "ack" or self.where[job_id] == "done"
            case "retry":
                self._placed(job_id, due)
            case "release":
                self.where[job_id] = "scheduled"
            case _:
                self.where[job_id] = "dead"

    def _looks_at(self, actor: Actor) -> int | None:
        return actor.look_at_us if actor.listening and actor.punctual else None

    # -- what must hold after each step

    @invariant()
    def hear(self) -> None:
        for actor in self.actors.values():
            self._after_notices(actor)

    @invariant()
    def stores_agree_and_contradict_nothing(self) -> None:
        state = self.all(lambda n: self.twins[n].state())
        assert state.faults() == []
        assert set(state.schedule) == {i for i, was in self.where.items() if was == "scheduled"}
        assert set(state.processing) == {i for i, was in self.where.items() if was == "processing"}
        assert set(state.dead) == {i for i, was in self.where.items() if was == "dead"}
        assert state.schedule == {i: self.due_ms[i] for i in state.schedule}
        assert state.lease == {i: held.tokens[0] for i, held in self.newest.items()}
        assert state.fence == self.last_fence

    @invariant()
    def somebody_looks_in_time(self) -> None:
        """If all that wait are well: one plans to look at the head's time or before, a second soon after."""
        if self.odd or self.paused:
            return
        state = self.run(self.twins[0].state())
        by_id = {actor.id: actor for actor in self.actors.values()}
        waiting = [self._looks_at(by_id[worker]) for worker in state.idle]
        heads = [*state.schedule.values(), *state.processing.values()]
        if None in waiting or not waiting or not heads:
            return
        look_us = sorted(at for at in waiting if at is not None)
        in_time_us = max(min(heads) * 1000, self.clock.now_us)
        assert look_us[0] <= in_time_us
        if len(look_us) > 1:
            assert look_us[1] <= in_time_us + SECOND_SEAT_MS * 1000
