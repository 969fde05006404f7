"""Celery on Redis: one process. Handlers run in the `solo` pool one after another, where they do nothing or
are measured for lateness; in 100 threads where they wait. Late acknowledgement, results ignored, and the
visibility timeout as the lease."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from datetime import UTC, datetime

from celery import Celery

from benchmarks.contenders.protocol import TASKS, Contender, Setup, When, serve


def _blocking(handler):
    def handle(value):
        asyncio.run(handler(value))

    return handle


def _at_once(handler):
    """Runs a handler that never waits, without an event loop."""

    def handle(value):
        with suppress(StopIteration):
            handler(value).send(None)

    return handle


class CeleryContender(Contender):
    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.app = Celery(setup.name, broker=setup.url)
        self.app.conf.update(
            task_ignore_result=True,
            task_acks_late=True,
            task_default_queue=setup.name,
            worker_prefetch_multiplier=4,
            worker_hijack_root_logger=False,
            broker_connection_retry_on_startup=True,
            broker_transport_options={"visibility_timeout": max(1, int(setup.lease_s))},
        )
        waiting = ("io", "hold")
        self.tasks = {
            name: self.app.task(name=name)((_blocking if name in waiting else _at_once)(fn))
            for name, fn in TASKS.items()
        }

    async def enqueue(self, task: str, value: object, when: When) -> None:
        options = {}
        if when.after is not None:
            options["countdown"] = when.after
        elif when.at is not None:
            options["eta"] = datetime.fromtimestamp(when.at / 1000, UTC)
        self.tasks[task].apply_async((value,), **options)

    async def work(self) -> None:
        pool = "threads" if self.setup.threads else "solo"
        controller = self.app.WorkController(
            pool=pool,
            concurrency=self.setup.concurrency if self.setup.threads else 1,
            hostname=f"w{id(self)}@bench",
            without_mingle=True,
            without_gossip=True,
        )
        ready = threading.Event()

        def run() -> None:
            ready.set()
            controller.start()

        threading.Thread(target=run, daemon=True).start()
        await asyncio.to_thread(ready.wait)
        await asyncio.sleep(2)


if __name__ == "__main__":
    serve(CeleryContender)
