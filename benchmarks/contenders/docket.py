"""docket (pydocket): defaults, but as many jobs at a time as the others, its redelivery timeout as the lease,
and states that are not kept."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from docket import Docket, Worker

from benchmarks.contenders.protocol import TASKS, Contender, When, serve


class DocketContender(Contender):
    async def open(self) -> None:
        url = f"{self.setup.url}?max_connections=1000"  # redis-py's 100 are too few for 100 slots
        self.docket = Docket(self.setup.name, url, execution_ttl=timedelta(0))
        await self.docket.__aenter__()
        for name, fn in TASKS.items():
            self.docket.register(fn, names=[name])

    @staticmethod
    def due(when: When) -> datetime:
        if when.at is not None:
            return datetime.fromtimestamp(when.at / 1000, UTC)
        return datetime.now(UTC) + timedelta(seconds=when.after or 0)

    async def enqueue(self, task: str, value: object, when: When) -> None:
        await self.docket.add(TASKS[task], when=self.due(when))(value)

    async def bulk(self, task: str, jobs: list[tuple[object, When]]) -> None:
        await self.docket.add_many(
            [self.docket.call(TASKS[task], when=self.due(when))(value) for value, when in jobs]
        )

    async def work(self) -> None:
        self.worker = Worker(
            self.docket,
            concurrency=self.setup.concurrency,
            redelivery_timeout=timedelta(seconds=self.setup.lease_s),
        )
        await self.worker.__aenter__()
        self.running = asyncio.create_task(self.worker.run_forever())

    async def close(self) -> None:
        if hasattr(self, "running"):
            self.running.cancel()


if __name__ == "__main__":
    serve(DocketContender)
