"""Random moves of producers, operators and workers on one shard, on one store or on several side by side.

The promises of the design are checked on every store after each step (`model.py`).
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from aiodq._core.due import Due
from aiodq._core.lifecycle import Place
from aiodq._core.limit import Permit
from aiodq._core.rate import Booking
from aiodq._core.store import ClaimRequest, Entry, Revival
from aiodq._core.unique import Hold, Mode
from tests.property.model import JOBS, WORKERS, ModelMachine
from tests.property.twins import START_US, Actor, Held

LEASES_MS = (100, 2000, 30_000)
KINDS = ("ack", "ack and remember", "retry", "release", "bury")

dues = st.one_of(
    st.sampled_from([0, 1, 99, 100, 101, 1000, 9_999, 10_000, 60_000]).map(Due),
    st.integers(-5_000, 60_000).map(lambda ms: Due(START_US // 1000 + ms, relative=False)),
    st.just(Due(253_402_300_799_999, relative=False)),
)
ids = st.sampled_from(JOBS)
workers = st.sampled_from(WORKERS)
entries = st.lists(st.tuples(ids, dues, st.booleans()), min_size=1, max_size=4)
picks = st.integers(0, 9)
limited = st.lists(
    st.tuples(ids, st.sampled_from(["x", "x:y"]), st.integers(1, 3), st.sampled_from([0, 100, 1000, 60_000])),
    min_size=1,
    max_size=3,
)
modes: st.SearchStrategy[Mode] = st.sampled_from(["first", "last"])
uniques = st.lists(
    st.tuples(ids, dues, st.sampled_from(["n1", "n2"]), st.sampled_from([1, 1000, 60_000]), modes),
    min_size=1,
    max_size=3,
)
bookings = st.lists(
    st.tuples(st.sampled_from(["close", "close:é", "ship"]), st.sampled_from([1, 999, 10_000, 60_000_000])),
    min_size=1,
    max_size=3,
    unique_by=lambda booking: booking[0],
)
places: st.SearchStrategy[Place] = st.sampled_from(["scheduled", "processing", "dead"])


class QueueMachine(ModelMachine):
    """All moves."""

    # -- moves of producers and operators

    @rule(batch=entries)
    def enqueue(self, batch: list[tuple[str, Due, bool]]) -> None:
        asked = [Entry(i, self._body(), due, remember) for i, due, remember in batch]
        for entry, placed in zip(asked, self.all(lambda n: self.twins[n].store.enqueue(asked)), strict=True):
            was = self.where.get(entry.job_id, "absent")
            assert placed.created == (was == "absent" or (was == "done" and not entry.remember))
            assert not placed.replaced
            if placed.created:
                self._placed(entry.job_id, entry.due)
            if was in ("scheduled", "processing"):
                assert placed.due_ms == self.due_ms[entry.job_id]

    @rule(batch=entries)
    def replace(self, batch: list[tuple[str, Due, bool]]) -> None:
        asked = [Entry(i, self._body(), due, remember) for i, due, remember in batch]
        for entry, placed in zip(asked, self.all(lambda n: self.twins[n].store.replace(asked)), strict=True):
            was = self.where.get(entry.job_id, "absent")
            assert placed.created == (was in ("absent", "done"))
            assert placed.replaced == (was in ("scheduled", "dead"))
            if was != "processing":
                self._placed(entry.job_id, entry.due)

    @rule(batch=uniques)
    def unite(self, batch: list[tuple[str, Due, str, int, Mode]]) -> None:
        asked = [Entry(i, self._body(), due, hold=Hold(name, ms, mode)) for i, due, name, ms, mode in batch]
        for entry, placed in zip(asked, self.all(lambda n: self.twins[n].store.unite(asked)), strict=True):
            hold, now_ms = entry.hold, self.clock.now_ms
            assert hold is not None
            till_ms, other = self.holds.get(hold.name, (0, ""))
            was = self.where.get(other, "absent") if till_ms > now_ms else "absent"
            if self.where.get(entry.job_id, "absent") not in ("absent", "done"):
                assert (placed.created, placed.replaced, placed.job_id) == (False, False, None)
            elif was in ("scheduled", "processing") and hold.mode == "first":
                assert (placed.created, placed.replaced, placed.job_id) == (False, False, other)
                assert placed.due_ms == self.due_ms[other]
            elif was == "scheduled":
                assert (placed.created, placed.replaced, placed.job_id) == (False, True, other)
                self._placed(other, entry.due)
                self.due_ms[other] = min(self.due_ms[other], till_ms)
                assert placed.due_ms == self.due_ms[other]
            else:
                assert (placed.created, placed.replaced, placed.job_id) == (True, False, None)
                self._placed(entry.job_id, entry.due)
                self.holds[hold.name] = now_ms + hold.window_ms, entry.job_id

    @rule(moves=st.lists(st.tuples(ids, dues), min_size=1, max_size=3, unique_by=lambda move: move[0]))
    def reschedule(self, moves: list[tuple[str, Due]]) -> None:
        answers = self.all(lambda n: self.twins[n].store.reschedule(moves))
        for (job_id, due), was in zip(moves, answers, strict=True):
            assert was == self.where.get(job_id, "absent")
            if was == "scheduled":
                self._placed(job_id, due)

    @rule(names=st.lists(ids, min_size=1, max_size=3, unique=True))
    def cancel(self, names: list[str]) -> None:
        for job_id, was in zip(names, self.all(lambda n: self.twins[n].store.cancel(names)), strict=True):
            assert was == self.where.get(job_id, "absent")
            if was == "scheduled":
                self._gone(job_id)

    @rule(job_id=ids, due=dues, off=st.sampled_from([0, 0, 0, 1]))
    def replay(self, job_id: str, due: Due, off: int) -> None:
        buried_ms = self.run(self.twins[0].state()).dead.get(job_id, 0) + off
        asked = [Revival(job_id, buried_ms, due, b"replayed")]
        [revived] = self.all(lambda n: self.twins[n].store.replay(asked))
        assert revived == (self.where.get(job_id) == "dead" and off == 0)
        if revived:
            self._placed(job_id, due)

    @rule(job_id=ids)
    def purge(self, job_id: str) -> None:
        [purged] = self.all(lambda n: self.twins[n].store.purge([job_id]))
        assert purged == (self.where.get(job_id) == "dead")
        if purged:
            self._gone(job_id)

    @rule(age_ms=st.sampled_from([0, 1000, 60_000]), count=st.integers(0, 3))
    def trim(self, age_ms: int, count: int) -> None:
        removed = self.all(lambda n: self.twins[n].store.trim(age_ms=age_ms, count=count))
        left = self.run(self.twins[0].state()).dead
        dead = [job_id for job_id, was in self.where.items() if was == "dead"]
        assert len(dead) - removed == len(left) <= count
        for job_id in dead:
            if job_id not in left:
                self._gone(job_id)

    @rule()
    def pause(self) -> None:
        self.all(lambda n: self.twins[n].store.pause("why"))
        self.paused = True

    @rule()
    def resume(self) -> None:
        self.all(lambda n: self.twins[n].store.resume())
        self.paused = False

    @rule(
        place=places,
        limit=st.integers(1, 5),
        offset=st.integers(0, 3),
    )
    def ask(self, place: Place, limit: int, offset: int) -> None:
        self.all(lambda n: self.twins[n].store.find(JOBS))
        self.all(lambda n: self.twins[n].store.stats())
        self.all(lambda n: self.twins[n].store.peek(place, limit=limit, offset=offset))

    # -- moves of workers

    @rule(name=workers, wanted=bookings)
    def admit(self, name: str, wanted: list[tuple[str, int]]) -> None:
        asked = [Booking(bucket, width_us) for bucket, width_us in wanted]
        booked = self.all(lambda n: self.actors[name].hands[n].store.admit(asked))
        assert booked.now_us == self.clock.now_us
        for booking, begins_us in zip(asked, booked.begins_us, strict=True):
            assert begins_us == max(self.booked_us.get(booking.bucket, 0), self.clock.now_us)
            self.booked_us[booking.bucket] = begins_us + booking.width_us

    @rule(name=workers, wanted=limited)
    def occupy(self, name: str, wanted: list[tuple[str, str, int, int]]) -> None:
        now_ms = self.clock.now_ms
        asked = [
            Permit(i, of, limit, self.due_ms.get(i, now_ms), self.due_ms.get(i, now_ms), now_ms + wait_ms)
            for i, of, limit, wait_ms in wanted
        ]
        self.all(lambda n: self.actors[name].hands[n].store.occupy(asked))

    @rule(name=workers, wanted=limited)
    def vacate(self, name: str, wanted: list[tuple[str, str, int, int]]) -> None:
        """Pulls forward only what waits, and only to its own due time."""
        asked = [Permit(i, of, limit) for i, of, limit, _ in wanted]
        before = self.run(self.twins[0].state()).schedule
        moved = self.all(lambda n: self.actors[name].hands[n].store.vacate(asked))
        after = self.run(self.twins[0].state()).schedule
        assert before.keys() == after.keys()
        changed = [i for i in after if after[i] != before[i]]
        assert len(changed) <= moved
        for job_id in changed:
            assert after[job_id] < before[job_id]
            self.due_ms[job_id] = after[job_id]

    @rule(name=workers, lease_ms=st.sampled_from(LEASES_MS))
    def look(self, name: str, lease_ms: int) -> None:
        if self.actors[name].listening:
            self._claim(self.actors[name], self.actors[name].free, lease_ms)

    @rule(name=workers)
    def hand_on(self, name: str) -> None:
        if self.actors[name].listening:
            self._claim(self.actors[name], 0)

    @precondition(lambda self: self.odd)
    @rule(
        name=workers,
        want=st.integers(0, 5),
        off_us=st.sampled_from([None, 0, -2_000_000, 2_000_000, 999_999, -999_999]),
        steady_in_ms=st.sampled_from([0, 0, 1, 500, 5000]),
        far=st.sampled_from([1.0, 1.25, 1.999]),
        max_bytes=st.sampled_from([0, 30, 1000]),
        lease_ms=st.sampled_from(LEASES_MS),
    )
    def odd_claim(
        self,
        name: str,
        want: int,
        off_us: int | None,
        steady_in_ms: int,
        far: float,
        max_bytes: int,
        lease_ms: int,
    ) -> None:
        expected = None if off_us is None else self.clock.now_us + off_us
        request = ClaimRequest(want, lease_ms, max_bytes, expected, steady_in_ms, far)
        self._claim(self.actors[name], want, request=request)

    @rule(
        name=workers,
        chosen=st.lists(st.tuples(picks, st.sampled_from(KINDS), dues), min_size=1, max_size=4),
        claims=st.booleans(),
    )
    def settle(self, name: str, chosen: list[tuple[int, str, Due]], claims: bool) -> None:
        """Ends some runs, among them such as were lost long ago, then looks."""
        actor = self.actors[name]
        ends: list[tuple[Held, str, Due]] = []
        for pick, kind, due in chosen:
            if actor.held:
                ends.append((actor.held.pop(pick % len(actor.held)), kind, due))
        if not ends:
            return
        last = not actor.held

        async def turn(n: int) -> list[bool]:
            return await actor.hands[n].settle(
                *(self._end(h, n, kind, due) for h, kind, due in ends), last=last
            )

        for (held, kind, due), accepted in zip(ends, self.all(turn), strict=True):
            assert accepted == (self.newest.get(held.job_id) is held), "one live lease"
            if accepted:
                self._ended(held, kind, due)
        if claims and actor.listening:
            self._claim(actor, actor.free)

    @rule(name=workers)
    def extend(self, name: str) -> None:
        actor = self.actors[name]

        async def extend(n: int) -> list[bool]:
            pairs = [(held.job_id, held.tokens[n]) for held in actor.held]
            return await actor.hands[n].keeper.extend(pairs, lease_ms=30_000)

        answers = self.all(extend)
        for held, accepted in zip(list(actor.held), answers, strict=True):
            assert accepted == (self.newest.get(held.job_id) is held)
            if not accepted:
                actor.held.remove(held)

    @rule(name=workers)
    def leave(self, name: str) -> None:
        actor = self.actors[name]
        self.all(lambda n: actor.hands[n].store.leave(holds=bool(actor.held)))
        actor.look_at_us = None

    @rule(name=workers)
    def die(self, name: str) -> None:
        """Its leases are left behind, its connections close."""
        actor = self.actors[name]
        self.all(lambda n: self.twins[n].silence(actor.hands[n]))
        actor.listening, actor.look_at_us = False, None
        actor.held.clear()

    @rule(name=workers)
    def come_back(self, name: str) -> None:
        if not self.actors[name].listening:
            self._listen(self.actors[name])

    @rule(name=workers, punctual=st.booleans())
    def stall(self, name: str, punctual: bool) -> None:
        """Its event loop is blocked: it holds its seat, and does not look."""
        actor = self.actors[name]
        if punctual and not actor.punctual and actor.listening:
            actor.punctual = True
            self._claim(actor, actor.free)
        actor.punctual = punctual

    @rule(name=workers)
    def sweep(self, name: str) -> None:
        actor = self.actors[name]
        if not actor.listening:
            return
        answer = self.all(lambda n: actor.hands[n].store.sweep())
        for worker in answer.silent:
            self.run(self._convict(actor, worker))
        if answer.silent:
            self._claim(actor, actor.free)

    async def _convict(self, actor: Actor, worker: str) -> None:
        for hand in actor.hands:
            while await hand.store.convict(worker):
                pass

    # -- time

    @rule(
        ms=st.sampled_from([0, 1, 99, 100, 101, 400, 1000, 2000, 10_000, 31_000, 400_000]),
        us=st.integers(0, 999),
    )
    def wait(self, ms: int, us: int) -> None:
        """Time passes; every worker that is well looks when it planned to."""
        target_us = self.clock.now_us + ms * 1000 + us
        for _ in range(50):
            looks = [
                (at, actor.name)
                for actor in self.actors.values()
                if (at := self._looks_at(actor)) is not None
            ]
            if not looks or min(looks)[0] > target_us:
                break
            at_us, name = min(looks)
            self.run(self._set_time(max(at_us, self.clock.now_us)))
            self._claim(self.actors[name], self.actors[name].free)
            self.hear()
        else:
            # Far too many looks for this while: somebody spins.
            assert ms > 10_000, "workers spin"
        self.run(self._set_time(max(target_us, self.clock.now_us)))
        self._look_for_marks()
