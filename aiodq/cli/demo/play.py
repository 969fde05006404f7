"""The course of the demo: a server, two worker processes, the orders, the kill, the end, the accounts.

Everything that it starts or writes is gone when it is over, also if it fails or is interrupted.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Final, cast

import anyio
from anyio.to_thread import run_sync
from msgspec import Struct

from aiodq import AiodqError, Queue, StoreUnavailable
from aiodq.cli.demo.live import Picture, View, WorkerView, shop_clock
from aiodq.cli.demo.log import Ended, Log, Reader, Recalled, Sent
from aiodq.cli.demo.orders import Order
from aiodq.cli.demo.processes import WorkerFailed, WorkerProcess
from aiodq.cli.demo.report import Report, report
from aiodq.cli.demo.shop import Settings, open_shop
from aiodq.cli.demo.storefront import Storefront
from aiodq.cli.demo.story import Books, tell
from aiodq.cli.demo.verdict import judge
from aiodq.embedded import EmbeddedServer
from aiodq.types import QueueStats

LEASE_S: Final = 5.0
"""The workers' lease. A killed worker is noticed sooner, by its silence; this is the latest."""

_LOOK_S: Final = 0.05
_KILL_AFTER: Final = 0.45  # of the day's customers, in time
_KILL_HOLDING: Final = 2  # jobs in the victim's hands make the kill worth something
_KILL_PATIENCE_S: Final = 6.0
_STALLED_S: Final = LEASE_S + 15


class Plan(Struct, frozen=True):
    """What is to be played. `url`: None for a server of the demo's own. `minute_s`: see `Settings`."""

    orders: Sequence[Order]
    url: str | None
    minute_s: float


async def play(plan: Plan, picture: Picture) -> Report:
    """Play it, and judge it. Raises: `AiodqError`, or `WorkerFailed` if a worker process broke down."""
    async with AsyncExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="aiodq-demo-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        if plan.url is None:
            url = await stack.enter_async_context(_server(directory / "server"))
        else:
            url = plan.url
        settings = Settings(url=url, queue=f"demo-{token_hex(4)}", minute_s=plan.minute_s)
        picture.tell(
            f"Queue {settings.queue} on {'the bundled server' if plan.url is None else 'your server'}."
        )
        try:
            return await _Play(plan, settings, directory, picture).run()
        except ExceptionGroup as group:
            # Several calls fail together when the server goes: one of their errors says it all.
            errors = _leaves(group)
            if all(isinstance(error, AiodqError | WorkerFailed) for error in errors):
                raise errors[0] from None
            raise


def _leaves(error: Exception) -> list[Exception]:
    if not isinstance(error, ExceptionGroup):
        return [error]
    inner = cast("ExceptionGroup[Exception]", error).exceptions
    return [leaf for each in inner for leaf in _leaves(each)]


@asynccontextmanager
async def _server(directory: Path) -> AsyncGenerator[str]:
    """The bundled server on a directory, for as long as this is entered; its end is waited for."""
    server = EmbeddedServer(directory, linger=0.1)
    url = await run_sync(server.start)
    try:
        yield url
    finally:
        with anyio.CancelScope(shield=True):
            await run_sync(server.stop)
            await run_sync(_wait_for_end, server)


