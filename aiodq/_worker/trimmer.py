"""Keeps the dead letters of a shard bounded by age and count: slowly, and a batch at a time."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final

from aiodq._worker.shard import Shard

log: Final = logging.getLogger("aiodq.worker")

TRIM_EVERY_S: Final = 600.0
"""Rare: dead letters are few, and each worker of a fleet trims."""


class Trimmer:
    """Trims one shard; `run` is its task. Removes what is older than `age_ms`, then the oldest above
    `count`.
    """

    def __init__(self, shard: Shard, *, age_ms: int, count: int, every_s: float = TRIM_EVERY_S) -> None:
        self._shard = shard
        self._age_ms = age_ms
        self._count = count
        self._every_s = every_s

    async def run(self) -> None:
        """Until cancelled. Spread over half to one and a half periods, so that a fleet does not trim at
        once.
        """
        while True:
            await asyncio.sleep(self._every_s * (0.5 + random.random()))
            try:
                removed = await self._shard.store.trim(age_ms=self._age_ms, count=self._count)
            except Exception as error:  # noqa: BLE001  # next time
                log.debug("could not trim the dead letters of queue %s: %s", self._shard.queue, error)
                continue
            if removed:
                log.info("removed %d dead letters of queue %s by age or count", removed, self._shard.queue)
