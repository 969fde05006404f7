"""Warns, once a worker is at work, of a server that drops jobs when its memory is full."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from aiodq._worker.shard import Shard

log: Final = logging.getLogger("aiodq.worker")


async def warn_of_eviction(shards: Sequence[Shard], consuming: asyncio.Event) -> None:
    """Asks each shard's server after the first claims. Where it may not be asked, nothing is said."""
    await consuming.wait()
    for shard in shards:
        try:
            policy = await shard.access.evicts()
        except Exception as error:  # noqa: BLE001  # a warning is not worth a worker
            log.debug("could not ask for the eviction policy of queue %s: %s", shard.queue, error)
            continue
        if policy is not None:
            log.warning(
                "the server of queue %s drops jobs when its memory is full: its maxmemory-policy is %s, "
                "set it to noeviction",
                shard.queue,
                policy,
            )
