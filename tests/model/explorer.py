"""Visits every state that the model can reach, checks the invariants in each, and tells the way to a failure.

    python -m tests.model.explorer [--slice NAME ...] [--without SAFEGUARD ...]

Invariants: one accepted completion; no acknowledged job vanishes (but what a rewind took and its producer has
not sent again); fences grow; every job is in exactly one place; somebody will wake; and from every state all
jobs can still come to their end.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from typing import Final, cast

from msgspec import Struct

from tests.model.protocol import Protocol
from tests.model.states import SAFEGUARDS, START, Fault, Model, Safeguard, canonical


class Exploration(Struct, frozen=True):
    """`failure`: which invariant failed first, and `path`: the steps to it."""

    states: int
    steps: int
    seconds: float
    failure: str = ""
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = f"{self.states} states, {self.steps} steps, {self.seconds:.1f} s"
        if not self.failure:
            return f"{told}: all invariants hold"
        return "\n".join(
            [f"{told}: {self.failure}, after", *(f"  {n}. {s}" for n, s in enumerate(self.path, 1))]
        )


def failure_of(m: Model) -> str:
    """The invariant that does not hold in this state; empty when all do."""
    if m.violation:
        return m.violation
    for j, job in enumerate(m.server.jobs):
        if job.scheduled and job.processing:
            return f"job {j} is in two places"
        if job.payload != (job.scheduled or job.processing):
            return f"job {j} has a payload without a place, or a place without a payload"
        if job.done > 1:
            return f"job {j} was completed twice"
        if m.told[j] and not job.payload and not job.done and not m.taken[j]:
            return f"acknowledged job {j} vanished"
    return "" if _somebody_wakes(m) else "nobody will wake for the head of the queue"


def _somebody_wakes(m: Model) -> bool:
    """Somebody looks at the head's time or a moment later, is asking just now, or has yet to be told."""
    if not any(job.scheduled for job in m.server.jobs):
        return True
    return any(w.at != "waits" or w.notice is not None or w.timer in ("head", "second") for w in m.workers)


def is_over(m: Model) -> bool:
    """Every job that was promised, and every one that is there, has come to its end."""
    return m.producer == "told" and all(job.done and not job.payload for job in m.server.jobs)


def explore(protocol: Protocol, *, most_states: int = 1_000_000) -> Exploration:
    """Breadth first, so the way to a failure is a shortest one."""
    began = time.monotonic()
    came_from: dict[Model, tuple[Model, str] | None] = {START: None}
    before: dict[Model, list[Model]] = {}
    waiting, steps = deque([START]), 0

    def result(failure: str = "", at: Model | None = None) -> Exploration:
        path: list[str] = []
        while at is not None and (origin := came_from[at]) is not None:
            at, step = origin
            path.append(step)
        seconds = time.monotonic() - began
        return Exploration(len(came_from), steps, seconds, failure, tuple(reversed(path)))

    while waiting:
        m = waiting.popleft()
        for step, after in (*protocol.steps(m), *protocol.copies(m)):
            steps, after = steps + 1, canonical(after)
            before.setdefault(after, []).append(m)
            if after in came_from:
                continue
            came_from[after] = (m, step)
            if failure := failure_of(after):
                return result(failure, after)
            waiting.append(after)
        if len(came_from) > most_states:
            raise RuntimeError(f"more than {most_states} states: the model is not bounded as it should be")
    good = _leading_to([m for m in came_from if is_over(m)], before)
    for m in came_from:
        if m not in good:
            return result("a job can never come to its end", m)
    return result()


def _leading_to(ends: list[Model], before: dict[Model, list[Model]]) -> set[Model]:
    """All states from which one of those can be reached."""
    good, waiting = set(ends), deque(ends)
    while waiting:
        for earlier in before.get(waiting.popleft(), ()):
            if earlier not in good:
                good.add(earlier)
                waiting.append(earlier)
    return good


class Slice(Struct, frozen=True):
    """One part of the state space, small enough to be visited whole."""

    faults: tuple[Fault, ...]
    most_faults: int = 1
    most_expiries: int = 1
    seats: bool = False

    def explore(self, *without: Safeguard) -> Exploration:
        return explore(
            Protocol(
                *without,
                faults=self.faults,
                most_faults=self.most_faults,
                most_expiries=self.most_expiries,
                seats=self.seats,
            )
        )


SLICES: Final[dict[str, Slice]] = {
    "expiry": Slice((), most_expiries=2),
    "lost reply": Slice(("lose reply",)),
    "late copy": Slice(("late copy",)),
    "lost reply and late copy": Slice(("lose reply", "late copy"), most_faults=2, most_expiries=0),
    "replaced worker": Slice(("forget",)),
    "replaced worker and lost reply": Slice(("forget", "lose reply"), most_faults=2, most_expiries=0),
    "clock": Slice(("clock back",)),
    "failover": Slice(("fail over",), most_expiries=0),
    "seats": Slice(("lose notice",), most_expiries=0, seats=True),
}
"""Who waits until when is explored apart from leases: together they are millions of states."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slice", choices=SLICES, nargs="*", default=list(SLICES), help="parts to visit")
    parser.add_argument("--without", nargs="*", default=[], choices=SAFEGUARDS, help="safeguards to take out")
    asked = parser.parse_args()
    failed = False
    for name in cast("list[str]", asked.slice):
        found = SLICES[name].explore(*cast("list[Safeguard]", asked.without))
        print(f"{name}: {found}", flush=True)
        failed = failed or bool(found.failure)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
