"""What the two floors share: a raw connection with the hiredis parser, and one loop that claims, runs, acks.

No safety: no renewal of leases, repeats, retries, time limits, clock steps, checked arguments, reconnecting.
"""

from __future__ import annotations

import asyncio
import os
import sys
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import hiredis
import msgspec

from benchmarks.contenders.protocol import TASKS, Contender, When

BATCH = 100
Future = asyncio.Future[Any]


class Wire(asyncio.Protocol):
    """One connection; replies in the order of the calls, or all to `on_push`."""

    transport: asyncio.WriteTransport

    def __init__(self, on_push: Callable[[Any], None] | None = None) -> None:
        self.reader = hiredis.Reader()
        self.waiting: deque[Future] = deque()
        self.on_push = on_push

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        while (reply := self.reader.gets()) is not False:
            if self.on_push is not None:
                self.on_push(reply)
            else:
                self.waiting.popleft().set_result(reply)

    def call(self, *command: object) -> Future:
        future: Future = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        self.transport.write(hiredis.pack_command(command))
        return future


class Raw(Contender):
    """A queue in three calls, which subclasses make of their scripts."""

    async def connect(self, on_push: Callable[[Any], None] | None = None) -> Wire:
        loop, setup = asyncio.get_running_loop(), self.setup
        _, wire = await loop.create_connection(lambda: Wire(on_push), setup.host, setup.port)
        return wire

    async def open(self) -> None:
        self.wire = await self.connect()
        self.put: list[tuple[str, str, bytes, Future]] = []
        self.encode = msgspec.msgpack.Encoder().encode
        self.decode = msgspec.msgpack.Decoder(tuple[str, object]).decode
        await self.deploy()

    @abstractmethod
    async def deploy(self) -> None:
        """Loads the scripts."""

    @abstractmethod
    def send_jobs(self, fields: list[str | bytes]) -> Future:
        """Enqueues: flat runs of id, due time and payload."""

    @abstractmethod
    def send_claim(self, want: int) -> Future: ...

    @abstractmethod
    def read_claim(self, reply: Any) -> tuple[float, Iterable[tuple[bytes, bytes, Any]]]:
        """How long to sleep, and the jobs: id, payload, and what the ack needs."""

    @abstractmethod
    def send_acks(self, ended: list[Any]) -> None: ...

    async def enqueue(self, task: str, value: object, when: When) -> None:
        future: Future = asyncio.get_running_loop().create_future()
        if not self.put:
            asyncio.get_running_loop().call_soon(self.flush)
        self.put.append((os.urandom(12).hex(), due_text(when), self.encode((task, value)), future))
        await future

    def flush(self) -> None:
        """All that was asked for in one round of the loop, in batches."""
        waiting, self.put = self.put, []
        for at in range(0, len(waiting), BATCH):
            page = waiting[at : at + BATCH]
            call = self.send_jobs([field for job in page for field in job[:3]])
            call.add_done_callback(lambda _, page=page: [job[3].set_result(None) for job in page])

    async def bulk(self, task: str, jobs: list[tuple[object, When]]) -> None:
        calls: list[Future] = []
        for at in range(0, len(jobs), BATCH):
            fields: list[str | bytes] = []
            for value, when in jobs[at : at + BATCH]:
                fields += (os.urandom(12).hex(), due_text(when), self.encode((task, value)))
            calls.append(self.send_jobs(fields))
        await asyncio.gather(*calls)

    async def work(self) -> None:
        self.poke = asyncio.Event()
        self.ended: list[Any] = []
        self.free = self.setup.concurrency
        ears = await self.connect(self.hear)
        ears.transport.write(hiredis.pack_command(("SUBSCRIBE", *self.channels())))
        self.wire_of_worker = await self.connect()
        self.looping = asyncio.create_task(self.claim_and_run())

    @abstractmethod
    def channels(self) -> tuple[str, ...]: ...

    @abstractmethod
    def wait_s(self, notice: bytes) -> float:
        """How long after a notice something is due."""

    def hear(self, reply: Any) -> None:
        if reply[0] == b"message":
            asyncio.get_running_loop().call_later(self.wait_s(reply[2]), self.poke.set)

    async def claim_and_run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            ended, self.ended = self.ended[:BATCH], self.ended[BATCH:]
            self.poke.clear()
            if ended:
                self.send_acks(ended)
            wait_s = 3600.0
            if self.free:
                wait_s, jobs = self.read_claim(await self.send_claim(min(self.free, BATCH)))
                for job_id, payload, proof in jobs:
                    self.free -= 1
                    task, value = self.decode(payload)
                    start(self.run(job_id, proof, TASKS[task], value), loop)
            if wait_s > 0 and not self.ended:
                timer = loop.call_later(wait_s, self.poke.set)
                await self.poke.wait()
                timer.cancel()

    async def run(self, job_id: bytes, proof: Any, handler: Callable[..., Any], value: object) -> None:
        try:
            await handler(value)
        finally:
            self.free += 1
            self.ended.append((job_id, proof))
            self.poke.set()


def due_text(when: When) -> str:
    if when.at is not None:
        return str(when.at)
    return f"+{int((when.after or 0) * 1000)}"


_running: set[asyncio.Task[None]] = set()


def start(work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> None:
    """A task, eager where Python can."""
    if sys.version_info >= (3, 12):
        task = asyncio.Task(work, loop=loop, eager_start=True)
        if task.done():
            return
    else:
        task = loop.create_task(work)
    _running.add(task)
    task.add_done_callback(_running.discard)
