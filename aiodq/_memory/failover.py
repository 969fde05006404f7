"""What producers and workers tell again after a failover. A memory has none; this is the scripts' model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from msgspec import Struct

from aiodq._core.lease import parse_token
from aiodq._core.store import Entry
from aiodq._memory.repair import Repairing


class Resent(Struct, frozen=True):
    """An enqueue sent again. `accepted_us`: when the store had taken it in."""

    entry: Entry
    accepted_us: int


class Told(Struct, frozen=True):
    """An ack told again. `sha`: SHA-1 of the payload that was run, hex; `ended_us`: when it was accepted; 0
    if it was not."""

    job_id: str
    token: str
    sha: str
    remember: bool = False
    ended_us: int = 0


class Telling(Repairing):
    """`past` notes when jobs have ended, in µs. `replays`: acks and cancels note it too."""

    replays = False

    def note_past(self, job_ids: Iterable[str], ended_us: int = 0) -> None:
        now_us = self.clock()
        for job_id in job_ids:
            self.past.put(job_id, ended_us or now_us, now_us // 1000)

    def resend(self, again: Sequence[Resent]) -> list[bool]:
        with self.lock:
            now_us = self.clock()
            answers: list[bool] = []
            written: list[int] = []
            for one in again:
                answers.append(self._is_missing(one, now_us // 1000))
                if answers[-1]:
                    self.payload[one.entry.job_id] = one.entry.payload
                    written.append(self.place_anew(one.entry.job_id, one.entry.due, now_us // 1000))
            if written:
                self.watch(min(written), now_us)
            return answers

    def finished(self, told: Sequence[Told]) -> str:
        """One letter each: 1 ended now, 2 had ended or was not there, 0 left as it is."""
        with self.lock:
            bits = [self._finish(one) for one in told]
            now_ms = self.clock() // 1000
            for one, bit in zip(told, bits, strict=True):
                if bit != "0" and one.remember:
                    self.done.put(one.job_id, parse_token(one.token).due_ms, now_ms)
            return "".join(bits)

    def _is_missing(self, one: Resent, now_ms: int) -> bool:
        job_id = one.entry.job_id
        if (self.past.get(job_id, now_ms) or 0) > one.accepted_us:
            return False
        if one.entry.remember and self.done.get(job_id, now_ms) is not None:
            return False
        return job_id not in self.payload

    def _finish(self, one: Told) -> str:
        job_id, now_ms = one.job_id, self.clock() // 1000
        if (self.past.get(job_id, now_ms) or 0) > parse_token(one.token).fence:
            return "2"
        payload = self.payload.get(job_id)
        if self.lease.get(job_id) == one.token:
            self.processing.remove(job_id)
        elif payload is None:
            self.note_past([job_id], one.ended_us)
            return "2"
        elif job_id not in self.schedule or _sha(payload) != one.sha:
            return "0"
        self.schedule.remove(job_id)
        self.lease.pop(job_id, None)
        self.drop(job_id)
        self.note_past([job_id], one.ended_us)
        return "1"


def _sha(payload: bytes) -> str:
    return hashlib.sha1(payload, usedforsecurity=False).hexdigest()
