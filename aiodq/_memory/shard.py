"""One shard of a queue in memory: a method for each transition of `_core.lifecycle`, and the questions.

Synchronous, and atomic by one lock, because a worker's keeper calls from a thread of its own. Batches are not
cut here: in memory, a call of any length is one step.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from typing import Final

from aiodq._core.backlog import BacklogFull
from aiodq._core.due import Due
from aiodq._core.lease import parse_token
from aiodq._core.lifecycle import Place
from aiodq._core.limit import Granted, Permit
from aiodq._core.rate import Booked, Booking, book
from aiodq._core.settlement import Acked, Buried, Deferred, Released, Settlement
from aiodq._core.store import (
    SILENT_MS,
    UNBOUNDED,
    Bounds,
    Entry,
    Found,
    Notice,
    Page,
    Placed,
    Revival,
    ShardStats,
    SweepAnswer,
    Was,
)
from aiodq._memory.failover import Telling
from aiodq._memory.parts import RATE_MOST, Ear
from aiodq._memory.scored_set import ScoredSet

WAKE_MOST: Final = 10
"""So many of those that wait for a permit are looked at when one comes free."""


class Shard(Telling):
    """The moves of jobs between the places."""

    # -- producers and operators

    def enqueue(self, entries: Sequence[Entry], bounds: Bounds = UNBOUNDED) -> list[Placed]:
        return self._write(entries, self._keep_or_create, bounds)

    def replace(self, entries: Sequence[Entry], bounds: Bounds = UNBOUNDED) -> list[Placed]:
        return self._write(entries, self._replace_or_create, bounds)

    def unite(self, entries: Sequence[Entry], bounds: Bounds = UNBOUNDED) -> list[Placed]:
        answers = self._write(entries, self._unite_or_create, bounds)
        with self.lock:
            now_ms = self.clock() // 1000
            if len(self.unique) > self.unique_most:
                self.unique = {name: held for name, held in self.unique.items() if held[0] > now_ms}
                self.unique_most = max(RATE_MOST, 2 * len(self.unique))
        return answers

    def _write(
        self, entries: Sequence[Entry], put: Callable[[Entry, int], Placed], bounds: Bounds
    ) -> list[Placed]:
        with self.lock:
            if bounds is not UNBOUNDED:
                self._check_room(entries, bounds)
            now_us = self.clock()
            answers = [put(entry, now_us // 1000) for entry in entries]
            written = [answer.due_ms for answer in answers if answer.created or answer.replaced]
            if written:
                self.watch(min(written), now_us)
            return answers

    def _check_room(self, entries: Sequence[Entry], bounds: Bounds) -> None:
        """A server estimates the bytes; here they are counted."""
        fresh = [entry for entry in entries if entry.job_id not in self.payload]
        jobs = len(self.payload) - len(self.dead)
        if bounds.jobs and fresh and jobs + len(fresh) > bounds.jobs:
            raise BacklogFull("jobs", bounds.jobs, jobs)
        used = sum(map(len, self.payload.values())) if bounds.bytes else 0
        if bounds.bytes and fresh and used + sum(len(entry.payload) for entry in fresh) > bounds.bytes:
            raise BacklogFull("bytes", bounds.bytes, used)

    def _keep_or_create(self, entry: Entry, now_ms: int) -> Placed:
        """What someone else's hand left of a job, its payload or its place alone, does not block the id."""
        if entry.job_id not in self.payload:
            self.processing.remove(entry.job_id)
            self.lease.pop(entry.job_id, None)
            self.dead.remove(entry.job_id)
            self.schedule.remove(entry.job_id)
        due_ms = self._due_of(entry.job_id)
        if due_ms is None and entry.remember:
            due_ms = self.done.get(entry.job_id, now_ms)
        if due_ms is not None:
            return Placed(created=False, replaced=False, due_ms=due_ms)
        self.payload[entry.job_id] = entry.payload
        return Placed(created=True, replaced=False, due_ms=self.place_anew(entry.job_id, entry.due, now_ms))

    def _replace_or_create(self, entry: Entry, now_ms: int) -> Placed:
        """Done marks do not count: whoever replaces wants these arguments to be run."""
        due_ms = self._due_of(entry.job_id)
        if entry.job_id in self.processing and due_ms is not None:
            return Placed(created=False, replaced=False, due_ms=due_ms)
        self.dead.remove(entry.job_id)
        self.reset(entry.job_id)
        self.payload[entry.job_id] = entry.payload
        placed_ms = self.place_anew(entry.job_id, entry.due, now_ms)
        return Placed(created=due_ms is None, replaced=due_ms is not None, due_ms=placed_ms)

    def _unite_or_create(self, entry: Entry, now_ms: int) -> Placed:
        """An id that exists is kept; else the job that holds the name is, or gets the arguments and time."""
        hold = entry.hold
        assert hold is not None  # noqa: S101  # narrows the type; `unite` is for those
        job_id, till_ms, replaced = entry.job_id, now_ms + hold.window_ms, False
        if job_id in self.payload:
            due_ms = self._due_of(job_id)
            if due_ms is not None:
                return Placed(created=False, replaced=False, due_ms=due_ms)
        else:
            held_ms, other = self.unique.get(hold.name, (0, ""))
            due_ms = self._due_of(other) if held_ms > now_ms and other not in self.dead else None
            if due_ms is not None and other in self.payload:
                if hold.mode == "first":
                    return Placed(created=False, replaced=False, due_ms=due_ms, job_id=other)
                if other in self.schedule:
                    job_id, till_ms, replaced = other, held_ms, True
                    self.reset(other)
        self.payload[job_id] = entry.payload
        placed_ms = self.place_anew(job_id, entry.due, now_ms)
        if replaced and placed_ms > till_ms:
            placed_ms = self.place(job_id, Due(till_ms, relative=False), now_ms)
        self.unique[hold.name] = till_ms, job_id
        another = None if job_id == entry.job_id else job_id
        return Placed(created=not replaced, replaced=replaced, due_ms=placed_ms, job_id=another)

    def _due_of(self, job_id: str) -> int | None:
        """The due time of a job that has a place; of a dead letter, which has none, when it was buried."""
        token = self.token_of(job_id)
        if token is not None:
            return token.due_ms
        scores = (place.score(job_id) for place in (self.schedule, self.processing, self.dead))
        return next((score for score in scores if score is not None), None)

    def reschedule(self, moves: Sequence[tuple[str, Due]]) -> list[Was]:
        with self.lock:
            now_us = self.clock()
            answers: list[Was] = [self.was(job_id, now_us // 1000) for job_id, _ in moves]
            written = [
                self.place(job_id, due, now_us // 1000)
                for (job_id, due), was in zip(moves, answers, strict=True)
                if was == "scheduled"
            ]
            if written:
                self.watch(min(written), now_us)
            return answers

    def cancel(self, job_ids: Sequence[str]) -> list[Was]:
        with self.lock:
            now_ms = self.clock() // 1000
            answers: list[Was] = [self.was(job_id, now_ms) for job_id in job_ids]
            for job_id in job_ids:
                if self.schedule.remove(job_id):
                    self.drop(job_id)
                    if self.replays:
                        self.note_past([job_id])
            return answers

    def replay(self, revivals: Sequence[Revival]) -> list[bool]:
        with self.lock:
            now_us = self.clock()
            answers: list[bool] = []
            written: list[int] = []
            for revival in revivals:
                same = self.dead.score(revival.job_id) == revival.buried_ms
                answers.append(same and revival.job_id in self.payload)
                if answers[-1]:
                    self.dead.remove(revival.job_id)
                    self.reset(revival.job_id)
                    self.tally[revival.job_id] = revival.tally
                    written.append(self.place(revival.job_id, revival.due, now_us // 1000))
            if written:
                self.watch(min(written), now_us)
            return answers

    def purge(self, job_ids: Sequence[str]) -> list[bool]:
        with self.lock:
            answers = [job_id in self.dead for job_id in job_ids]
            self._remove_dead([job_id for job_id, dead in zip(job_ids, answers, strict=True) if dead])
            return answers

    def _remove_dead(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            self.dead.remove(job_id)
            self.drop(job_id)

    def trim(self, *, age_ms: int, count: int) -> int:
        with self.lock:
            old = self.dead.count_up_to(self.clock() // 1000 - age_ms)
            surplus = max(0, old, len(self.dead) - count)
            self._remove_dead([job_id for job_id, _ in self.dead.page(0, surplus)])
            return surplus

    def pause(self, reason: str) -> None:
        with self.lock:
            self.paused = reason

    def resume(self) -> None:
        with self.lock:
            self.paused = None
            self.publish_to_all(Notice("resume"))

    # -- settlements and renewal: each needs the newest lease's token

    def ack(self, ended: Sequence[Acked]) -> list[bool]:
        with self.lock:
            now_ms = self.clock() // 1000
            answers = self._end_leases(ended)
            for end, mine in zip(ended, answers, strict=True):
                if mine:
                    self.drop(end.job_id)
                    if end.remember:
                        self.done.put(end.job_id, parse_token(end.token).due_ms, now_ms)
                    if self.replays:
                        self.note_past([end.job_id])
            return answers

    def retry(self, ended: Sequence[Deferred]) -> list[bool]:
        with self.lock:
            now_us = self.clock()
            answers = self._end_leases(ended)
            written: list[int] = []
            for end, mine in zip(ended, answers, strict=True):
                if mine:
                    self.tally[end.job_id] = end.tally
                    written.append(self.place(end.job_id, end.due, now_us // 1000))
            if written:
                self.watch(min(written), now_us)
            return answers

    def release(self, ended: Sequence[Released]) -> list[bool]:
        with self.lock:
            now_us = self.clock()
            answers = self._end_leases(ended)
            written: list[int] = []
            for end, mine in zip(ended, answers, strict=True):
                if mine:
                    written.append(parse_token(end.token).due_ms)
                    self.schedule.put(end.job_id, written[-1])
            if written:
                self.watch(min(written), now_us)
            return answers

    def bury(self, ended: Sequence[Buried]) -> list[bool]:
        with self.lock:
            now_ms = self.clock() // 1000
            answers = self._end_leases(ended)
            for end, mine in zip(ended, answers, strict=True):
                if mine:
                    self.tally[end.job_id] = end.tally
                    self.dead.put(end.job_id, now_ms)
            return answers

    def extend(self, worker: str, leases: Sequence[tuple[str, str]], lease_ms: int) -> list[bool]:
        with self.lock:
            now_ms = self.clock() // 1000
            answers = [self.lease.get(job_id) == token for job_id, token in leases]
            for (job_id, _), mine in zip(leases, answers, strict=True):
                if mine:
                    self.processing.put(job_id, now_ms + lease_ms)
            if any(answers):
                if self.heard(worker):
                    self.workers.put(worker, now_ms)
                else:
                    self.workers.remove(worker)
            return answers

    def _end_leases(self, ended: Sequence[Settlement]) -> list[bool]:
        """The fence, for a batch before anything is written: whose token is that of the newest lease."""
        answers = [self.lease.get(end.job_id) == end.token for end in ended]
        for end, mine in zip(ended, answers, strict=True):
            if mine:
                self.lease.pop(end.job_id, None)
                self.processing.remove(end.job_id)
        return answers

    # -- rates

    def admit(self, bookings: Sequence[Booking]) -> Booked:
        with self.lock:
            now_us = self.clock()
            begins_us: list[int] = []
            for booking in bookings:
                until_us = self.rate.get(booking.bucket, 0)
                begins, self.rate[booking.bucket] = book(until_us, now_us, booking.width_us)
                begins_us.append(begins)
            if len(self.rate) > self.rate_most:
                self.rate = {bucket: until for bucket, until in self.rate.items() if until > now_us}
                self.rate_most = max(RATE_MOST, 2 * len(self.rate))
            return Booked(now_us, begins_us)

    # -- limits

    def occupy(self, permits: Sequence[Permit]) -> list[Granted]:
        with self.lock:
            answers: list[Granted] = []
            cleared: set[str] = set()
            for one in permits:
                held = self.permits.setdefault(one.name, set())
                waiting = self.waiting.setdefault(one.name, [])
                row = one.due_ms, one.since_ms, one.job_id
                if row in waiting:
                    waiting.remove(row)
                here = one.job_id in held
                if not here and len(held) >= one.limit and one.name not in cleared:
                    cleared.add(one.name)
                    held.intersection_update({job_id for job_id in held if job_id in self.processing})
                may_run = here or len(held) < one.limit
                if may_run:
                    held.add(one.job_id)
                elif (again := (one.due_ms, one.again_ms, one.job_id)) not in waiting:
                    insort(waiting, again)
                answers.append(Granted(may_run, len(waiting)))
                self._forget_limit(one.name)
            return answers

    def vacate(self, permits: Sequence[Permit]) -> int:
        with self.lock:
            now_us = self.clock()
            written: list[int] = []
            for one in permits:
                held = self.permits.setdefault(one.name, set())
                waiting = self.waiting.setdefault(one.name, [])
                if one.job_id not in self.processing:
                    held.discard(one.job_id)
                room = one.limit - len(held)
                for row in waiting[:WAKE_MOST] if room > 0 else ():
                    due_ms, again_ms, job_id = row
                    at_ms = self.schedule.score(job_id)
                    if at_ms == again_ms and room > 0:
                        self.schedule.put(job_id, due_ms)
                        written.append(due_ms)
                        room -= 1
                        waiting.remove(row)
                    elif at_ms != again_ms and job_id not in self.processing:
                        waiting.remove(row)
                self._forget_limit(one.name)
            if written:
                self.watch(min(written), now_us)
            return len(written)

    def _forget_limit(self, name: str) -> None:
        """A name that nobody runs under or waits for leaves nothing: there may be one for each customer."""
        for kept in (self.permits, self.waiting):
            if not kept.get(name):
                kept.pop(name, None)

    # -- presence of workers

    def subscribe(self, worker: str, ear: Ear) -> None:
        with self.lock:
            self.ears.setdefault(worker, []).append(ear)

    def unsubscribe(self, worker: str, ear: Ear) -> None:
        with self.lock:
            ears = self.ears.get(worker, [])
            if ear in ears:
                ears.remove(ear)
            if not ears:
                self.ears.pop(worker, None)

    def no_longer_holds(self, worker: str) -> None:
        with self.lock:
            self.workers.remove(worker)

    def leave(self, worker: str, *, holds: bool) -> None:
        with self.lock:
            if not holds:
                self.workers.remove(worker)
            self.idle.remove(worker)
            head = self.head()
            if head is not None:
                self.watch(head, self.clock())

    def sweep(self, me: str) -> SweepAnswer:
        with self.lock:
            now_ms = self.clock() // 1000
            silent: list[str] = []
            again: list[int] = []
            for worker, score in list(self.workers):
                if self.heard(worker):
                    self.workers.put(worker, now_ms if score < 0 else score)
                elif worker == me:
                    continue
                elif score >= 0:
                    self.workers.put(worker, -now_ms)
                    again.append(SILENT_MS)
                elif now_ms + score >= SILENT_MS:
                    silent.append(worker)
                else:
                    again.append(SILENT_MS - now_ms - score)
            others = len(self.workers) - (me in self.workers)
            return SweepAnswer(silent, min(again, default=None), others)

    def convict(self, worker: str) -> bool:
        """In memory one call is enough: the answer, whether there are more, is always False."""
        with self.lock:
            now_ms = self.clock() // 1000
            since = self.workers.score(worker)
            if since is None or since >= 0 or now_ms + since < SILENT_MS or self.heard(worker):
                return False
            for job_id, deadline_ms in list(self.processing):
                token = self.token_of(job_id)
                if token is not None and token.worker == worker and deadline_ms > now_ms:
                    self.processing.put(job_id, now_ms)
            self.workers.remove(worker)
            return False

    # -- questions

    def find(self, job_ids: Sequence[str]) -> list[Found]:
        with self.lock:
            now_ms = self.clock() // 1000
            return [self.found(job_id, now_ms) for job_id in job_ids]

    def peek(self, place: Place, *, limit: int, offset: int) -> Page:
        with self.lock:
            now_ms = self.clock() // 1000
            jobs: dict[Place, ScoredSet] = {
                "absent": ScoredSet(),
                "scheduled": self.schedule,
                "processing": self.processing,
                "dead": self.dead,
            }
            return Page(now_ms, [self.found(job_id, now_ms) for job_id, _ in jobs[place].page(offset, limit)])

    def stats(self) -> ShardStats:
        with self.lock:
            now_ms = self.clock() // 1000
            first_due = self.schedule.first()
            return ShardStats(
                now_ms,
                due=self.schedule.count_up_to(now_ms),
                scheduled=len(self.schedule),
                processing=len(self.processing),
                expired=self.processing.count_up_to(now_ms),
                dead=len(self.dead),
                oldest_overdue_ms=0 if first_due is None else max(0, now_ms - first_due),
                paused=self.paused,
                idle=len(self.idle),
                holders=len(self.workers),
            )
