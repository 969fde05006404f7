"""streaq: defaults, but as many jobs at a time as the others, results not kept, and its idle timeout as the
lease."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from streaq import Worker

from benchmarks.contenders.protocol import TASKS, Contender, Setup, When, serve


class Streaq(Contender):
    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.worker = Worker(
            redis_url=setup.url.rsplit("/", 1)[0],
            queue_name=setup.name,
            concurrency=setup.concurrency,
            idle_timeout=setup.lease_s,
            handle_signals=False,
        )
        self.tasks = {name: self.worker.task(fn, ttl=0, silent=True) for name, fn in TASKS.items()}

    async def open(self) -> None:
        self.opened = asyncio.Event()
        self.closing = asyncio.Event()
        self.holding = asyncio.create_task(self.hold())
        await self.opened.wait()

    async def hold(self) -> None:
        async with self.worker:
            self.opened.set()
            await self.closing.wait()

    def job(self, task: str, value: object, when: When):
        job = self.tasks[task].enqueue(value)
        if when.after is not None:
            return job.start(delay=timedelta(seconds=when.after))
        if when.at is not None:
            return job.start(schedule=datetime.fromtimestamp(when.at / 1000, UTC))
        return job

    async def enqueue(self, task: str, value: object, when: When) -> None:
        await self.job(task, value, when)

    async def bulk(self, task: str, jobs: list[tuple[object, When]]) -> None:
        for at in range(0, len(jobs), 1000):
            await self.worker.enqueue_many([self.job(task, *one) for one in jobs[at : at + 1000]])

    async def work(self) -> None:
        self.closing.set()
        await self.holding
        self.running = asyncio.create_task(self.worker.run_async())

    async def close(self) -> None:
        self.closing.set()
        if hasattr(self, "running"):
            self.running.cancel()


if __name__ == "__main__":
    serve(Streaq)
