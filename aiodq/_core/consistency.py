"""What a check of a queue can find, in words, and what it may do about it.

Scripts are atomic, so none of this comes about by the queue's own work: it is left by an evicting server, a
restored snapshot, or someone else's hand. Which combinations of places, payload and lease contradict each
other is told by `diagnose` on the store; this module names them for people, and sums them up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

from aiodq._core.inspection import DEAD, PROCESSING, SCHEDULE, Diagnosis
from aiodq._core.tally import Tally

FaultKind: TypeAlias = Literal[
    "two-places",
    "no-payload",
    "no-place",
    "no-lease",
    "stray-lease",
    "stray-counters",
    "stale-waiter",
    "stale-holder",
    "wrong-type",
]
"""What contradicts itself: a job in two places; a place without a payload; a payload without a place; a run
without a lease; a lease, or counters, without a run or job; a worker in the lists that is long gone; a key
that is not what it must be."""

MOST_LISTED: Final = 1000
"""So many findings are kept one by one; those beyond are only counted."""


class Finding(Struct, frozen=True):
    """One fault.

    Attributes:
        kind: which, for programs.
        subject: the job's id, the worker's, or the key.
        what: what is wrong, for people.
        done: what was done about it, for people; empty: nothing, it is still there.
        repaired: it is gone now.
    """

    kind: FaultKind
    subject: str
    what: str
    done: str = ""
    repaired: bool = False

    def __str__(self) -> str:
        return f"{self.subject}: {self.what}" + (f"; {self.done}" if self.done else "")


class CheckReport(Struct, frozen=True):
    """What a check of a queue found.

    Attributes:
        checked: how many entries of the queue's keys were looked at; a job has two or three.
        found: how many faults there were, by kind.
        repaired: how many of them are gone now.
        findings: the first thousand of them.
    """

    queue: str
    checked: int = 0
    found: Mapping[FaultKind, int] = field(default_factory=lambda: MappingProxyType({}))
    repaired: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def left(self) -> int:
        """How many faults are still there."""
        return sum(self.found.values()) - self.repaired

    @property
    def ok(self) -> bool:
        """No fault is left."""
        return self.left == 0


def merged(queue: str, reports: Sequence[CheckReport]) -> CheckReport:
    """The reports of a queue's shards as one."""
    found: dict[FaultKind, int] = {}
    for report in reports:
        for kind, count in report.found.items():
            found[kind] = found.get(kind, 0) + count
    findings = [finding for report in reports for finding in report.findings]
    return CheckReport(
        queue,
        sum(report.checked for report in reports),
        MappingProxyType(dict(sorted(found.items()))),
        sum(report.repaired for report in reports),
        tuple(findings[:MOST_LISTED]),
    )


class Sum:
    """A report in the making."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._findings: list[Finding] = []
        self._found: dict[FaultKind, int] = {}
        self._repaired = 0
        self.checked = 0

    def add(self, finding: Finding) -> None:
        self._found[finding.kind] = self._found.get(finding.kind, 0) + 1
        self._repaired += finding.repaired
        if len(self._findings) < MOST_LISTED:
            self._findings.append(finding)

    def report(self) -> CheckReport:
        found = MappingProxyType(dict(sorted(self._found.items())))
        return CheckReport(self._queue, self.checked, found, self._repaired, tuple(self._findings))


_PLACES: Final = {SCHEDULE: "the schedule", PROCESSING: "processing", DEAD: "the dead letters"}

_KINDS: Final[dict[str, FaultKind]] = {
    "p": "two-places",
    "s": "two-places",
    "m": "no-payload",
    "h": "no-payload",
    "o": "no-place",
    "l": "stray-lease",
    "u": "no-lease",
    "x": "stray-lease",
    "t": "stray-counters",
}

_DONE: Final = {
    "p": "its run counts: taken out of the other place",
    "s": "it waits in the schedule, and is taken out of the other place",
    "m": "removed, since nothing can be run",
    "l": "its run is back in processing; if its worker is gone, the lease runs out and the job is run again",
    "u": "scheduled again, due now",
    "x": "the lease is dropped",
    "t": "the counters are dropped",
}
"""What `repair` does about each fault; `h` is left alone, and `o` needs a look at the payload."""

RESTORED: Final = "scheduled again, due now"
CONDEMNED: Final = "put to the dead letters"


def found(job_id: str, diagnosis: Diagnosis, tally: Tally, *, done: str = "") -> Finding:
    """The finding about a job."""
    what = _what(diagnosis, tally)
    return Finding(_KINDS[diagnosis.fault], job_id, what, done, repaired=bool(done))


def done_about(fault: str) -> str:
    """What `repair` did about a fault, if it did anything."""
    return _DONE.get(fault, "")


def _what(diagnosis: Diagnosis, tally: Tally) -> str:
    places = [name for bit, name in _PLACES.items() if diagnosis.places & bit]
    match diagnosis.fault:
        case "p" | "s":
            return f"is in {' and in '.join(places)} at once"
        case "h":
            return "has lost its payload while a worker runs it; left to that worker, which still has it"
        case "m":
            reason = f" (buried: {tally.reason})" if tally.reason else ""
            return f"is in {places[0]}, but has no payload{reason}"
        case "o":
            return "has a payload, but is in no place: nobody would ever run it"
        case "l":
            return "has a lease and a payload, but is in no place"
        case "u":
            return "is in processing, but no readable lease says who holds it"
        case "x":
            return f"has a lease, but is in {places[0]}" if places else "has a lease, but no payload or place"
        case _:
            return "has counters, but does not exist"


def found_worker(worker: str, listed: Literal["idle", "workers"], *, repaired: bool) -> Finding:
    """The finding about a worker that is gone."""
    done = "taken off the list" if repaired else ""
    if listed == "idle":
        what = "is listed as waiting, but nobody hears under its name, and its look is long overdue"
        return Finding("stale-waiter", worker, what, done, repaired)
    what = "is listed as holding leases, but holds none, and nobody hears under its name"
    return Finding("stale-holder", worker, what, done, repaired)


def found_key(name: str, is_: str, must_be: str, *, repaired: bool) -> Finding:
    """The finding about a key of another type."""
    done = "removed; workers write it anew" if repaired else ""
    what = f"the key is a {is_} and must be a {must_be}"
    if not repaired:
        what += ": no script works with it, so restore it or remove it by hand"
    return Finding("wrong-type", name, what, done, repaired)
