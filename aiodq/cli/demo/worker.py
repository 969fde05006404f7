"""One of the demo's worker processes, run as any worker is: `aiodq worker aiodq.cli.demo.worker:worker`.

What it has to know comes from the demo by the environment. It ends when the demo does, however that went.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from aiodq import Worker
from aiodq.cli.demo.log import Log, Ready, Settled, now_ms
from aiodq.cli.demo.post import Post, my_post
from aiodq.cli.demo.shop import add_handlers, open_shop
from aiodq.events import Event, JobSettled


def _hire(post: Post) -> Worker:
    log = Log(Path(post.log))
    shop = open_shop(post.settings)
    add_handlers(shop, log, post.worker)

    def write_settled(event: Event) -> None:
        if isinstance(event, JobSettled):
            log.write(Settled(post.worker, event.job_id, event.outcome, now_ms()))

    @asynccontextmanager
    async def on_duty() -> AsyncGenerator[None]:
        threading.Thread(target=_end_with_the_demo, name="demo-end", daemon=True).start()
        log.write(Ready(post.worker, now_ms()))
        yield

    return Worker(
        shop.queue,
        concurrency=16,
        lease=post.lease_s,
        grace=5,
        lifespan=on_duty,
        listeners=(write_settled,),
        name=post.worker,
    )


def _end_with_the_demo() -> None:
    """The demo holds the other end of stdin: it closes when the demo ends, even by a kill."""
    os.read(
        sys.stdin.fileno(), 1
    )  # not sys.stdin: its lock, held by a daemon thread, breaks Python's own end
    os.kill(os.getpid(), signal.SIGTERM)


worker: Worker = _hire(my_post())
