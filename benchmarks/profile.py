"""What a job costs between its claim and its ack, in µs per step: `python -m benchmarks profile`.

Each step is run by itself, many times, on what a worker really has in its hands there: the reply of a real
claim of 100 empty jobs, and what the steps before made of it. The best of several rounds is shown, since
everything else that happens on a machine only adds to it.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import hiredis

from aiodq import Queue
from aiodq._core.envelope import Envelope, decode_envelope
from aiodq._core.handler import Handler
from aiodq._core.lease import Lease
from aiodq._core.settlement import Acked
from aiodq._core.store import BATCH, ClaimRequest
from aiodq._redis.backend import RedisBackend, new_sender_id
from aiodq._redis.link import pack
from aiodq._redis.worker_store import RedisWorkerStore
from aiodq._worker.executor import Executor, start_task
from aiodq._worker.reporter import Reporter
from aiodq._worker.running import Run, current_run
from aiodq._worker.shard import Shard
from aiodq._worker.slots import Slots
from aiodq._worker.threads import Threads
from tests.servers import ServerKind, ServerProcess


@dataclass
class Step:
    """One step; `work` does it for a whole batch."""

    name: str
    why: str
    work: Callable[[], object]
    part_of: str = ""


class _Keeper:
    def renew_now(self) -> None: ...

    async def extend(self, shard: Shard, run: Run, /) -> None: ...


async def noop(value: int) -> None: ...


def report(kind: ServerKind, *, quick: bool) -> str:
    """The table, in markdown."""
    folder = Path(tempfile.mkdtemp(prefix="aiodq-profile-"))
    server = ServerProcess(kind, folder, "--appendonly", "no").start()
    try:
        return asyncio.run(_profile(server, rounds=3 if quick else 30))
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


async def _profile(server: ServerProcess, rounds: int) -> str:
    queue = Queue("profile", url=server.url)
    task = queue.task(noop)
    async with queue:
        await queue.enqueue_many([task.job(n) for n in range(BATCH)])
        backend = RedisBackend(url=server.url)
        access = cast(RedisWorkerStore, backend.store("profile").worker(new_sender_id(), lambda _: None))
        try:
            steps = await _steps(queue, backend, access)
            rows = [(step, _best_us(step.work, rounds)) for step in steps]
        finally:
            await access.aclose()
            await backend.aclose()
    return _table(rows)


def _best_us(work: Callable[[], object], rounds: int) -> float:
    """µs per job."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.perf_counter()
        for _ in range(10):
            work()
        best = min(best, (time.perf_counter() - begun) / 10)
    return best / BATCH * 1e6


async def _steps(queue: Queue, backend: RedisBackend, access: RedisWorkerStore) -> list[Step]:
    claim = ClaimRequest(want=BATCH, lease_ms=30_000)
    call_id, call = access._claim(claim, last=False)
    reply = cast("list[Any]", await call.answer())
    raw = _as_sent(reply)
    leases: Sequence[Lease] = access._read_claim(reply, call_id, claim).leases
    envelopes = [decode_envelope(lease.payload or b"") for lease in leases]
    loop, slots, reporter = asyncio.get_running_loop(), Slots(BATCH), Reporter(())
    threads = Threads(BATCH)
    executor = Executor(
        slots=slots, reporter=reporter, in_thread=threads, loop=loop, keep_margin_s=10, freed=lambda: None
    )
    handlers: dict[str, Handler] = dict(queue._handlers())
    shard = Shard(
        queue="profile",
        store=backend.store("profile"),
        worker_id=new_sender_id(),
        handlers=handlers,
        portion=slots.portion(),
        lease_ms=30_000,
        keeper=_Keeper(),
        reporter=reporter,
    )
    executor.shards = [shard]
    handler = handlers["noop"]
    runs = [Run(lease=lease, host=shard, token=lease.token) for lease in leases]

    def parse() -> None:
        reader = hiredis.Reader()
        reader.feed(raw)
        reader.gets()

    def whole() -> None:
        shard.portion.take(BATCH)
        executor.start(shard, leases, 0.0)
        shard.settler.take()
        shard.held.clear()

    def prepare(envelope: Envelope) -> object:
        return handler.prepare(envelope, threads)

    async def bare(run: Run) -> None:
        current_run.set(run)

    settlements = [Acked(run.job_id, run.token, False) for run in runs]
    fields = [field for s in settlements for field in (s.job_id, s.token)]
    start = "begin the runs, to their settlements"
    return [
        Step("parse the reply", "hiredis", parse),
        Step(
            "make the leases", "id, token, fence, due time", lambda: access._read_claim(reply, call_id, claim)
        ),
        Step(start, "the executor's whole part, measured as one", whole),
        Step(
            "keep the run",
            "what the keeper renews, and a lost lease cancels",
            lambda: [Run(lease=lease, host=shard, token=lease.token) for lease in leases],
            start,
        ),
        Step(
            "read the envelope",
            "task name, arguments, options",
            lambda: [decode_envelope(lease.payload or b"") for lease in leases],
            start,
        ),
        Step(
            "read the arguments",
            "to the handler's types, bound to its signature",
            lambda: [prepare(envelope) for envelope in envelopes],
            start,
        ),
        Step(
            "run as a task",
            "its own context and cancellation; eager where Python can",
            lambda: [start_task(bare(run), loop, "noop") for run in runs],
            start,
        ),
        Step("the handler itself", "an empty coroutine", lambda: [_drive(noop(1)) for _ in runs], start),
        Step(
            "decide the settlement",
            "one value for each run",
            lambda: [Acked(run.lease.job_id, run.token, run.remember) for run in runs],
            start,
        ),
        Step("pack the ack", "ids and tokens as they travel", lambda: pack(b"EVALSHA", *fields)),
        Step(
            "forget the run",
            "after the answer",
            lambda: [shard.held.pop(run.lease.job_id, None) for run in runs],
        ),
    ]


def _drive(work: Any) -> bool:
    try:
        work.send(None)
    except StopIteration:
        return True
    return False


def _as_sent(value: object) -> bytes:
    """The reply again as the server sent it."""
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    if isinstance(value, int):
        return b":%d\r\n" % value
    if value is None:
        return b"$-1\r\n"
    items = cast("list[object]", value)
    return b"*%d\r\n" % len(items) + b"".join(map(_as_sent, items))


def _table(rows: list[tuple[Step, float]]) -> str:
    lines = ["| step | what for | µs per job |", "| --- | --- | ---: |"]
    inner = sum(us for step, us in rows if step.part_of)
    for step, us in rows:
        name = f"… of it: {step.name}" if step.part_of else step.name
        lines.append(f"| {name} | {step.why} | {us:.2f} |")
        if step.part_of and step is [s for s, _ in rows if s.part_of][-1]:
            rest = next(us for s, us in rows if s.name == step.part_of) - inner
            lines.append(f"| … the rest | slots, clocks, time limits, bookkeeping | {rest:.2f} |")
    total = sum(us for step, us in rows if not step.part_of)
    lines.append(f"| **all** | | **{total:.2f}** |")
    return "\n".join(lines)
