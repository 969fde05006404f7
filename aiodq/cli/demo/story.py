"""From the processes' records to one story per job: when it was sent, each of its runs, how it ended.

Pure: no clock, no server. Runs are put in order by their fences, the numbers that the server gave to the
claims, not by anybody's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from aiodq.cli.demo.log import Ended, Killed, Recalled, Record, Sent, Settled, Started

Final: TypeAlias = Literal["done", "dead", "recalled"]
"""How a job ended for good; a job without such an end was lost."""


class Run(Struct):
    """One run of a job. `outcome`: what the server accepted, None if nobody heard; `killed_ms`: when its
    worker was killed, None if it was not."""

    started: Started
    ended: Ended | None = None
    outcome: str | None = None
    killed_ms: float | None = None

    @property
    def cut_off(self) -> bool:
        """Its worker was killed before it heard that the run was settled: the job may rightly run again."""
        return self.killed_ms is not None and self.outcome is None


class Story(Struct):
    """All that is known of one job."""

    sent: Sent
    runs: list[Run]
    recalls: list[Recalled]

    @property
    def job_id(self) -> str:
        return self.sent.job_id

    @property
    def task(self) -> str:
        return self.sent.task

    @property
    def recovered_after_ms(self) -> float | None:
        """From the kill of the worker that held the job to its next start; None if it was not held, or did
        not run again."""
        for run, following in zip(self.runs, self.runs[1:], strict=False):
            if run.cut_off and run.killed_ms is not None:
                return following.started.at_ms - run.killed_ms
        return None


class Books(Struct):
    """What the server holds at the end, as the demo saw it: ids by place."""

    scheduled: frozenset[str] = frozenset()
    processing: frozenset[str] = frozenset()
    dead: frozenset[str] = frozenset()


class Stories(Struct):
    """All jobs by id, and what fits nowhere: runs and settlements of jobs that were never sent or started."""

    jobs: dict[str, Story]
    stray: list[Record]


def tell(logs: Sequence[Iterable[Record]]) -> Stories:
    """Put the records of all processes together; each log in the order in which it was written."""
    records = [list(log) for log in logs]
    everything = [record for log in records for record in log]
    jobs = {record.job_id: Story(record, [], []) for record in everything if isinstance(record, Sent)}
    killed = {record.worker: record.at_ms for record in everything if isinstance(record, Killed)}
    stories = Stories(jobs, [])
    for log in records:
        _add(stories, log, killed)
    for story in jobs.values():
        story.runs.sort(key=lambda run: run.started.fence)
    return stories


def _add(stories: Stories, log: Iterable[Record], killed: dict[str, float]) -> None:
    """Bring one process's records to the jobs that they are about."""
    latest: dict[str, Run] = {}  # this log's last run of each job: what follows in it is about that one
    for record in log:
        match record:
            case Started(job_id=job_id):
                latest[job_id] = Run(record, killed_ms=killed.get(record.worker))
                known = job_id in stories.jobs
                if known:
                    stories.jobs[job_id].runs.append(latest[job_id])
            case Ended(job_id=job_id):
                run = latest.get(job_id)
                known = run is not None and run.started.fence == record.fence
                if run is not None and known:
                    run.ended = record
            case Settled(job_id=job_id):
                run = latest.get(job_id)
                known = run is not None
                if run is not None:
                    run.outcome = record.outcome
            case Recalled(job_id=job_id):
                known = job_id in stories.jobs
                if known:
                    stories.jobs[job_id].recalls.append(record)
            case _:
                known = True
        if not known:
            stories.stray.append(record)


def final_of(story: Story, books: Books) -> Final | None:
    """How the job ended, or None.

    A worker that was killed between its settlement and the line about it leaves a run that ended but was not
    settled as far as anybody wrote down; then the server's books decide, which no longer hold the job.
    """
    if any(recall.made for recall in story.recalls):
        return "recalled"
    last = story.runs[-1] if story.runs else None
    if last is None or story.job_id in books.scheduled | books.processing:
        return None
    if last.outcome == "bury" or (last.cut_off and story.job_id in books.dead):
        return "dead"
    if last.outcome == "ack" or (last.cut_off and last.ended is not None and last.ended.by == "return"):
        return "done"
    return None
