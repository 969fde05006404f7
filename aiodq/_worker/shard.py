"""What a worker keeps of one shard of one queue: the meeting point of the roles that serve it."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from aiodq._core.handler import Handler
from aiodq._core.store import Notice, Store
from aiodq._worker.claimer import Claimer
from aiodq._worker.events import LeaseMissed
from aiodq._worker.reporter import Reporter
from aiodq._worker.running import Run
from aiodq._worker.settler import Settler
from aiodq._worker.slots import Portion

log: Final = logging.getLogger("aiodq.worker")

STUCK_AFTER_S: Final = 5.0
"""How long a cancelled handler may take to end until it is reported as stuck."""


class Renewals(Protocol):
    """What a shard needs of the keeper."""

    def renew_now(self) -> None: ...

    async def extend(self, shard: Shard, run: Run, /) -> None: ...


class Shard:
    """One shard in this worker. Lives in the worker's event loop; `held` is also read by the keeper's thread.

    Attributes:
        held: runs whose lease is this worker's, from the claim until the store has answered their settlement.
        leaving: runs that lost their lease and have not ended yet.
        peers: all shards of this queue in their order, this one among them.
        closing: no more claims; the loops end when nothing is held.
        poke: wakes the shard's turn loop.
    """

    def __init__(
        self,
        *,
        queue: str,
        store: Store,
        worker_id: str,
        handlers: Mapping[str, Handler],
        portion: Portion,
        lease_ms: int,
        keeper: Renewals,
        reporter: Reporter,
        first_look_in_s: float = 0.0,
        shards: int = 1,
    ) -> None:
        self.queue = queue
        self.store = store
        self.access = store.worker(worker_id, self._hear)
        self.handlers = handlers
        self.portion = portion
        self.claimer = Claimer(lease_ms=lease_ms, now=time.monotonic() + first_look_in_s, shards=shards)
        self.settler = Settler()
        self.held: dict[str, Run] = {}
        self.leaving: set[Run] = set()
        self.peers: Sequence[Shard] = (self,)
        self.state: object = None
        self.closing = False
        self.poke: Callable[[], None] = _nobody
        self._keeper = keeper
        self._reporter = reporter

    @property
    def steady(self) -> bool:
        return self.claimer.steady_in_ms(time.monotonic(), self.access.unbroken_since) == 0

    def now_ms(self) -> int:
        """The server's time as far as this worker can tell."""
        return self.claimer.server_us(time.monotonic()) // 1000

    def holds_besides(self, settling: int) -> bool:
        """Leases remain when that many of the held ones are settled."""
        return len(self.held) > settling

    def has(self, job_id: str) -> Run | None:
        """The run of that job that this worker still has, if any; one that is stuck is in nobody's way."""
        run = self.held.get(job_id)
        if run is None and self.leaving:
            return next((left for left in self.leaving if left.job_id == job_id and not left.stuck), None)
        return run

    def settle(self, run: Run) -> None:
        """Its settlement is decided: for the next turn."""
        self.settler.add(run)
        self.poke()

    def lost(self, run: Run, token: str) -> None:
        """The lease with that token has passed to another claim: the handler is cancelled, nothing is
        written.

        Ignored for a run that was re-claimed here since, and for one whose settlement is on its way: the
        refused renewal may only mean that the settlement was quicker.
        """
        if run.token != token or run.settlement is not None or run.lost:
            return
        run.lost = True
        if self.held.get(run.job_id) is run:
            del self.held[run.job_id]
        if not run.ended:
            self.leaving.add(run)
            run.stop("lost")
        self.missed(run)
        self.poke()

    def missed(self, run: Run) -> None:
        """Tells that another claim has the job."""
        log.warning(
            "lease of job %s (task %s, queue %s) was lost to another claim", run.job_id, run.task, self.queue
        )
        if self._reporter.active:
            self._reporter.tell(LeaseMissed(run.job_id, self.queue, run.task))

    async def extend(self, run: Run, /) -> None:
        await self._keeper.extend(self, run)

    def _hear(self, notice: Notice) -> None:
        if notice.kind in {"renew", "connected"}:
            self._keeper.renew_now()
        self.claimer.notice(notice, now=time.monotonic(), random=random.random())
        self.poke()


def _nobody() -> None:
    """Before the loop runs there is nobody to wake."""
