"""Renews leases from a thread of its own, so that a handler which blocks the event loop does not lose its
job.

The thread has its own event loop and its own connections. It reads which runs are held, renews them in
batches every third of a lease, and sends nothing while nothing is held. What it learns goes back into the
worker's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from aiodq._core.errors import LeaseLost, StoreUnavailable
from aiodq._core.store import BATCH, KeeperStore
from aiodq._worker.backoff import backoff_s
from aiodq._worker.pulse import Pulse
from aiodq._worker.running import Run
from aiodq._worker.shard import Shard

log: Final = logging.getLogger("aiodq.worker")


class Keeper:
    """Keeps the leases of one worker.

    Args:
        shards: filled before `start`.
        loop: the worker's event loop.
        on_lost: told in that loop of a run whose lease with that token has passed to another.
        pulse: watches the worker's loop, from this thread.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        *,
        worker_id: str,
        lease_ms: int,
        loop: asyncio.AbstractEventLoop,
        on_lost: Callable[[Shard, Run, str], None],
        pulse: Pulse,
    ) -> None:
        self._shards = shards
        self._worker_id = worker_id
        self._lease_ms = lease_ms
        self._main = loop
        self._on_lost = on_lost
        self._pulse = pulse
        self._accesses: dict[Shard, tuple[KeeperStore, asyncio.Lock]] = {}
        self._wakes: list[asyncio.Event] = []
        self._asked_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._live, name="aiodq-keeper", daemon=True)

    def start(self) -> None:
        """Starts the thread; returns when its loop runs."""
        self._thread.start()
        self._ready.wait()

    async def stop(self, within_s: float) -> None:
        """Ends the thread; gives up waiting after that time (it is a daemon thread)."""
        if self._stop is not None:
            self._call(self._stop.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._ended.wait()
            self._thread.join()

    def renew_now(self) -> None:
        """Renews every lease that began before now, at once. From any thread."""
        self._asked_at = time.monotonic()
        self._call(self._wake_all)

    async def extend(self, shard: Shard, run: Run, /) -> None:
        """Renews one lease now, for `RunningJob.extend`; called in the worker's loop.

        Raises:
            LeaseLost: another claim has the job.
            StoreUnavailable: the server did not answer.
        """
        gone = LeaseLost(f"job {run.job_id!r} is no longer held by this worker")
        if self._loop is None or run.lost or run.ended:
            raise gone
        while True:
            token = run.token
            work = self._extend(shard, [(run, token)])
            try:
                future = asyncio.run_coroutine_threadsafe(work, self._loop)
            except RuntimeError as error:  # the worker has stopped
                work.close()
                raise StoreUnavailable("the worker has stopped") from error
            lost = await asyncio.wrap_future(future)
            if not lost:
                return
            if token == run.token or run.lost:
                break
        self._on_lost(shard, run, token)
        raise gone

    def _live(self) -> None:
        try:
            asyncio.run(self._keep_all())
        except BaseException:
            log.critical("the keeper has died: leases are no longer renewed", exc_info=True)
            raise
        finally:
            self._ready.set()
            with contextlib.suppress(RuntimeError):  # the worker's loop is closed: nobody waits
                self._main.call_soon_threadsafe(self._ended.set)

    async def _keep_all(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        for shard in self._shards:
            self._accesses[shard] = (shard.store.keeper(self._worker_id), asyncio.Lock())
        tasks = [asyncio.create_task(self._keep(shard, self._new_wake())) for shard in self._shards]
        tasks.append(asyncio.create_task(self._pulse.watch()))
        self._ready.set()
        await self._stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for access, _ in self._accesses.values():
            with contextlib.suppress(Exception):  # it is thrown away anyway
                await asyncio.wait_for(access.aclose(), 1.0)

    def _new_wake(self) -> asyncio.Event:
        self._wakes.append(asyncio.Event())
        return self._wakes[-1]

    async def _keep(self, shard: Shard, wake: asyncio.Event) -> None:
        """Looks six times per lease whether something is due; renews when a third of it has passed."""
        failures, tick_s = 0, self._lease_ms / 6000
        while True:
            wait_s = min(tick_s, backoff_s(failures)) if failures else tick_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await wake.wait()
            asked_at = time.monotonic() if failures else self._asked_at if wake.is_set() else None
            wake.clear()
            try:
                for page in _pages(self._due(shard, asked_at)):
                    for run, token in await self._extend(shard, page):
                        self._main.call_soon_threadsafe(self._on_lost, shard, run, token)
                failures = 0
            except StoreUnavailable as error:
                failures += 1
                log.debug("leases of queue %s could not be renewed, trying again: %s", shard.queue, error)
            except Exception:
                failures += 1
                log.exception("leases of queue %s could not be renewed, trying again", shard.queue)

    def _due(self, shard: Shard, asked_at: float | None) -> list[tuple[Run, str]]:
        """What to renew now: nothing until one lease is a third old, then all that are half as old with it.
        After a call for renewal, or a renewal that failed: all leases from before that.
        """
        now, third_s = time.monotonic(), self._lease_ms / 3000
        runs = [run for run in list(shard.held.values()) if run.keep_until > now and not run.lost]
        if asked_at is not None:
            return [(run, run.token) for run in runs if run.renewed_at < asked_at]
        # A quarter of a third early: the next look would be too late by as much.
        if not any(now - run.renewed_at >= third_s * 0.75 for run in runs):
            return []
        return [(run, run.token) for run in runs if now - run.renewed_at >= third_s / 2]

    async def _extend(self, shard: Shard, page: Sequence[tuple[Run, str]]) -> list[tuple[Run, str]]:
        """Renews; gives back those that are lost."""
        access, one_at_a_time = self._accesses[shard]
        async with one_at_a_time:
            sent = time.monotonic()
            kept = await access.extend([(run.job_id, token) for run, token in page], lease_ms=self._lease_ms)
        for (run, _), ok in zip(page, kept, strict=True):
            if ok:
                run.renewed_at = sent
        return [pair for pair, ok in zip(page, kept, strict=True) if not ok]

    def _wake_all(self) -> None:
        for wake in self._wakes:
            wake.set()

    def _call(self, function: Callable[[], object]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the thread's loop is closed: nothing is left to tell
                self._loop.call_soon_threadsafe(function)


def _pages(pairs: list[tuple[Run, str]]) -> list[list[tuple[Run, str]]]:
    return [pairs[at : at + BATCH] for at in range(0, len(pairs), BATCH)]
