"""Decides from what was written down whether the promises were kept, in the classes of Jepsen's queue checks.

Harmless: `ok` (acknowledged, and ended exactly as its outcomes say), `recovered` (not acknowledged, and
written all the same), `duplicated` (run again although an earlier run had not asked for it) as far as a fault
that hit the earlier run explains it.

Broken promises: `lost`, `stuck`, `unexpected`, `early`, `double_acked`, `overlapping` (two live leases),
`stale` (a write accepted from a holder whose job had passed on), `misplaced` (two places, no place, left-over
keys), `unexplained` (run again for no reason). `late` is judged by the test.

Each job id is expected to be used for one job only.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from tests.fault.events import (
    Asked,
    Cancelled,
    Cancelling,
    Claimed,
    Enqueued,
    Event,
    Fault,
    Renewed,
    Settled,
    Settling,
    Started,
)
from tests.shards import State

TERMINAL: Final = ("ack", "bury")

BREAKS_LEASES: Final = frozenset({"kill", "clock", "failover", "data loss"})
"""Faults after which a lease may pass on before its deadline: its holder is known to be dead, or the server's
time or memory of it went back."""

AFTERMATH_MS: Final = 3000
"""For so long after a fault connections may still be on their way back."""

BROKEN: Final = (
    "lost",
    "stuck",
    "unexpected",
    "early",
    "double_acked",
    "overlapping",
    "stale",
    "misplaced",
    "unexplained",
)


class Verdict(Struct):
    """Job ids by class, and counts. `misplaced` holds sentences instead of ids."""

    ok: list[str] = []
    lost: list[str] = []
    stuck: list[str] = []
    unexpected: list[str] = []
    duplicated: list[str] = []
    unexplained: list[str] = []
    recovered: list[str] = []
    early: list[str] = []
    late: list[str] = []
    double_acked: list[str] = []
    overlapping: list[str] = []
    stale: list[str] = []
    misplaced: list[str] = []
    acknowledged: int = 0
    runs: int = 0
    faults: dict[str, int] = {}

    def broken(self) -> dict[str, list[str]]:
        """The broken promises; empty when all were kept."""
        return {name: found for name in BROKEN if (found := getattr(self, name))}

    def __str__(self) -> str:
        lines = [f"{self.acknowledged} jobs acknowledged, {self.runs} runs"]
        if self.faults:
            told = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
            lines.append(f"{sum(self.faults.values())} faults: {told}")
        lines.append(
            f"ok {len(self.ok)}, recovered {len(self.recovered)}, duplicated {len(self.duplicated)}, "
            f"late {len(self.late)}"
        )
        lines.append(", ".join(f"{name} {len(getattr(self, name))}" for name in BROKEN))
        return "\n".join(lines)


def summed(verdicts: Sequence[Verdict]) -> Verdict:
    """Several runs as one."""
    total = Verdict()
    for verdict in verdicts:
        for field in msgspec.structs.fields(Verdict):
            if field.name != "faults":
                setattr(total, field.name, getattr(total, field.name) + getattr(verdict, field.name))
        total.faults = dict(Counter(total.faults) + Counter(verdict.faults))
    return total


class Job:
    """All that was written down of one job."""

    def __init__(self) -> None:
        self.asked = False
        self.answers: list[Enqueued] = []
        self.cancelling = False
        self.cancelled: Cancelled | None = None
        self.claims: list[Claimed] = []
        self.starts: list[Started] = []
        self.settling: list[Settling] = []
        self.settled: list[Settled] = []
        self.renewed: list[Renewed] = []

    def ended(self, fence: int, *endings: str) -> bool:
        """Whether a settlement of this claim was accepted, or may have been: its answer is not known."""
        answered = [s for s in self.settled if s.fence == fence]
        if any(s.accepted and s.ending in endings for s in answered):
            return True
        return not answered and any(s.fence == fence and s.ending in endings for s in self.settling)

    @property
    def acks(self) -> int:
        return sum(s.accepted and s.ending in TERMINAL for s in self.settled)

    @property
    def may_be_over(self) -> bool:
        """Something that would have ended it was sent and never answered."""
        return self.cancelling or any(self.ended(s.fence, *TERMINAL) for s in self.settling)


def check(
    events: Iterable[Event],
    final: State | None = None,
    *,
    late_ms: float = 1000.0,
    breaks_leases: frozenset[str] = BREAKS_LEASES,
    tolerance_ms: float = 0.0,
) -> Verdict:
    """Judges a whole run, after it has come to rest.

    Args:
        final: what the queue held at the end; None: nothing.
        breaks_leases: kinds of faults after which a lease may pass on early; with presence also those that
            close sockets for longer than its grace.
        late_ms: a first start later than this after its due time is `late`.
        tolerance_ms: by how much the clocks of this machine and the server may differ in what was written.
    """
    jobs, faults = _gather(events)
    final = final or State()
    verdict = Verdict(faults=dict(Counter(fault.kind for fault in faults)))
    verdict.misplaced += final.faults()
    for job_id, job in sorted(jobs.items()):
        job.claims.sort(key=lambda claim: claim.fence)
        verdict.acknowledged += bool(job.answers)
        verdict.runs += len(job.starts)
        _judge_end(verdict, job_id, job, final)
        _judge_times(verdict, job_id, job, late_ms, tolerance_ms)
        _judge_leases(verdict, job_id, job, [f for f in faults if f.kind in breaks_leases], tolerance_ms)
        _judge_runs(verdict, job_id, job, faults)
    return verdict


def _gather(events: Iterable[Event]) -> tuple[dict[str, Job], list[Fault]]:
    jobs: defaultdict[str, Job] = defaultdict(Job)
    faults: list[Fault] = []
    for event in events:
        match event:
            case Fault():
                faults.append(event)
            case Asked():
                jobs[event.job_id].asked = True
            case Enqueued():
                jobs[event.job_id].answers.append(event)
            case Cancelling():
                jobs[event.job_id].cancelling = True
            case Cancelled():
                jobs[event.job_id].cancelled = event
            case Claimed():
                jobs[event.job_id].claims.append(event)
            case Started():
                jobs[event.job_id].starts.append(event)
            case Settling():
                jobs[event.job_id].settling.append(event)
            case Settled():
                jobs[event.job_id].settled.append(event)
            case Renewed():
                jobs[event.job_id].renewed.append(event)
            case _:
                pass
    return dict(jobs), faults


def _judge_end(verdict: Verdict, job_id: str, job: Job, final: State) -> None:
    waits = job_id in final.schedule or job_id in final.processing
    if not job.asked and not job.answers:
        verdict.unexpected.append(job_id)
        return
    if job.acks > 1:
        verdict.double_acked.append(job_id)
    if not job.answers:
        if not job.claims and not waits:
            return  # refused or never written: nobody was promised anything
        verdict.recovered.append(job_id)
    run_after_all = job.cancelled is not None and any(c.at_ms > job.cancelled.at_ms for c in job.claims)
    if run_after_all or (job_id in final.dead and not any(job.ended(c.fence, "bury") for c in job.claims)):
        verdict.unexpected.append(job_id)
    elif waits:
        # Also one that was acked, and is there again.
        verdict.stuck.append(job_id)
    elif job.acks or job.cancelled is not None or job.may_be_over:
        verdict.ok.append(job_id)
    else:
        verdict.lost.append(job_id)


def _judge_times(verdict: Verdict, job_id: str, job: Job, late_ms: float, tolerance_ms: float) -> None:
    due_ms = {claim.fence: claim.due_ms for claim in job.claims}
    promised_ms = min((answer.due_ms for answer in job.answers if answer.created), default=0)
    claimed_early = any(c.at_ms < max(c.due_ms, promised_ms) for c in job.claims)
    started_early = any(s.at_ms + tolerance_ms < max(due_ms.get(s.fence, 0), promised_ms) for s in job.starts)
    if claimed_early or started_early:
        verdict.early.append(job_id)
    if job.starts and promised_ms and min(s.at_ms for s in job.starts) > promised_ms + late_ms:
        verdict.late.append(job_id)


def _judge_leases(
    verdict: Verdict, job_id: str, job: Job, faults: Sequence[Fault], tolerance_ms: float
) -> None:
    for former, latter in itertools.pairwise(job.claims):
        if former.fence == latter.fence:
            verdict.overlapping.append(job_id)
        elif not job.ended(former.fence, "ack", "retry", "release", "bury"):
            renewals = [r.sent_ms for r in job.renewed if r.fence == former.fence and r.accepted]
            # Deadlines are whole milliseconds on the server.
            live_until_ms = int(max([former.at_ms, *renewals])) + former.lease_ms
            if latter.at_ms + tolerance_ms < live_until_ms and not _broken(faults, former, latter.at_ms):
                verdict.overlapping.append(job_id)
    writes: list[Settled | Renewed] = [*job.settled, *job.renewed]
    for write in writes:
        passed_on = [c.at_ms for c in job.claims if c.fence > write.fence]
        if write.accepted and passed_on and min(passed_on) + tolerance_ms < write.sent_ms:
            verdict.stale.append(job_id)
            break


def _broken(faults: Sequence[Fault], claim: Claimed, until_ms: float) -> bool:
    """Whether one of these faults hit the claim's worker at a time when that could end the lease."""
    return any(
        fault.worker in ("", claim.worker)
        and fault.at_ms <= until_ms
        and (fault.kind == "kill" or max(fault.at_ms, fault.until_ms) + AFTERMATH_MS >= claim.at_ms)
        for fault in faults
    )


def _judge_runs(verdict: Verdict, job_id: str, job: Job, faults: Sequence[Fault]) -> None:
    """A job is run again without a word from the run before only if a fault hit that run."""
    starts = sorted(job.starts, key=lambda start: start.fence)
    for former, latter in itertools.pairwise(starts):
        if job.ended(former.fence, "retry", "release"):
            continue
        if job_id not in verdict.duplicated:
            verdict.duplicated.append(job_id)
        if not any(_hit(fault, former, latter.at_ms) for fault in faults):
            verdict.unexplained.append(job_id)
            break


def _hit(fault: Fault, run: Started, until_ms: float) -> bool:
    begins, ends = fault.at_ms, max(fault.until_ms, fault.at_ms) + AFTERMATH_MS
    return (
        fault.worker in ("", run.worker)
        and begins <= until_ms
        and (ends >= run.at_ms or fault.kind == "kill")
    )
