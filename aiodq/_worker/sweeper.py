"""Presence: finds workers that died, long before their leases run out.

A killed process closes its sockets at once, so its wake channel has no receiver any more. Workers look that
are steady, while others hold leases: nothing is sent when nothing runs. Who answers for the head of the shard
looks often. Who is full looks too, since a fleet behind a backlog has nobody who answers for the head; the
more there are, the seldomer each, so that together they look as often as one would.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import Final

from aiodq._worker.shard import Shard

log: Final = logging.getLogger("aiodq.worker")

SWEEP_EVERY_S: Final = 0.4
AFTER_ERROR_S: Final = 1.0


class Sweeper:
    """Sweeps one shard; `run` is its task."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._wake = asyncio.Event()

    def consider(self) -> None:
        """A claim was answered: maybe it is this worker's turn to look after the others."""
        if self._on_post():
            self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        soon_s: float | None = None
        while True:
            if not self._on_post():
                self._wake.clear()
                await self._wake.wait()
            await asyncio.sleep(self._pause_s() if soon_s is None else soon_s)
            soon_s = None
            if not self._on_post() or not self._shard.steady:
                continue
            try:
                soon_s = await self._sweep()
            except Exception as error:  # noqa: BLE001  # no error ends this loop; the plain lease recovery goes on
                log.debug("could not look after the other workers of queue %s: %s", self._shard.queue, error)
                soon_s = AFTER_ERROR_S

    def _on_post(self) -> bool:
        claimer = self._shard.claimer
        on_post = claimer.seat in {1, 2} or claimer.hungry
        return on_post and claimer.others > 0 and not self._shard.closing

    def _pause_s(self) -> float:
        claimer = self._shard.claimer
        return SWEEP_EVERY_S if claimer.seat else SWEEP_EVERY_S * claimer.others * random.uniform(0.5, 1.5)

    async def _sweep(self) -> float | None:
        """One look; gives the time until the next, None: the usual one."""
        shard = self._shard
        found = await shard.access.sweep()
        shard.claimer.others = found.others
        for worker in found.silent:
            while await shard.access.convict(worker):
                if not shard.steady:
                    return None
            log.warning("worker %s of queue %s is gone: its jobs are taken over", worker, shard.queue)
        if found.silent:
            shard.claimer.look_by(time.monotonic())
            shard.poke()
        if found.again_in_ms is None:
            return None
        # A suspect: back when its grace is over, and a moment more, so that it is over by the server's clock
        # too.
        return min(SWEEP_EVERY_S, found.again_in_ms / 1000 + 0.001)
