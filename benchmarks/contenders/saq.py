"""saq: defaults, but as many jobs at a time as the others, and a sweep and a job timeout of one lease where
leases are short."""

from __future__ import annotations

import asyncio
import time

from saq import Queue, Worker

from benchmarks.contenders.protocol import TASKS, Contender, When, serve


def _taking_context(handler):
    async def handle(ctx, *, value):
        await handler(value)

    return handle


class Saq(Contender):
    async def open(self) -> None:
        self.queue = Queue.from_url(self.setup.url, name=self.setup.name)
        await self.queue.connect()

    async def enqueue(self, task: str, value: object, when: When) -> None:
        options = {"timeout": int(self.setup.lease_s), "retries": 3, "ttl": -1}
        if when.after is not None:
            options["scheduled"] = time.time() + when.after
        elif when.at is not None:
            options["scheduled"] = when.at / 1000
        await self.queue.enqueue(task, value=value, **options)

    async def work(self) -> None:
        functions = [(name, _taking_context(fn)) for name, fn in TASKS.items()]
        timers = {"sweep": int(self.setup.lease_s)} if self.setup.lease_s < 10 else {}
        self.worker = Worker(self.queue, functions, concurrency=self.setup.concurrency, timers=timers)
        self.running = asyncio.create_task(self.worker.start())

    async def close(self) -> None:
        if hasattr(self, "running"):
            self.running.cancel()


if __name__ == "__main__":
    serve(Saq)
