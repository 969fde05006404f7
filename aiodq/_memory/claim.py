"""The claim: due jobs and expired leases are handed out; whoever has slots left takes a seat."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from aiodq._core.lease import Lease, Token
from aiodq._core.store import (
    BATCH,
    CLOCK_STEP_US,
    DEAF_POLL_MS,
    SECOND_SEAT_MS,
    STEADY_MS,
    ClaimAnswer,
    ClaimRequest,
    Notice,
)
from aiodq._memory.parts import OVERDUE_MS, Parts

FAR_PER_IDLE_MS: Final = 2_000
"""A worker without a seat looks after `far` times the greater of its cap and this per other waiting worker:
somebody looks every two to three seconds, whatever the size of the fleet."""


class _Call(Struct, frozen=True):
    """One claim, with what was found out before anything was given."""

    worker: str
    claim_id: str
    request: ClaimRequest
    now_us: int
    heard: bool
    hold_ms: int
    """How long the caller must leave expired leases alone; 0: it may take them."""

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000


class Claiming(Parts):
    """The transition `claim`, in the order in which the script does it."""

    def claim(self, worker: str, claim_id: str, request: ClaimRequest) -> ClaimAnswer:
        """Gives at most `BATCH` jobs. `claim_id` must differ from that of the worker's other claims."""
        with self.lock:
            now_us = self.clock()
            expected = request.expected_now_us
            stepped = expected is not None and abs(now_us - expected) > CLOCK_STEP_US
            behind = expected is None or now_us < expected
            clamp_next = self._clamp(
                0 if behind and (stepped or expected is None) else request.clamp_from, now_us // 1000
            )
            if stepped:
                self.publish_to_all(Notice("renew"))
            self.idle.remove(worker)
            if self.paused is not None:
                wait_us = None if request.want == 0 else request.cap_ms * 1000
                return ClaimAnswer(now_us, [], wait_us, paused=True, stepped=stepped, clamp_next=clamp_next)
            hold_ms = max(request.steady_in_ms, STEADY_MS) if stepped else request.steady_in_ms
            call = _Call(worker, claim_id, request, now_us, self.heard(worker), hold_ms)
            if not call.heard:
                self.workers.remove(worker)
            leases = self._give(call)
            wait_us, seat = self._settle_down(call, given=len(leases))
            return ClaimAnswer(
                now_us,
                leases,
                wait_us,
                seat=seat,
                others=len(self.workers) - (worker in self.workers),
                deaf=not call.heard,
                stepped=stepped,
                clamp_next=clamp_next,
                clear=self._clear(now_us // 1000),
            )

    def _clamp(self, start: int, now_ms: int) -> int:
        """Pulls in leases that reach further ahead than their own length: the clock went back meanwhile.

        One page, latest deadline first, from the rank `start` on; returns where to go on, -1 when done.
        """
        if start < 0:
            return -1
        page = self.processing.page_from_end(start, BATCH)
        pulled = 0
        for job_id, deadline_ms in page:
            token = self.token_of(job_id)
            most_ms = now_ms + (token.lease_ms if token else 0)
            if deadline_ms > most_ms:
                self.processing.put(job_id, most_ms)
                pulled += 1
        return start + BATCH - pulled if len(page) == BATCH else -1

    def _clear(self, now_ms: int) -> bool:
        deadline_ms = self.processing.first()
        return deadline_ms is None or deadline_ms > now_ms

    def _lift(self, call: _Call) -> bool:
        """Gives leases that ended before the caller saw that none had ended their whole length from now: they
        were renewed while the clock was back, and their holders may live. One page; returns whether there
        were any."""
        clear_ms = call.request.clear_ms
        if clear_ms > call.now_ms:
            return False
        page = self.processing.up_to(clear_ms - 1, BATCH)
        for job_id, _ in page:
            token = self.token_of(job_id)
            self.processing.put(job_id, call.now_ms + (token.lease_ms if token else 0))
        return bool(page)

    def _give(self, call: _Call) -> list[Lease]:
        now_ms, want = call.now_ms, min(call.request.want, BATCH)
        due = self.schedule.up_to(now_ms, want)
        expired: list[tuple[str, int]] = []
        if want and call.hold_ms == 0 and not self._lift(call):
            # the oldest work first, but a heap of lapsed long jobs must not starve the rest
            expired = self.processing.up_to(now_ms, max(want - len(due), -(-want // 2)))
        found = self._within_budget([*expired, *due][:want], call.request.max_bytes)
        if not found:
            return []
        self.last_fence = max(self.last_fence + 1, call.now_us)
        leases = [self._lease(call, job_id, score) for job_id, score in found]
        if call.heard:
            self.workers.put(call.worker, now_ms)
        return leases

    def _within_budget(self, found: list[tuple[str, int]], max_bytes: int) -> list[tuple[str, int]]:
        spent = 0
        for count, (job_id, _) in enumerate(found):
            spent += len(self.payload.get(job_id, b""))
            if count and spent > max_bytes:
                return found[:count]
        return found

    def _lease(self, call: _Call, job_id: str, score: int) -> Lease:
        recovered = not self.schedule.remove(job_id)
        old = self.token_of(job_id) if recovered else None
        if recovered:
            # a crash only where the old holder is silent and silence can be told
            silent = call.heard and old is not None and not self.heard(old.worker)
            counter = self.crashes if silent else self.interruptions
            counter[job_id] = counter.get(job_id, 0) + 1
        due_ms = old.due_ms if old else score
        token = str(Token(self.last_fence, due_ms, call.request.lease_ms, call.worker, call.claim_id))
        self.lease[job_id] = token
        self.processing.put(job_id, call.now_ms + call.request.lease_ms)
        return Lease(
            job_id,
            token,
            self.last_fence,
            due_ms,
            self.payload.get(job_id),
            tally=self.tally.get(job_id),
            crashes=self.crashes.get(job_id, 0),
            interruptions=self.interruptions.get(job_id, 0),
            recovered=recovered,
        )

    def _settle_down(self, call: _Call, *, given: int) -> tuple[int | None, int]:
        """What the worker does next: how long it sleeps in µs (None: it is full), and its seat."""
        now_ms = call.now_ms
        if given >= call.request.want:
            head_ms = self.head()
            if head_ms is not None:
                self.watch(head_ms, call.now_us)
            return None, 0
        look_ms = max(now_ms, self._next_look(call))
        if not call.heard:
            return max(0, min(look_ms, now_ms + DEAF_POLL_MS) * 1000 - call.now_us), 0
        plan_ms, seat = self._free_seat(call, look_ms)
        self.idle.put(call.worker, plan_ms)
        return max(0, plan_ms * 1000 - call.now_us), seat

    def _next_look(self, call: _Call) -> int:
        """The head's time; of an expired lease that the caller may not take yet, the time when it may."""
        look_ms = call.now_ms + call.request.cap_ms
        due_ms, deadline_ms = self.schedule.first(), self.processing.first()
        if due_ms is not None:
            look_ms = min(look_ms, due_ms)
        if deadline_ms is not None:
            allowed_ms = call.now_ms + max(1, call.hold_ms)
            look_ms = min(look_ms, deadline_ms if deadline_ms > call.now_ms else allowed_ms)
        return look_ms

    def _free_seat(self, call: _Call, look_ms: int) -> tuple[int, int]:
        """The plan, ms, and the seat. The two counts must differ: counting up to the second seat's time for
        both would let a worker defer to the deputy of a later job."""
        earliest_ms = call.now_ms - OVERDUE_MS
        if not self.idle.between(earliest_ms, look_ms):
            return look_ms, 1
        second_ms = look_ms + SECOND_SEAT_MS
        if len(self.idle.between(earliest_ms, second_ms)) == 1:
            return second_ms, 2
        far_ms = (
            int(call.request.far * 1000) * max(call.request.cap_ms, FAR_PER_IDLE_MS * len(self.idle)) // 1000
        )
        return call.now_ms + far_ms, 0
