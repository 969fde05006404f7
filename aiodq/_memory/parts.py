"""The data of one shard, and the small parts that its transitions are made of (as `lua/parts/` on a server).

Everything here runs under the shard's lock; nothing here is called from outside.
"""

from __future__ import annotations

from threading import Lock
from typing import Final, Protocol

from aiodq._core.due import Due
from aiodq._core.lease import Token, parse_token
from aiodq._core.store import DEDUPE_MS, REPLAY_MS, SECOND_SEAT_MS, WATCH_CROWD, Found, Notice, Was
from aiodq._memory.clock import Clock
from aiodq._memory.scored_set import NumberedSet, ScoredSet

WATCHED_ENTRIES: Final = 6
"""How many waiting workers `watch` looks at first: two seats, and room for a few that are gone."""

OVERDUE_MS: Final = 200
"""A worker this late to look as planned is deaf, blocked or dead: it counts for no seat."""

RATE_MOST: Final = 1000
"""With so many buckets of rates (or names of unique jobs), and with twice as many as are in use, those whose
time has passed go."""

PUSH_BACK_MS: Final = 5_000
"""Where the plan of an overdue worker goes that still has a receiver."""


class Ear(Protocol):
    """One subscription to a worker's channel."""

    def hear(self, notice: Notice, /) -> bool:
        """Delivers; False: nobody is there any more."""
        ...

    def is_open(self) -> bool: ...


class DoneMarks:
    """Ids of finished jobs and their due times, or when they ended: three buckets in a ring, each one window
    long.

    A mark is kept for one to two windows. A server needs the third bucket as a guard while its clock moves
    within a script; here it only keeps the same form.
    """

    def __init__(self, window_ms: int = DEDUPE_MS) -> None:
        self._window_ms = window_ms
        self._buckets: list[tuple[int, dict[str, int]]] = [(-3, {}), (-3, {}), (-3, {})]

    def put(self, job_id: str, due_ms: int, now_ms: int) -> None:
        window = now_ms // self._window_ms
        if self._buckets[window % 3][0] != window:
            self._buckets[window % 3] = (window, {})
        self._buckets[window % 3][1][job_id] = due_ms

    def get(self, job_id: str, now_ms: int) -> int | None:
        """The due time of the job that finished last under this id; None: no mark."""
        for window, marks in sorted(self._buckets, key=lambda bucket: -bucket[0]):
            if now_ms < (window + 2) * self._window_ms and job_id in marks:
                return marks[job_id]
        return None

    def all(self, now_ms: int) -> dict[str, int]:
        ids = {job_id for _, marks in self._buckets for job_id in marks}
        found = {job_id: self.get(job_id, now_ms) for job_id in ids}
        return {job_id: due_ms for job_id, due_ms in found.items() if due_ms is not None}


