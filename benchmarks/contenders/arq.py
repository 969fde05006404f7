"""arq: defaults, but as many jobs at a time as the others, no kept results, and a job timeout of one lease,
since its in-progress mark is what recovery waits for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from arq import Worker, create_pool, func
from arq.connections import RedisSettings

from benchmarks.contenders.protocol import TASKS, Contender, When, serve


def _taking_context(handler):
    async def handle(ctx, value):
        await handler(value)

    return handle


class Arq(Contender):
    async def open(self) -> None:
        self.settings = RedisSettings(host=self.setup.host, port=self.setup.port)
        self.pool = await create_pool(self.settings)

    async def enqueue(self, task: str, value: object, when: When) -> None:
        if when.after is not None:
            await self.pool.enqueue_job(task, value, _defer_by=when.after)
        elif when.at is not None:
            await self.pool.enqueue_job(task, value, _defer_until=datetime.fromtimestamp(when.at / 1000, UTC))
        else:
            await self.pool.enqueue_job(task, value)

    async def work(self) -> None:
        functions = [func(_taking_context(fn), name=name) for name, fn in TASKS.items()]
        self.worker = Worker(
            functions,
            redis_settings=self.settings,
            max_jobs=self.setup.concurrency,
            job_timeout=self.setup.lease_s,
            keep_result=0,
            handle_signals=False,
            log_results=False,
        )
        self.running = asyncio.create_task(self.worker.async_run())

    async def close(self) -> None:
        if hasattr(self, "running"):
            self.running.cancel()


if __name__ == "__main__":
    serve(Arq)
