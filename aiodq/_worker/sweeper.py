"""Presence: finds workers that died, long before their leases run out.

A killed process closes its sockets at once, so its wake channel has no receiver any more. Only workers that
are steady and answer for the head of a shard look, and only while others hold leases there: nothing is sent
when nothing runs.
"""

from __future__ import annotations

import asyncio
import logging
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
        delay_s = SWEEP_EVERY_S
        while True:
            if not self._on_post():
                self._wake.clear()
                await self._wake.wait()
            await asyncio.sleep(delay_s)
            delay_s = SWEEP_EVERY_S
            if not self._on_post() or not self._shard.steady:
                continue
            try:
                delay_s = await self._sweep()
            except Exception as error:  # noqa: BLE001  # no error ends this loop; the plain lease recovery goes on
                log.debug("could not look after the other workers of queue %s: %s", self._shard.queue, error)
                delay_s = AFTER_ERROR_S

    def _on_post(self) -> bool:
        claimer = self._shard.claimer
        return claimer.seat in {1, 2} and claimer.others > 0 and not self._shard.closing

    async def _sweep(self) -> float:
        """One look; gives the time until the next."""
        shard = self._shard
        found = await shard.access.sweep()
        for worker in found.silent:
            while await shard.access.convict(worker):
                if not shard.steady:
                    return SWEEP_EVERY_S
            log.warning("worker %s of queue %s is gone: its jobs are taken over", worker, shard.queue)
        if found.silent:
            shard.claimer.look_by(time.monotonic())
            shard.poke()
        if found.again_in_ms is None:
            return SWEEP_EVERY_S
        # A suspect: back when its grace is over, and a moment more, so that it is over by the server's clock
        # too.
        return min(SWEEP_EVERY_S, found.again_in_ms / 1000 + 0.001)
