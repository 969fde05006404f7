"""A server that comes back without its last writes, and stores that send them again (as after a failover)."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from aiodq import Queue, Worker
from aiodq._core.due import NOW, Due
from aiodq._core.settlement import Acked, Buried, Deferred
from aiodq._core.store import ClaimRequest, Entry
from aiodq._core.unique import Hold
from aiodq._redis import backend as backends
from aiodq._redis import recent
from aiodq._redis.backend import RedisBackend, new_sender_id
from aiodq._redis.recent import Recent
from aiodq._redis.resender import Resender
from aiodq._redis.store import RedisStore
from aiodq._redis.worker_store import RedisWorkerStore
from tests.conftest import MakeServer
from tests.servers import ServerProcess
from tests.shards import until

CLAIM = ClaimRequest(want=10, lease_ms=30_000)


@pytest.fixture
def own(make_server: MakeServer) -> ServerProcess:
    return make_server()


@pytest.fixture
async def backend(own: ServerProcess) -> AsyncIterator[RedisBackend]:
    backend = RedisBackend(url=own.url, replays=True)
    yield backend
    await backend.aclose()


def rewind(server: ServerProcess, saved: Path) -> None:
    """Comes back with the data of the copy made by `save`."""
    server.kill()
    shutil.rmtree(server.directory)
    if saved.exists():
        shutil.copytree(saved, server.directory)
    server.start()


def save(server: ServerProcess, saved: Path) -> None:
    shutil.copytree(server.directory, saved)


async def places(store: RedisStore, *names: str) -> list[str]:
    return [found.was for found in await store.find(names)]


async def until_in(store: RedisStore, name: str, place: str) -> None:
    deadline = time.monotonic() + 8
    while (was := await places(store, name)) != [place]:
        assert time.monotonic() < deadline, was
        await asyncio.sleep(0.02)


async def sent_again(store: RedisStore) -> Resender:
    """Waits until the producer has sent its enqueues again."""
    again = store._again
    assert again is not None
    await until(lambda: again.resent > 0, 8)
    return again


async def claimed(worker: RedisWorkerStore) -> dict[str, str]:
    answer = (await worker.turn([], CLAIM)).claim
    assert answer is not None
    return {lease.job_id: lease.token for lease in answer.leases}


@pytest.fixture
async def worker(backend: RedisBackend) -> AsyncIterator[RedisWorkerStore]:
    worker = backend.store("q").worker(new_sender_id(), lambda _: None)
    assert isinstance(worker, RedisWorkerStore)
    yield worker
    await worker.aclose()


async def test_an_idle_producer_finds_out_and_sends_again(
    own: ServerProcess, backend: RedisBackend, tmp_path: Path
) -> None:
    store = backend.store("q")
    due = Due(4_000_000_000_000, relative=False)
    await store.enqueue([Entry("a", b"body of a", due), Entry("b", b"body of b", Due(3_600_000))])
    await store.replace([Entry("b", b"another body of b", due)])
    rewind(own, tmp_path / "nothing")
    other = RedisBackend(url=own.url)
    await until_in(other.store("q"), "b", "scheduled")
    found = await other.store("q").find(["a", "b"])
    assert [(job.due_ms, job.payload) for job in found] == [
        (due.ms, b"body of a"),
        (due.ms, b"another body of b"),
    ]
    await other.aclose()


async def test_unique_jobs_are_sent_again_as_they_were_left(
    own: ServerProcess, backend: RedisBackend, tmp_path: Path
) -> None:
    """The first keeps its arguments though others were sent after it; the last of the others has its own."""
    store = backend.store("q")
    due = Due(4_000_000_000_000, relative=False)
    first, last = Hold("first", 3_600_000), Hold("last", 4_000_000_000_000, "last")

    def entry(job_id: str, hold: Hold) -> Entry:
        return Entry(job_id, f"body of {job_id}".encode(), due, hold=hold)

    await store.unite([entry("a", first), entry("b", first), entry("c", last), entry("d", last)])
    await store.unite([entry("e", first), entry("f", last)])
    rewind(own, tmp_path / "nothing")
    other = RedisBackend(url=own.url)
    await until_in(other.store("q"), "c", "scheduled")
    found = await other.store("q").find(["a", "b", "c", "d", "e", "f"])
    assert [(job.was, job.payload) for job in found] == [
        ("scheduled", b"body of a"),
        ("absent", None),
        ("scheduled", b"body of f"),
        ("absent", None),
        ("absent", None),
        ("absent", None),
    ]
    await other.aclose()


async def test_nothing_is_made_anew_that_was_run_or_cancelled(
    own: ServerProcess, backend: RedisBackend, worker: RedisWorkerStore
) -> None:
    """Restarted with all its data: what was sent again is there, or has ended."""
    store = backend.store("q")
    await store.enqueue([Entry(name, b"", NOW) for name in ("done", "dead", "later")])
    tokens = await claimed(worker)
    assert (
        await worker.turn(
            [
                Acked("done", tokens["done"]),
                Buried("dead", tokens["dead"], b"why"),
                Deferred("later", tokens["later"], Due(3_600_000), b""),
            ],
            None,
        )
    ).settled == [True] * 3
    other = RedisBackend(url=own.url, replays=True)
    await store.enqueue([Entry("cancelled", b"", Due(3_600_000))])
    await other.store("q").cancel(["cancelled"])  # by another process
    own.kill()
    own.start()
    again = await sent_again(store)
    assert (again.resent, again.missing) == (4, 0)
    assert await places(store, "done", "dead", "later", "cancelled") == [
        "absent",
        "dead",
        "scheduled",
        "absent",
    ]
    await other.aclose()


async def test_a_worker_tells_its_last_acks_again(
    own: ServerProcess, backend: RedisBackend, worker: RedisWorkerStore, tmp_path: Path
) -> None:
    """`kept`: its claim was kept by the server; `lost`: neither claim nor ack was."""
    store = backend.store("q")
    await store.enqueue([Entry("kept", b"body", NOW)])
    tokens = await claimed(worker)
    await store.enqueue([Entry("lost", b"body", NOW)])
    save(own, tmp_path / "saved")
    tokens |= await claimed(worker)
    settled = await worker.turn([Acked(name, tokens[name]) for name in ("kept", "lost")], None)
    assert settled.settled == [True, True]
    await asyncio.to_thread(rewind, own, tmp_path / "saved")
    assert await places(store, "kept", "lost") == ["processing", "scheduled"]
    await worker.sweep()  # any call: the connection leads to another process
    await until_in(store, "kept", "absent")
    await until_in(store, "lost", "absent")
    assert worker._again is not None
    assert worker._again.counted == 2


async def test_a_run_that_ends_after_its_claim_was_lost_has_ended(
    own: ServerProcess, backend: RedisBackend, worker: RedisWorkerStore, tmp_path: Path
) -> None:
    store = backend.store("q")
    await store.enqueue([Entry("waits", b"body", NOW), Entry("other", b"body", NOW)])
    save(own, tmp_path / "saved")
    await store.enqueue([Entry("gone", b"body", NOW)])
    tokens = await claimed(worker)
    await asyncio.to_thread(rewind, own, tmp_path / "saved")
    await store.replace([Entry("other", b"other arguments", NOW)])
    ends = [Acked(name, tokens[name]) for name in ("waits", "gone", "other")]
    assert (await worker.turn(ends, None)).settled == [True, True, False]
    assert await places(store, "waits", "gone", "other") == ["absent", "absent", "scheduled"]
    assert (await sent_again(store)).missing == 0
    assert await places(store, "waits", "gone", "other") == ["absent", "absent", "scheduled"]


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_run_whose_claim_was_lost_goes_on_or_is_run_again(
    own: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """Its job waits at the new master. If the same worker claims it before its next renewal, the run goes on;
    if not, the renewal is refused, the handler is cancelled, and the job is run again."""
    monkeypatch.setattr(backends, "may_fail_over", _always)
    queue = Queue("q", url=own.url)
    started, ended, cancelled = list[str](), list[str](), list[str]()

    @queue.task
    async def work(name: str) -> None:
        started.append(name)
        try:
            await asyncio.sleep(2.5)
        except asyncio.CancelledError:
            cancelled.append(name)
            raise
        ended.append(name)

    async with queue, AsyncExitStack() as stack:
        await work.options(job_id="a").after(0.5).enqueue("a")
        await asyncio.to_thread(save, own, tmp_path / "saved")
        for _ in range(workers):
            await stack.enter_async_context(Worker(queue, lease=1))
        await until(lambda: started == ["a"])
        await asyncio.to_thread(rewind, own, tmp_path / "saved")
        store = queue._stores()[0]
        assert isinstance(store, RedisStore)
        await until_in(store, "a", "processing")
        await until(lambda: len(started) == len(ended) + len(cancelled), 10)
        await until_in(store, "a", "done")
        assert (await sent_again(store)).missing == 0
        assert await places(store, "a") == ["done"], "it is not made anew"
    assert len(started) <= 2
    assert len(ended) >= 1


def _always(*, url: str | None, client: object | None) -> bool:
    return True


async def test_without_it_nothing_is_asked_and_nothing_is_kept(own: ServerProcess, tmp_path: Path) -> None:
    backend = RedisBackend(url=own.url)
    store = backend.store("q")
    await store.enqueue([Entry("a", b"", Due(3_600_000))])
    assert store._again is None
    with own.client() as client:
        stats = client.info("commandstats")
        assert "cmdstat_info" not in stats or stats["cmdstat_info"]["calls"] <= 1  # this one
        assert not client.keys("*past*")
    await backend.aclose()


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "KEPT_COUNT", 3)
    monkeypatch.setattr(recent, "KEPT_BYTES", 100)
    kept: Recent[str] = Recent()
    for n, key in enumerate("abcb"):
        kept.put(key, f"{key}{n}", 10, now=float(n))
    assert [key for _, key, _ in kept.items()] == ["a", "c", "b"]
    kept.put("d", "d", 10, now=5.0)
    assert [key for _, key, _ in kept.items()] == ["c", "b", "d"], "the oldest goes first"
    kept.put("e", "e", 95, now=6.0)
    assert [key for _, key, _ in kept.items()] == ["e"]
    kept.prune(6.0 + recent.KEPT_S)
    assert len(kept) == 1
    kept.prune(6.1 + recent.KEPT_S)
    assert not kept
