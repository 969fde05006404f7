"""Asks for permits of jobs whose task may run only so many at a time: each begins, or goes back and waits.

A job asks after its claim and under its lease. One for which there is no permit is given back, uncounted, to
a time when it asks again; when one comes free, the first that waits is pulled forward. A permit belongs to a
job's id: a job whose lease was lost keeps it for its next run, so that it never has two.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Final

from aiodq._core import decision
from aiodq._core.decision import Facts, Verdict
from aiodq._core.errors import StoreUnavailable
from aiodq._core.handler import Call
from aiodq._core.limit import Permit, again_in_ms
from aiodq._core.settlement import Released
from aiodq._core.store import BATCH
from aiodq._core.tally import SPENT, Reservation
from aiodq._worker.running import Run
from aiodq._worker.shard import Shard

log: Final = logging.getLogger("aiodq.worker")

ASK_AGAIN_MS: Final = 1000
"""How long a job waits for its next claim when the server would not say."""

CROWDED: Final = 300
"""From so many on it matters how many wait for a name."""

Waiting = tuple[Run, Call]


class Limits:
    """The runs of one worker that wait for the answer whether there is a permit for them.

    Args:
        go_on: a run has its permit.
        settle: a run will not begin, and ends with that.
        facts: what is known of a run.
        answered: some runs have begun or ended.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        go_on: Callable[[Shard, list[Waiting]], None],
        settle: Callable[[Run, Verdict], None],
        facts: Callable[[Run], Facts],
        answered: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._go_on = go_on
        self._settle = settle
        self._facts = facts
        self._answered = answered
        self._crowds: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, shard: Shard, waiting: Sequence[Waiting]) -> None:
        """Asks for runs of one claim; none is begun before the answer."""
        self._start(self._ask(shard, waiting))

    def vacate(self, shard: Shard, runs: Sequence[Run]) -> None:
        """These runs have left processing. If the server is not told, others ask by themselves later."""
        self._start(self._vacate(shard, [permit for run in runs if (permit := run.permit) is not None]))

    def close(self) -> None:
        """Nobody waits for answers any more."""
        for task in self._tasks:
            task.cancel()

    async def told(self) -> None:
        """Returns when the server knows of all permits that came free."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work, name="aiodq-limits")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, shard: Shard, waiting: Sequence[Waiting]) -> None:
        permits = [self._permit_of(run, shard) for run, _ in waiting]
        try:
            granted = await shard.access.occupy(permits)
        except Exception as error:  # whatever it is, the jobs must not be kept for ever
            if not isinstance(error, StoreUnavailable):  # that is told by the turns
                log.error("queue %s: jobs of a task with a limit are put off", shard.queue, exc_info=error)
            for run, _ in waiting:
                if not (run.ended or run.lost):
                    self._settle(run, decision.put_off(self._facts(run), ASK_AGAIN_MS, f"its limit: {error}"))
            self._answered()
            return
        allowed: list[Waiting] = []
        for (run, call), permit, answer in zip(waiting, permits, granted, strict=True):
            self._note_crowd(permit.name, answer.crowd)
            if run.ended or run.lost:
                continue
            if shard.closing or run.stopped is not None:
                self._settle(run, Verdict(Released(run.job_id, run.token)))
            elif answer.may_run:
                allowed.append((run, call))
            else:
                reservation = Reservation(run.due_ms, permit.again_ms, SPENT)
                self._settle(run, decision.deferred(self._facts(run), reservation, "waits for a permit"))
        if allowed:
            self._go_on(shard, allowed)
        self._answered()

    async def _vacate(self, shard: Shard, permits: Sequence[Permit]) -> None:
        try:
            for at in range(0, len(permits), BATCH):
                await shard.access.vacate(permits[at : at + BATCH])
        except Exception as error:  # noqa: BLE001  # those that wait ask by themselves
            log.info("queue %s: could not tell that permits came free: %s", shard.queue, error)

    def _permit_of(self, run: Run, shard: Shard) -> Permit:
        permit = run.permit
        assert permit is not None  # noqa: S101  # narrows the type; only runs with a limit come here
        again_ms = shard.now_ms() + again_in_ms(self._crowds.get(permit.name, 0), random.random())
        return Permit(run.job_id, permit.name, permit.limit, run.due_ms, run.lease.due_ms, again_ms)

    def _note_crowd(self, name: str, crowd: int) -> None:
        if crowd >= CROWDED:
            self._crowds[name] = crowd
        else:
            self._crowds.pop(name, None)
