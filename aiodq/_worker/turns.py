"""The loop of one shard: settlements and the next claim in one round trip, one turn in flight at a time.

Nothing of the application's cancels this loop or a turn: it runs in tasks of the worker's own, and ends when
the shard is closing and every job it held is settled. No error ends it either.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

import msgspec
from msgspec import Struct

from aiodq._core.errors import NewerProtocol, QueueFull, StoreUnavailable
from aiodq._core.lease import Lease
from aiodq._core.store import BATCH, CLOCK_STEP_US, ClaimRequest, TurnAnswer
from aiodq._worker.backoff import backoff_s
from aiodq._worker.events import ClockStepped, JobSettled, StoreBack, StoreLost
from aiodq._worker.executor import Executor, start_task
from aiodq._worker.reporter import Reporter
from aiodq._worker.running import Run
from aiodq._worker.shard import Shard

log: Final = logging.getLogger("aiodq.worker")

NEWER_AGAIN_S: Final = 30.0
"""How often a worker looks again at a queue that was upgraded beyond its version."""

REFUSALS_BORNE: Final = 5
"""How often the server may refuse one settlement until it is given up."""

OVERDUE_S: Final = 2.5
"""After this long without an answer the server counts as lost; the turn goes on repeating itself."""

LATE_S: Final = 1.0
"""A turn that took so long tells of a hurt link."""

MAX_SLEEP_S: Final = 86_400.0
"""Longer sleeps need no timer: some loops do not take any number, and a poke ends the sleep as well."""


class Flight(Struct, eq=False):
    """A turn on its way. `sent`: when, by the monotonic clock; `ends`: how many handlers had ended by
    then.
    """

    runs: list[Run]
    claim: ClaimRequest | None
    sent: float
    ends: int
    answer: asyncio.Task[TurnAnswer]


class TurnLoop:
    """Turns of one shard; `run` is its task.

    Args:
        landed: told after each turn, when the jobs it brought have begun.
        shaken: told of a hurt link or a stepped clock, which other shards may not have seen.

    Attributes:
        away_since: when the server stopped answering; None: it answers.
        empty_at: how many handlers of the worker had ended when a claim that gave nothing was sent; -1: the
            last claim gave something, or none was answered yet.
    """

    def __init__(
        self,
        shard: Shard,
        executor: Executor,
        reporter: Reporter,
        loop: asyncio.AbstractEventLoop,
        landed: Callable[[], None],
        shaken: Callable[[], None],
    ) -> None:
        self.away_since: float | None = None
        self.empty_at = -1
        self.shard = shard
        self._executor = executor
        self._reporter = reporter
        self._loop = loop
        self._landed = landed
        self._shaken = shaken
        self._waiter: asyncio.Future[None] | None = None
        self._not_before = 0.0
        self._failures = 0
        self._left = False
        shard.poke = self.poke

    def poke(self) -> None:
        """Something may be there to do."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def run(self) -> None:
        """Until the shard is closing and nothing is held."""
        shard = self.shard
        flight: Flight | None = None
        while True:
            flight = flight or self._depart()
            if flight is None:
                # Between `_depart` and `_pause` nothing may wait: a poke in between would be lost.
                if shard.closing and not self._left:
                    await self._leave()
                elif shard.closing and not shard.held:
                    return
                else:
                    await self._pause()
                continue
            leases = await self._arrive(flight)
            arrived = flight
            # On its way before these jobs begin: the server and the handlers work at the same time. But what
            # this worker still has is not to be settled under the lease that a new one has just replaced.
            early = leases and not any(lease.job_id in shard.held for lease in leases)
            flight = self._depart(landed=len(leases)) if early else None
            self._executor.start(shard, leases, arrived.sent)
            self._landed()

    def _depart(self, *, landed: int = 0) -> Flight | None:
        """Sends what there is to settle and to claim; None when there is nothing. `landed`: leases that are
        this worker's already, and not held yet.
        """
        shard, now = self.shard, time.monotonic()
        if now < self._not_before:
            return None
        solo = shard.settler.solo
        runs = shard.settler.take()
        claim: ClaimRequest | None = None
        if not shard.closing and not (solo and runs):
            claim = self._request(now)
        if not runs and claim is None:
            return None
        settlements = [run.settlement for run in runs if run.settlement is not None]
        last = not landed and not shard.holds_besides(len(runs))
        turn = shard.access.turn(settlements, claim, last=last)
        return Flight(runs, claim, now, self._executor.ends, start_task(turn, self._loop, "aiodq-turn"))

    def _request(self, now: float) -> ClaimRequest | None:
        shard = self.shard
        claimer, portion = shard.claimer, shard.portion
        portion.waits = claimer.wants(now)
        if not portion.waits:
            return None
        claim = claimer.request(
            free=portion.grant(BATCH),
            now=now,
            unbroken_since=shard.access.unbroken_since,
            random=random.random(),
        )
        if claim is not None:
            portion.waits = False
            portion.take(claim.want)
        return claim

    async def _arrive(self, flight: Flight) -> Sequence[Lease]:
        """Waits for the answer and takes it in; gives the jobs to begin."""
        overdue = self._loop.call_later(OVERDUE_S, self._overdue)
        try:
            answer = await flight.answer
        except asyncio.CancelledError:
            if not flight.answer.cancelled():
                flight.answer.cancel()
                raise
            self._failed(flight, StoreUnavailable("the connection was closed"))
            return ()
        except Exception as error:  # noqa: BLE001  # no error ends this loop
            self._failed(flight, error)
            return ()
        finally:
            overdue.cancel()
        return self._land(flight, answer)

    def _land(self, flight: Flight, answer: TurnAnswer) -> Sequence[Lease]:
        shard, now = self.shard, time.monotonic()
        self._failures = 0
        if self.away_since is not None:
            self._back(now)
        leases: Sequence[Lease] = ()
        if now - flight.sent > LATE_S:
            shard.claimer.look_by(now)  # the link was hurt: notices may have been lost with it
            self._shaken()
        if flight.claim is not None and answer.claim is not None:
            shard.claimer.answered(answer.claim, sent=flight.sent, now=now)
            leases = answer.claim.leases
            self.empty_at = -1 if leases else flight.ends
            shard.portion.give_back(flight.claim.want - len(leases))
            shard.portion.waits = shard.claimer.wants(now)
            shard.portion.flooded = shard.claimer.hungry and flight.claim.want > 0
            if answer.claim.stepped:
                self._stepped()
                self._shaken()
        if flight.runs:
            leases = self._settled(flight.runs, answer.settled, leases)
        return leases

    def _settled(self, runs: list[Run], accepted: Sequence[bool], leases: Sequence[Lease]) -> Sequence[Lease]:
        """Forgets the runs whose settlement was accepted; gives the leases that are still to begin."""
        held, refused = self.shard.held, list[Run]()
        vacated: list[Run] = []
        for run, ok in zip(runs, accepted, strict=True):
            if ok:
                held.pop(run.lease.job_id, None)
                if run.permit is not None:
                    vacated.append(run)
            else:
                refused.append(run)
        if vacated:
            self._executor.limits.vacate(self.shard, vacated)
        if self._reporter.active:
            for run, ok in zip(runs, accepted, strict=True):
                if ok:
                    self._tell_settled(run)
        if not refused:
            return leases
        claimed = {lease.job_id: lease for lease in leases}
        for run in refused:
            again = claimed.get(run.job_id)
            if again is not None:
                # The lease had run out and came back to us in this very turn: settled once more, under the
                # new one.
                run.token = again.token
                run.settlement = run.settlement and msgspec.structs.replace(run.settlement, token=again.token)
                self.shard.portion.give_back(1)
                self.shard.settler.add(run)
                continue
            held.pop(run.job_id, None)
            if run.unsure:
                log.info(
                    "job %s was settled before the answer was lost, or lost to another claim", run.job_id
                )
            else:
                self.shard.missed(run)
        resettled = {run.job_id for run in refused}
        return [lease for lease in leases if lease.job_id not in resettled]

    def _failed(self, flight: Flight, error: Exception) -> None:
        """The turn came to nothing, or nobody knows: everything goes into a later one."""
        shard, now = self.shard, time.monotonic()
        again_in = backoff_s(self._failures)
        self._failures += 1
        if flight.claim is not None:
            shard.portion.give_back(flight.claim.want)
            shard.portion.flooded = False
        runs = flight.runs
        one_by_one = False
        if isinstance(error, StoreUnavailable):
            self._away(error)
            for run in runs:
                run.unsure = True
        elif isinstance(error, NewerProtocol | QueueFull):
            again_in = NEWER_AGAIN_S if isinstance(error, NewerProtocol) else again_in
            self._away(error)
        elif len(runs) == 1 and flight.claim is None:
            runs = self._refused(runs[0], error)
        else:
            log.error("a turn of queue %s was refused", shard.queue, exc_info=error)
            one_by_one = True
        shard.settler.put_back(runs, one_by_one=one_by_one)
        if flight.claim is not None:
            shard.claimer.failed(now=now, again_in=again_in)
        self._not_before = now + again_in

    def _refused(self, run: Run, error: Exception) -> list[Run]:
        """A settlement was refused though it went alone. It is tried a few times more, after its neighbours;
        if that does not help, its lease is left to run out, and the job is run again."""
        run.refusals += 1
        if run.refusals < REFUSALS_BORNE:
            self.shard.settler.add(run)
        else:
            log.error("job %s cannot be settled, its lease is left to run out", run.job_id, exc_info=error)
            self.shard.held.pop(run.job_id, None)
        return []

    async def _leave(self) -> None:
        """Once, when closing: gives up the seat in the queue of those who wait."""
        self._left = True
        try:
            await self.shard.access.leave(holds=bool(self.shard.held))
        except Exception as error:  # noqa: BLE001  # others find out by themselves
            log.info("could not leave queue %s in an orderly way: %s", self.shard.queue, error)

    async def _pause(self) -> None:
        """Until poked, or until the planned look or the end of the back-off."""
        now, shard = time.monotonic(), self.shard
        if now < self._not_before:
            until = self._not_before
        elif shard.closing:
            until = None
        else:
            until = shard.claimer.look_at
        self._waiter = self._loop.create_future()
        timer = None
        if until is not None and until - now < MAX_SLEEP_S:
            timer = self._loop.call_later(max(0.0, until - now), self.poke)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _tell_settled(self, run: Run) -> None:
        settlement = run.settlement
        if settlement is not None:
            ran_for = timedelta(seconds=max(0.0, run.finished - run.started))
            self._reporter.tell(
                JobSettled(run.job_id, self.shard.queue, run.task, settlement.outcome, ran_for, run.error)
            )

    def _stepped(self) -> None:
        stepped_by_us = self.shard.claimer.stepped_by_us
        if abs(stepped_by_us) < CLOCK_STEP_US:
            return
        by = timedelta(microseconds=stepped_by_us)
        off = f"{abs(by)} {'behind' if stepped_by_us < 0 else 'ahead of'} what was expected"
        log.warning("the server's clock of queue %s is %s", self.shard.queue, off)
        if self._reporter.active:
            self._reporter.tell(ClockStepped(self.shard.queue, by))

    def _overdue(self) -> None:
        trouble = self.shard.access.trouble
        self._away(StoreUnavailable(f"no answer for {OVERDUE_S} s" + (f" ({trouble})" if trouble else "")))

    def _away(self, error: Exception) -> None:
        """Said once per outage, not once per try."""
        if self.away_since is not None:
            return
        self.away_since = time.monotonic()
        log.error("queue %s: nothing can be claimed or settled, trying on: %s", self.shard.queue, error)
        if self._reporter.active:
            self._reporter.tell(StoreLost(self.shard.queue, str(error)))

    def _back(self, now: float) -> None:
        away_for = timedelta(seconds=now - self.away_since) if self.away_since is not None else timedelta()
        self.away_since = None
        log.warning(
            "queue %s: claiming and settling again after %.1f s", self.shard.queue, away_for.total_seconds()
        )
        if self._reporter.active:
            self._reporter.tell(StoreBack(self.shard.queue, away_for))
