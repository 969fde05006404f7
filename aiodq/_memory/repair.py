"""The repairs of the consistency check, in the order in which the scripts do them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiodq._core.inspection import (
    DEAD,
    GONE_HOLDER_MS,
    GONE_WAITER_MS,
    PROCESSING,
    SCHEDULE,
    SOUND,
    Diagnosis,
    Orphan,
)
from aiodq._memory.claim import Claiming
from aiodq._memory.scored_set import ScoredSet

DROPS_LEASE: Final = frozenset("smux")


class Repairing(Claiming):
    """Diagnosis and repair of jobs that someone else's hand left in contradiction."""

    def diagnose(self, job_ids: Sequence[str]) -> list[Diagnosis]:
        with self.lock:
            return [self._diagnosis(job_id) for job_id in job_ids]

    def repair(self, job_ids: Sequence[str]) -> list[str]:
        with self.lock:
            now_us = self.clock()
            faults = [self._diagnosis(job_id).fault for job_id in job_ids]
            written: list[int] = []
            for job_id, fault in zip(job_ids, faults, strict=True):
                written += self._mend(job_id, fault, now_us // 1000)
            if written:
                self.watch(min(written), now_us)
            return [SOUND if fault in "ho" else fault for fault in faults]

    def restore(self, orphans: Sequence[Orphan]) -> list[bool]:
        with self.lock:
            now_us = self.clock()
            bits = [self._is_same(orphan) for orphan in orphans]
            for orphan, same in zip(orphans, bits, strict=True):
                if same:
                    self.schedule.put(orphan.job_id, now_us // 1000)
                    self.lease.pop(orphan.job_id, None)
            if any(bits):
                self.watch(now_us // 1000, now_us)
            return bits

    def condemn(self, orphans: Sequence[Orphan]) -> list[bool]:
        with self.lock:
            now_ms = self.clock() // 1000
            bits = [self._is_same(orphan) for orphan in orphans]
            for orphan, same in zip(orphans, bits, strict=True):
                if same:
                    self.dead.put(orphan.job_id, now_ms)
                    self.tally[orphan.job_id] = orphan.tally
                    self.lease.pop(orphan.job_id, None)
            return bits

    def absent(self, listed: str, names: Sequence[str]) -> list[bool]:
        with self.lock:
            return [self._is_gone(listed, name) for name in names]

    def dismiss(self, listed: str, names: Sequence[str]) -> list[bool]:
        with self.lock:
            gone = [self._is_gone(listed, name) for name in names]
            for name, bit in zip(names, gone, strict=True):
                if bit:
                    self._list(listed).remove(name)
            return gone

    def _diagnosis(self, job_id: str) -> Diagnosis:
        s, p, d = job_id in self.schedule, job_id in self.processing, job_id in self.dead
        places = SCHEDULE * s + PROCESSING * p + DEAD * d
        return Diagnosis(self._fault(job_id, s=s, p=p, d=d), places)

    def _fault(self, job_id: str, *, s: bool, p: bool, d: bool) -> str:
        body, held = job_id in self.payload, self.token_of(job_id) is not None
        if s + p + d > 1:
            return "p" if (held and p) or not s else "s"
        if not body and (s or p or d):
            live = p and held and (self.processing.score(job_id) or 0) > self.clock() // 1000
            return "h" if live else "m"
        if p and not held:
            return "u"
        if body and not (s or p or d):
            return "l" if held else "o"
        if job_id in self.lease and not p:
            return "x"
        kept = (self.tally, self.crashes, self.interruptions, self.order)
        return "t" if not body and any(job_id in one for one in kept) else SOUND

    def _mend(self, job_id: str, fault: str, now_ms: int) -> list[int]:
        """Gives the time at which the job can now be claimed, where that is new."""
        written: list[int] = []
        token = self.token_of(job_id)
        if fault == "l" and token is not None:
            written.append(now_ms + token.lease_ms)
            self.processing.put(job_id, written[-1])
        if fault in "sum":
            self.processing.remove(job_id)
        if fault == "u":
            written.append(now_ms)
            self.schedule.put(job_id, now_ms)
        if fault in "pm":
            self.schedule.remove(job_id)
        if fault in "psm":
            self.dead.remove(job_id)
        if fault in DROPS_LEASE:
            self.lease.pop(job_id, None)
        if fault in "mt":
            self.order.pop(job_id, None)
            self.reset(job_id)
        return written

    def _is_same(self, orphan: Orphan) -> bool:
        fault = self._diagnosis(orphan.job_id).fault
        return fault == "o" and self.payload[orphan.job_id] == orphan.payload

    def _list(self, listed: str) -> ScoredSet:
        return self.idle if listed == "idle" else self.workers

    def _is_gone(self, listed: str, name: str) -> bool:
        score = self._list(listed).score(name)
        age_ms = GONE_WAITER_MS if listed == "idle" else GONE_HOLDER_MS
        return score is not None and self.clock() // 1000 - abs(score) > age_ms and not self.heard(name)