def _wait_for_end(server: EmbeddedServer, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            _ = server.pid
        except StoreUnavailable:
            return
        time.sleep(0.05)


class _Play:
    """One performance, with all that it has to keep an eye on."""

    def __init__(self, plan: Plan, settings: Settings, directory: Path, picture: Picture) -> None:
        self._plan = plan
        self._settings = settings
        self._directory = directory
        self._picture = picture
        self._shop = open_shop(settings)
        self._queue: Queue = self._shop.queue
        self._reader = Reader(directory / "shop.jsonl")
        self._log = Log(directory / "shop.jsonl")
        self._workers: list[WorkerProcess] = []
        self._storefront = Storefront(self._shop, plan.orders, self._log)
        self._traded = False

    async def run(self) -> Report:
        """The whole of it, from the first process to the figures."""
        begun = time.monotonic()
        async with self._queue:
            try:
                await self._queue.stats()  # a server that is not there is told before anything is started
                await self._hire()
                async with anyio.create_task_group() as group:
                    group.start_soon(self._trade)
                    await self._until_killed()
                    await self._until_drained()
                for worker in self._workers:
                    await worker.stop()
                self._read()
                books = await self._take_stock()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._clean_up()
        stories = tell([reader.records for reader in self._readers])
        faults = judge(self._plan.orders, stories, books, same_clock=self._plan.url is None)
        took_s = time.monotonic() - begun
        return report(self._plan.orders, stories, books, faults, killed=self._workers[0].name, took_s=took_s)

    @property
    def _readers(self) -> list[Reader]:
        return [self._reader, *(worker.reader for worker in self._workers)]

    def _read(self) -> bool:
        """Read on in all logs; true if there was something new."""
        fresh = [reader.read() for reader in self._readers]  # all of them, not only up to the first with news
        return any(fresh)

    async def _hire(self) -> None:
        for number in (1, 2):
            self._workers.append(WorkerProcess(f"worker-{number}", self._directory, self._settings, LEASE_S))
        for worker in self._workers:
            await worker.until_ready()
        pids = " and ".join(str(worker.pid) for worker in self._workers)
        self._picture.tell(
            f"Two workers are up: processes {pids}. The shop opens: {len(self._plan.orders)} orders."
        )

    async def _trade(self) -> None:
        await self._storefront.trade()
        self._traded = True
        self._picture.tell(
            f"{shop_clock(self._storefront.shop_s)}  The last customer has left. "
            "What is unpaid will be closed in its time."
        )

    async def _until_killed(self) -> None:
        """Watch until the middle of the day, then kill the first worker when it has its hands full."""
        victim = self._workers[0]
        due_s = self._storefront.trading_s * _KILL_AFTER
        given_up = anyio.current_time() + due_s + _KILL_PATIENCE_S
        while True:
            await self._look()
            ripe = self._storefront.open_for_s >= due_s and len(victim.in_hand) >= _KILL_HOLDING
            if ripe or anyio.current_time() >= given_up:
                break
        held = len(victim.in_hand)
        victim.kill(self._log)
        self._picture.tell(
            f"{shop_clock(self._storefront.shop_s)}  kill -9 {victim.pid}: {victim.name} is gone, "
            f"with {held} job{'' if held == 1 else 's'} in hand."
        )

    async def _until_drained(self) -> None:
        """Watch until the customers are gone and no job waits any more, or nothing happens any more."""
        last_change = anyio.current_time()
        while anyio.current_time() - last_change < _STALLED_S:
            stats, news = await self._look()
            if self._traded and not stats.scheduled and not stats.processing:
                return
            if news or not self._traded:
                last_change = anyio.current_time()

    async def _look(self) -> tuple[QueueStats, bool]:
        """One round: rest, read the logs, see that the workers live, show it. Returns what is new."""
        await anyio.sleep(_LOOK_S)
        news = self._read()
        for worker in self._workers:
            worker.check()
        stats = await self._queue.stats()
        self._picture.show(self._view(stats))
        return stats, news

    def _view(self, stats: QueueStats) -> View:
        mine = self._reader.records
        ended = [
            record
            for worker in self._workers
            for record in worker.reader.records
            if isinstance(record, Ended)
        ]
        ended.sort(key=lambda record: record.at_ms)
        return View(
            shop_s=self._storefront.shop_s,
            closes_s=self._storefront.closes_s,
            placed=sum(isinstance(record, Sent) and record.task == "close_unpaid" for record in mine),
            orders=len(self._plan.orders),
            paid=sum(isinstance(record, Recalled) and record.made for record in mine),
            scheduled=stats.scheduled,
            dead=stats.dead,
            workers=[
                WorkerView(worker.name, worker.pid, worker.state, len(worker.in_hand), worker.runs)
                for worker in self._workers
            ],
            latest=[record.note for record in ended[-4:]],
        )

    async def _take_stock(self) -> Books:
        """What the server holds now."""
        most = 4 * len(self._plan.orders) + 100
        return Books(
            scheduled=frozenset([job.id for job in await self._queue.peek("scheduled", limit=most)]),
            processing=frozenset([job.id for job in await self._queue.peek("processing", limit=most)]),
            dead=frozenset([job.id for job in await self._queue.dead.list(limit=most)]),
        )

    async def _clean_up(self) -> None:
        """On somebody else's server, remove what is left of the queue; then end the processes."""
        try:
            if self._plan.url is not None:
                await self._empty()
        except (AiodqError, WorkerFailed, TimeoutError) as error:
            why = str(error) or "its jobs did not end in time"
            self._picture.tell(f"Something may be left of the queue {self._settings.queue}: {why}")
        finally:
            for worker in self._workers:
                worker.end()
            self._log.close()

    async def _empty(self) -> None:
        """Take all jobs back while the workers finish those in hand, also the killed one's."""
        with anyio.fail_after(LEASE_S + 5):
            stats = await self._queue.stats()
            while stats.scheduled or stats.processing:
                for job_id in (await self._take_stock()).scheduled:
                    await self._queue.cancel(job_id)
                await anyio.sleep(_LOOK_S)
                stats = await self._queue.stats()
            for worker in self._workers:
                await worker.stop()
            await self._queue.dead.purge(older_than=0)