class Parts:
    """What one shard holds. Names are those of the keys in DESIGN section 3.

    `order` are the numbers of a first-in-first-out queue, `seq` the last one.
    """

    def __init__(self, clock: Clock, *, fifo: bool = False) -> None:
        self.lock = Lock()
        self.clock = clock
        self.fifo = fifo
        self.schedule = NumberedSet(self._number_of) if fifo else ScoredSet()
        self.order: dict[str, str] = {}
        self.seq = 0
        self.processing = ScoredSet()
        self.dead = ScoredSet()
        self.payload: dict[str, bytes] = {}
        self.lease: dict[str, str] = {}
        self.tally: dict[str, bytes] = {}
        self.crashes: dict[str, int] = {}
        self.interruptions: dict[str, int] = {}
        self.unique: dict[str, tuple[int, str]] = {}
        self.unique_most = RATE_MOST
        self.rate: dict[str, int] = {}
        self.rate_most = RATE_MOST
        self.permits: dict[str, set[str]] = {}
        self.waiting: dict[str, list[tuple[int, int, str]]] = {}
        self.idle = ScoredSet()
        self.workers = ScoredSet()
        self.done = DoneMarks()
        self.past = DoneMarks(REPLAY_MS)
        self.last_fence = 0
        self.paused: str | None = None
        self.ears: dict[str, list[Ear]] = {}

    # -- jobs

    def was(self, job_id: str, now_ms: int) -> Was:
        if job_id in self.schedule:
            return "scheduled"
        if job_id in self.processing:
            return "processing"
        if job_id in self.dead:
            return "dead"
        return "absent" if self.done.get(job_id, now_ms) is None else "done"

    def token_of(self, job_id: str) -> Token | None:
        """The lease's token in parts; None: there is none, or nobody's claim wrote it."""
        try:
            return parse_token(self.lease.get(job_id, ""))
        except ValueError:
            return None

    def found(self, job_id: str, now_ms: int) -> Found:
        was = self.was(job_id, now_ms)
        if was in ("absent", "done"):
            return Found(job_id, was)
        token = self.token_of(job_id) if was == "processing" else None
        places = {"scheduled": self.schedule, "processing": self.processing, "dead": self.dead}
        at_ms = places[was].score(job_id) or 0
        return Found(
            job_id,
            was,
            at_ms=at_ms,
            due_ms=at_ms if was == "scheduled" else token.due_ms if token else None,
            payload=self.payload.get(job_id),
            tally=self.tally.get(job_id),
            crashes=self.crashes.get(job_id, 0),
            interruptions=self.interruptions.get(job_id, 0),
            holder=token.worker if token else None,
        )

    def drop(self, job_id: str) -> None:
        """The job leaves the queue: its place was taken away by the caller, the rest goes with it."""
        self.payload.pop(job_id, None)
        self.order.pop(job_id, None)
        self.reset(job_id)

    def reset(self, job_id: str) -> None:
        self.tally.pop(job_id, None)
        self.crashes.pop(job_id, None)
        self.interruptions.pop(job_id, None)

    def _number_of(self, job_id: str) -> str:
        number = self.order.get(job_id)
        if number is None:
            self.seq = max(self.seq, self.clock() - 1) + 1
            number = self.order[job_id] = f"{self.seq:016d}:"
        return number

    def place_anew(self, job_id: str, due: Due, now_ms: int) -> int:
        """As `place`, for a job that comes new: it comes after all others that are due with it."""
        self.schedule.remove(job_id)
        self.order.pop(job_id, None)
        return self.place(job_id, due, now_ms)

    def place(self, job_id: str, due: Due, now_ms: int) -> int:
        """Puts the job into the schedule, never before the present. Returns its due time."""
        due_ms = max(now_ms, now_ms + due.ms if due.relative else due.ms)
        self.schedule.put(job_id, due_ms)
        return due_ms

    # -- waking

    def publish(self, worker: str, notice: Notice) -> bool:
        """Sends to the worker's own channel. False: it has no receiver."""
        return sum(ear.hear(notice) for ear in self.ears.get(worker, ())) > 0

    def publish_to_all(self, notice: Notice) -> None:
        for worker in self.ears:
            self.publish(worker, notice)

    def heard(self, worker: str) -> bool:
        return any(ear.is_open() for ear in self.ears.get(worker, ()))

    def head(self) -> int | None:
        """The next moment at which something can be claimed, ms."""
        heads = [score for score in (self.schedule.first(), self.processing.first()) if score is not None]
        return min(heads, default=None)

    def watch(self, at_ms: int, now_us: int) -> None:
        """Restores the invariant of `idle`: somebody plans to look at `at_ms` or before, a second one within
        `SECOND_SEAT_MS` after it. A caller that does not look itself has left `idle` before."""
        now_ms = now_us // 1000
        at_ms = max(at_ms, now_ms)
        passed: set[str] = set()
        for most in (WATCHED_ENTRIES, WATCH_CROWD):
            seats, again = [at_ms, at_ms + SECOND_SEAT_MS], False
            for worker, plan in self.idle.page(0, most):
                if not seats:
                    break
                if worker in passed:
                    continue
                overdue = plan < now_ms - OVERDUE_MS
                if not overdue and plan <= seats[0]:
                    seats.pop(0)
                elif not self.publish(worker, Notice("due", max(0, seats[0] * 1000 - now_us))):
                    self.idle.remove(worker)
                    again = True
                elif overdue:
                    self.idle.put(worker, now_ms + PUSH_BACK_MS)
                    passed.add(worker)
                    again = True
                else:
                    self.idle.put(worker, seats.pop(0))
            if not again:
                return
            # Those who are out of the way now may have been the ones to look at the head.
            at_ms = min(at_ms, max(self.head() or at_ms, now_ms))
