"""The claim: due jobs and expired leases are handed out; whoever has slots left takes a seat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiodq._core.lease import Lease, Token
from aiodq._core.store import (
    BATCH,
    CLOCK_STEP_US,
    FIRST_SEAT_CAP_MS,
    SECOND_SEAT_MS,
    ClaimAnswer,
    ClaimRequest,
    Notice,
)
from aiodq._memory.parts import OVERDUE_MS, Parts

FAR_FLOOR_MS: Final = 10_000
FAR_PER_IDLE_MS: Final = 2_000
"""A worker without a seat looks after `far` times the greater of the floor and this per waiting worker, so
that somebody looks every two to three seconds, whatever the size of the fleet."""

DEAF_POLL_MS: Final = 1_000


class Claiming(Parts):
    """The transition `claim`, in the order in which the script does it."""

    def claim(self, worker: str, claim_id: str, request: ClaimRequest) -> ClaimAnswer:
        """Gives at most `BATCH` jobs. `claim_id` must differ from that of the worker's other claims."""
        with self.lock:
            now_us = self.clock()
            expected = request.expected_now_us
            stepped = expected is not None and now_us - expected > CLOCK_STEP_US
            behind = expected is None or expected - now_us > CLOCK_STEP_US
            clamp_next = self._clamp(0 if behind else request.clamp_from, now_us // 1000)
            if stepped:
                self.publish_to_all(Notice("renew"))
            leases: list[Lease] = []
            if self.paused is None:
                recover = request.steady_in_ms <= 0 and not stepped
                leases = self._give(worker, claim_id, request, now_us, recover=recover)
            wait_us, seat, deaf = self._settle_down(worker, request, now_us, given=len(leases))
            return ClaimAnswer(
                now_us,
                leases,
                wait_us,
                seat=seat,
                others=len(self.workers) - (worker in self.workers),
                paused=self.paused is not None,
                deaf=deaf,
                stepped=stepped,
                clamp_next=clamp_next,
            )

    def _clamp(self, start: int, now_ms: int) -> int:
        """Pulls in leases that reach further ahead than their own length: the clock went back meanwhile.

        One page; returns the rank to go on from, -1 when done. Those pulled in only move to lower ranks.
        """
        if start < 0:
            return -1
        page = self.processing.page(start, BATCH)
        for job_id, deadline_ms in page:
            token = self.token_of(job_id)
            if token is not None and deadline_ms > now_ms + token.lease_ms:
                self.processing.put(job_id, now_ms + token.lease_ms)
        return start + BATCH if len(page) == BATCH else -1

    def _give(
        self, worker: str, claim_id: str, request: ClaimRequest, now_us: int, *, recover: bool
    ) -> list[Lease]:
        now_ms = now_us // 1000
        want = min(request.want, BATCH)
        first_due = self.schedule.first()
        expired: list[tuple[str, int]] = []
        if recover:
            due_jobs_wait = first_due is not None and first_due <= now_ms
            expired = self.processing.up_to(now_ms, -(-want // 2) if due_jobs_wait else want)
        due = self.schedule.up_to(now_ms, want - len(expired))
        found = self._within_budget([*expired, *due], request.max_bytes)
        if not found:
            return []
        self.last_fence = max(self.last_fence + 1, now_us)
        heard = {worker: True}
        leases: list[Lease] = []
        for job_id, score in found:
            old = self._take_over(job_id, heard) if job_id in self.processing else None
            recovered = not self.schedule.remove(job_id)
            due_ms = old.due_ms if old else score
            token = str(Token(self.last_fence, due_ms, request.lease_ms, worker, claim_id))
            self.lease[job_id] = token
            self.processing.put(job_id, now_ms + request.lease_ms)
            leases.append(
                Lease(
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
            )
        if self.heard(worker):
            self.workers.put(worker, now_ms)
        return leases

    def _within_budget(self, found: Sequence[tuple[str, int]], max_bytes: int) -> list[tuple[str, int]]:
        spent = 0
        for count, (job_id, _) in enumerate(found):
            spent += len(self.payload.get(job_id, b""))
            if count and spent > max_bytes:
                return list(found[:count])
        return list(found)

    def _take_over(self, job_id: str, heard: dict[str, bool]) -> Token | None:
        """Counts the lost lease: a crash if its holder's channel is silent, else an interruption."""
        old = self.token_of(job_id)
        if old is None:
            return None
        if heard.setdefault(old.worker, self.heard(old.worker)):
            self.interruptions[job_id] = self.interruptions.get(job_id, 0) + 1
        else:
            self.crashes[job_id] = self.crashes.get(job_id, 0) + 1
        return old

    def _settle_down(
        self, worker: str, request: ClaimRequest, now_us: int, *, given: int
    ) -> tuple[int | None, int, bool]:
        """What the worker does next: (how long it sleeps in µs or None, its seat, whether it is deaf)."""
        now_ms = now_us // 1000
        self.idle.remove(worker)
        full = given >= request.want
        if self.paused is not None:
            return (None if request.want == 0 else FIRST_SEAT_CAP_MS * 1000), 0, False
        if full:
            head = self.head()
            if head is not None:
                self.watch(head, now_us)
            return None, 0, False
        look_ms = self._next_look(request, now_ms)
        if not self.heard(worker):
            return max(0, min(look_ms, now_ms + DEAF_POLL_MS) * 1000 - now_us), 0, True
        plan_ms, seat = look_ms, 1
        if self.idle.between(now_ms - OVERDUE_MS, look_ms):
            plan_ms, seat = look_ms + SECOND_SEAT_MS, 2
            if len(self.idle.between(now_ms - OVERDUE_MS, plan_ms)) > 1:
                far_ms = request.far * max(FAR_FLOOR_MS, FAR_PER_IDLE_MS * (len(self.idle) + 1))
                plan_ms, seat = now_ms + int(far_ms), 0
        self.idle.put(worker, plan_ms)
        return max(0, plan_ms * 1000 - now_us), seat, False

    def _next_look(self, request: ClaimRequest, now_ms: int) -> int:
        """The head's time, as far as this worker may act: an unsteady one cannot take expired leases yet."""
        look_ms = now_ms + FIRST_SEAT_CAP_MS
        due_ms, deadline_ms = self.schedule.first(), self.processing.first()
        if due_ms is not None:
            look_ms = min(look_ms, due_ms)
        if deadline_ms is not None:
            look_ms = min(look_ms, max(deadline_ms, now_ms + request.steady_in_ms))
        return look_ms
