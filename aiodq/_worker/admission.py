"""Asks for the starts of jobs whose task has a rate: each begins now, or goes back until its moment.

A job asks once, after its claim and under its lease; the server's clock decides. One that is too early is
given back, uncounted, with the moment that was booked for it as its due time, and a note of that
(`Reservation`) in its history: claimed again at that moment it begins without asking. So its slot is free
meanwhile, and jobs of other tasks behind it are not held up.

What is lost between the answer and the start (a crash, a stop) costs that start, never one too many. A job
that two workers died with runs alone and is not asked for: it is rare, and waits for other things.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aiodq._core import decision
from aiodq._core.decision import Facts, Verdict
from aiodq._core.errors import StoreUnavailable
from aiodq._core.handler import Call
from aiodq._core.rate import Booked, Booking, Rate, home_of, moment_ms
from aiodq._core.settlement import Released
from aiodq._core.tally import Reservation
from aiodq._worker.running import Run
from aiodq._worker.shard import Shard

log: Final = logging.getLogger("aiodq.worker")

ASK_AGAIN_MS: Final = 1000
"""How long a job waits for its next claim when the server would not say."""

Waiting = tuple[Run, Call]


class Admission:
    """The runs of one worker that wait for the answer whether they may start.

    Args:
        begin: starts a run.
        settle: a run will not begin, and ends with that.
        facts: what is known of a run.
        answered: some runs have begun or ended.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        begin: Callable[[Run, Call], None],
        settle: Callable[[Run, Verdict], None],
        facts: Callable[[Run], Facts],
        answered: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._begin = begin
        self._settle = settle
        self._facts = facts
        self._answered = answered
        self._asking: set[asyncio.Task[None]] = set()

    def ask(self, shard: Shard, waiting: Sequence[Waiting]) -> None:
        """Asks for runs of one claim; each has a bucket, and none is begun before the answer."""
        by_home: dict[int, dict[str, list[Waiting]]] = {}
        for one in waiting:
            bucket = one[0].bucket or ""
            home = home_of(bucket, len(shard.peers))
            by_home.setdefault(home, {}).setdefault(bucket, []).append(one)
        for home, groups in by_home.items():
            task = self._loop.create_task(self._ask(shard, shard.peers[home], groups), name="aiodq-admission")
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    def close(self) -> None:
        """Nobody waits for answers any more."""
        for task in self._asking:
            task.cancel()

    async def _ask(self, shard: Shard, home: Shard, groups: Mapping[str, Sequence[Waiting]]) -> None:
        bookings = [
            Booking(bucket, _rate_of(runs[0][0]).width_us(len(runs))) for bucket, runs in groups.items()
        ]
        asked_at = time.monotonic()
        try:
            booked = await home.access.admit(bookings)
        except Exception as error:  # noqa: BLE001  # whatever it is, the jobs must not be kept for ever
            self._refuse(shard, [one for runs in groups.values() for one in runs], error)
        else:
            took_ms = (time.monotonic() - asked_at) * 1000
            for begins_us, runs in zip(booked.begins_us, groups.values(), strict=True):
                # After an outage the answer may be a minute old: what it allowed then is not allowed now.
                late = took_ms > _rate_of(runs[0][0]).late_ms
                self._open(shard, booked, begins_us, runs, late=late)
        self._answered()

    def _open(
        self, shard: Shard, booked: Booked, begins_us: int, waiting: Sequence[Waiting], *, late: bool
    ) -> None:
        starts_us = _rate_of(waiting[0][0]).starts_us(begins_us, booked.now_us, len(waiting))
        for (run, call), start_us in zip(waiting, starts_us, strict=True):
            if run.ended or run.lost:
                continue
            if late or shard.closing or run.stopped is not None:
                self._settle(run, Verdict(Released(run.job_id, run.token)))
            elif start_us <= booked.now_us:
                self._begin(run, call)
            else:
                lease = run.lease
                losses = lease.crashes + lease.interruptions
                reservation = Reservation(run.due_ms, moment_ms(start_us), losses)
                self._settle(run, decision.deferred(self._facts(run), reservation))

    def _refuse(self, shard: Shard, waiting: Sequence[Waiting], error: Exception) -> None:
        if not isinstance(error, StoreUnavailable):  # that is told by the turns
            log.error("queue %s: jobs of a task with a rate are put off", shard.queue, exc_info=error)
        for run, _ in waiting:
            if not (run.ended or run.lost):
                self._settle(run, decision.put_off(self._facts(run), ASK_AGAIN_MS, f"its rate: {error}"))


def _rate_of(run: Run) -> Rate:
    rate = run.policy.rate
    assert rate is not None  # noqa: S101  # narrows the type; only runs with a rate wait here
    return rate
