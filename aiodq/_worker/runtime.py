"""One worker at work: composes the roles, and ends them in the right order.

Runs in a task of its own, which no cancellation of the application's reaches; it is told to end by `stop`
(running handlers have the grace to end by themselves) or `cut_short` (they are cancelled now). Either way
every job is settled or given back before the connections close, as far as the server answers, and all is over
within the grace.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import anyio
from msgspec import Struct

from aiodq._core.handler import Handler
from aiodq._core.settlement import Released
from aiodq._core.store import Store
from aiodq._worker.events import Event, LoopBlocked
from aiodq._worker.eviction import warn_of_eviction
from aiodq._worker.executor import Executor
from aiodq._worker.keeper import Keeper
from aiodq._worker.pulse import Pulse
from aiodq._worker.reporter import Reporter
from aiodq._worker.running import Run
from aiodq._worker.shard import Shard
from aiodq._worker.slots import Limit, Slots
from aiodq._worker.sweeper import Sweeper
from aiodq._worker.threads import Threads
from aiodq._worker.trimmer import TRIM_EVERY_S, Trimmer
from aiodq._worker.turns import TurnLoop

log: Final = logging.getLogger("aiodq.worker")

FIRST_LOOK_S: Final = 0.5
"""The first claim waits for the subscription (it would be deaf before), but not longer than this."""

LISTEN_AGAIN_S: Final = 1.0
SHAKEN_AGAIN_S: Final = 1.0
CLOSE_S: Final = 1.0


class Settings(Struct, frozen=True, kw_only=True):
    """One worker's settings, checked by whoever makes them.

    Attributes:
        grace_ms: everything that a stop does is over after this time.
        presence: look for workers that died.
        burst: end when nothing is due.
        exits: the process ends after the worker, whatever is still running: give back what does not stop.
    """

    worker_id: str
    concurrency: int
    lease_ms: int
    grace_ms: int
    presence: bool = True
    burst: bool = False
    exits: bool = False


class Source(Struct, frozen=True, kw_only=True):
    """One queue to serve: its shards' stores, its handlers, its part of the slots, and bounds of its dead
    letters.
    """

    queue: str
    stores: Sequence[Store]
    handlers: Mapping[str, Handler]
    weight: int = 1
    concurrency: int | None = None
    priority: int = 0
    dead_age_ms: int
    dead_count: int


class Runtime:
    """A worker from its start to its end. Made in the event loop it runs in.

    Attributes:
        consuming: set when every shard has answered a claim.
        stuck: after the end: runs whose handlers did not end.
    """

    def __init__(
        self,
        settings: Settings,
        sources: Sequence[Source],
        *,
        state: object = None,
        listeners: Sequence[Callable[[Event], object]] = (),
    ) -> None:
        self.consuming = asyncio.Event()
        self.stuck: list[Run] = []
        self.started_at = time.monotonic()
        self._settings = settings
        self._stopping = asyncio.Event()
        self._cut = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._freed_soon = False
        self._reporter = Reporter(listeners)
        self._slots = Slots(settings.concurrency)
        self._executor = Executor(
            slots=self._slots,
            reporter=self._reporter,
            in_thread=Threads(settings.concurrency),
            loop=self._loop,
            # Time for a cancelled handler to clean up under its lease.
            keep_margin_s=settings.lease_ms / 3000,
            freed=self._freed,
        )
        shards: list[Shard] = []
        self._keeper = Keeper(
            shards,
            worker_id=settings.worker_id,
            lease_ms=settings.lease_ms,
            loop=self._loop,
            on_lost=self._executor.lost,
            pulse=Pulse(self._loop, self._running_names, self._blocked),
        )
        self._trimmers: list[Trimmer] = []
        self._shaken_at = -math.inf
        self._count = sum(len(source.stores) for source in sources)
        for source in sources:
            shards += self._shards_of(source, state)
        self._shards = self._executor.shards = shards
        self._loops = [
            TurnLoop(shard, self._executor, self._reporter, self._loop, self._landed, self._shaken)
            for shard in shards
        ]
        self._sweepers = [Sweeper(shard) for shard in shards] if settings.presence else []

    @property
    def running(self) -> int:
        """Handlers that run now, stuck ones included."""
        return self._executor.active

    @property
    def answering(self) -> bool:
        """It claims, and the server answers for every shard."""
        return (
            self.consuming.is_set()
            and not self._stopping.is_set()
            and all(turns.away_since is None for turns in self._loops)
        )

    @property
    def last_claim(self) -> float:
        """When a claim was last answered, by the monotonic clock; the start, before the first."""
        return max((s.claimer.last_claim or self.started_at for s in self._shards), default=self.started_at)

    def stop(self) -> None:
        """Claims no more; running handlers may end within the grace."""
        self._stopping.set()

    def cut_short(self) -> None:
        """Stops, and cancels running handlers now."""
        self._stopping.set()
        self._cut.set()

    async def run(self) -> None:
        """Until stopped and wound down."""
        self._keeper.start()
        try:
            async with anyio.create_task_group() as group:
                for shard in self._shards:
                    group.start_soon(self._listen, shard)
                for sweeper in self._sweepers:
                    group.start_soon(sweeper.run)
                group.start_soon(warn_of_eviction, self._shards, self.consuming)
                for trimmer in self._trimmers:
                    group.start_soon(trimmer.run)
                turns = [asyncio.create_task(turns.run(), name="aiodq-turns") for turns in self._loops]
                try:
                    await self._until_stopped(turns)
                    await self._wind_down(turns)
                finally:
                    for task in turns:
                        task.cancel()
                    group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._close()

    def _shards_of(self, source: Source, state: object) -> list[Shard]:
        limit = Limit(source.concurrency)
        shards: list[Shard] = []
        for store in source.stores:
            shard = Shard(
                queue=source.queue,
                store=store,
                worker_id=self._settings.worker_id,
                handlers=source.handlers,
                portion=self._slots.portion(
                    weight=source.weight / len(source.stores), priority=source.priority, limit=limit
                ),
                lease_ms=self._settings.lease_ms,
                keeper=self._keeper,
                reporter=self._reporter,
                first_look_in_s=FIRST_LOOK_S,
                shards=self._count,
            )
            shard.state = state
            shards.append(shard)
            every_s = TRIM_EVERY_S * self._count
            self._trimmers.append(
                Trimmer(shard, age_ms=source.dead_age_ms, count=source.dead_count, every_s=every_s)
            )
        for shard in shards:
            shard.peers = shards
        return shards

    async def _listen(self, shard: Shard) -> None:
        while True:
            try:
                await shard.access.listen()
            except Exception:
                # Notices are hints; without them the planned looks go on.
                log.exception("queue %s: listening ended, trying again", shard.queue)
            await asyncio.sleep(LISTEN_AGAIN_S)

    async def _until_stopped(self, turns: list[asyncio.Task[None]]) -> None:
        """Until told to stop, or a turn loop died of a fault of ours: that ends the worker, visibly."""
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((stopping, *turns), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        self._stopping.set()

    async def _wind_down(self, turns: list[asyncio.Task[None]]) -> None:
        grace_s = self._settings.grace_ms / 1000
        # The last part of the grace is for settling and giving back, so that all is over when it is.
        settle_s = min(2.0, max(0.5, grace_s / 4))
        for shard in self._shards:
            shard.closing = True
            shard.poke()
        self._executor.release_waiting()
        if not await self._all_done(turns, max(0.0, grace_s - settle_s), unless_cut=True):
            self._executor.stop_all()
            if not await self._all_done(turns, settle_s):
                await self._give_up(turns)
        for task in turns:
            if task.done() and not task.cancelled():
                task.result()  # a fault in the loop itself is told to the caller

    async def _all_done(
        self, turns: list[asyncio.Task[None]], within_s: float, *, unless_cut: bool = False
    ) -> bool:
        """Waits for every handler to end and every settlement to be written. False: the time is over, or
        cut.
        """
        until = time.monotonic() + within_s
        while self._executor.active or not all(task.done() for task in turns):
            left_s = until - time.monotonic()
            if left_s <= 0 or (unless_cut and self._cut.is_set()):
                return False
            # Handlers end without telling anybody; a look each 20 ms for a few seconds is cheap.
            await asyncio.wait(turns, timeout=min(0.02, left_s))
            if self._executor.active and all(task.done() for task in turns):
                await asyncio.sleep(min(0.02, left_s))
        return True

    async def _give_up(self, turns: list[asyncio.Task[None]]) -> None:
        """What could not be ended in time is reported; for a process that exits, its jobs are given back."""
        self.stuck = [run for run in self._executor.runs() if run.handle is not None and not run.ended]
        for run in self.stuck:
            log.error(
                "the handler of job %s (task %s) did not stop within the grace of %g s",
                run.job_id,
                run.task,
                self._settings.grace_ms / 1000,
            )
        if self.stuck and self._settings.exits:
            for shard in self._shards:
                for run in list(shard.held.values()):
                    if run in self.stuck:
                        run.settlement = Released(run.job_id, run.token)
                        shard.settle(run)
            await asyncio.wait(turns, timeout=CLOSE_S / 2)
        unwritten = sum(len(shard.settler) for shard in self._shards)
        if unwritten:
            log.error(
                "%d settlements could not be written: those jobs are run again after their lease", unwritten
            )

    async def _close(self) -> None:
        self._executor.timeouts.close()
        self._executor.admission.close()
        if not self.stuck:
            self._executor.stop_all()  # after a fault of ours; otherwise nothing is left
        await self._keeper.stop(CLOSE_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._executor.limits.told()
        self._executor.limits.close()
        for shard in self._shards:
            with contextlib.suppress(Exception):  # it is thrown away anyway
                async with asyncio.timeout(CLOSE_S):
                    await shard.access.aclose()

    def _landed(self) -> None:
        """A turn was answered and its jobs have begun."""
        if not self.consuming.is_set() and all(s.claimer.last_claim is not None for s in self._shards):
            self.consuming.set()
        self._executor.check_isolation()
        for sweeper in self._sweepers:
            sweeper.consider()
        if len(self._shards) > 1:
            self._freed()
        if self._settings.burst and not self._executor.active:
            self._look_for_the_end()

    def _shaken(self) -> None:
        """A shard saw its link hurt or its clock step. The others may have lost notices with it, or hold jobs
        that are due now by the new clock, and look seldom: all look now, but not each on behalf of each."""
        now = time.monotonic()
        if self._count == 1 or now - self._shaken_at < SHAKEN_AGAIN_S:
            return
        self._shaken_at = now
        for shard in self._shards:
            shard.claimer.look_by(now)
            shard.poke()

    def _look_for_the_end(self) -> None:
        """For a burst: ends when every shard gave nothing to a claim sent after the last handler's end."""
        behind = [turns for turns in self._loops if turns.shard.held or turns.empty_at != self._executor.ends]
        if not behind:
            self.stop()
        for turns in behind:
            if not turns.shard.held:
                turns.shard.claimer.look_by(time.monotonic())
                turns.poke()

    def _freed(self) -> None:
        """Slots came free: shards that wait for some try again, once per round of the loop."""
        if not self._freed_soon:
            self._freed_soon = True
            self._loop.call_soon(self._poke_waiting)

    def _poke_waiting(self) -> None:
        self._freed_soon = False
        for shard in self._shards:
            if shard.portion.waits:
                shard.poke()

    def _running_names(self) -> list[str]:
        """Called in the keeper's thread."""
        return [
            f"{run.task} ({run.job_id})"
            for shard in self._shards
            for run in list(shard.held.values())
            if run.started and not run.ended
        ]

    def _blocked(self, blocked_for_s: float, names: tuple[str, ...]) -> None:
        log.warning("the event loop goes on after %.1f s", blocked_for_s)
        if self._reporter.active:
            self._reporter.tell(LoopBlocked(timedelta(seconds=blocked_for_s), names))
