"""What only the store in memory has: its sorted set, its ring of done marks, its use from threads and loops.

What it does with jobs is tried together with real servers in `tests/integration/scripts`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiodq._core.due import NOW, Due
from aiodq._core.lease import Lease
from aiodq._core.limit import Permit
from aiodq._core.settlement import Acked
from aiodq._core.store import DEDUPE_MS, Backend, ClaimRequest, Entry, Notice
from aiodq._memory import MemoryBackend
from aiodq._memory.clock import anchored_clock
from aiodq._memory.parts import DoneMarks
from aiodq._memory.scored_set import ScoredSet
from aiodq._memory.store import LoopEar, MemoryStore
from tests.shards import worker_id

T = TypeVar("T")

members = st.text(max_size=3)
scores = st.integers(-5, 5)


@given(
    changes=st.lists(st.tuples(members, st.none() | scores)),
    low=scores,
    high=scores,
    offset=st.integers(0, 4),
    limit=st.integers(0, 4),
)
def test_a_scored_set_is_ordered_by_score_then_bytes(
    changes: list[tuple[str, int | None]], low: int, high: int, offset: int, limit: int
) -> None:
    ours, plain = ScoredSet(), dict[str, int]()
    for member, score in changes:
        if score is None:
            assert ours.remove(member) is (plain.pop(member, None) is not None)
        else:
            ours.put(member, score)
            plain[member] = score
    ordered = sorted(plain.items(), key=lambda pair: (pair[1], pair[0].encode()))
    assert list(ours) == ordered
    assert len(ours) == len(plain)
    assert ours.first() == min(plain.values(), default=None)
    assert ours.page(offset, limit) == ordered[offset : offset + limit]
    assert ours.page_from_end(offset, limit) == ordered[::-1][offset : offset + limit]
    assert ours.up_to(high, limit) == [pair for pair in ordered if pair[1] <= high][:limit]
    assert ours.between(low, high) == [member for member, score in ordered if low <= score <= high]
    assert [ours.score(member) for member, _ in changes] == [plain.get(member) for member, _ in changes]


def test_done_marks_last_one_to_two_windows() -> None:
    for start in (0, 1, DEDUPE_MS // 2, DEDUPE_MS - 1, 5 * DEDUPE_MS + 17):
        marks = DoneMarks()
        marks.put("a", 7, start)
        kept = [ms for ms in range(start, start + 3 * DEDUPE_MS, 1000) if marks.get("a", ms) == 7]
        assert kept == list(range(start, start + len(kept) * 1000, 1000))
        assert DEDUPE_MS <= len(kept) * 1000 <= 2 * DEDUPE_MS + 1000


def test_a_newer_done_mark_hides_an_older_one_and_old_buckets_are_used_again() -> None:
    marks = DoneMarks()
    for window in range(10):
        now_ms = window * DEDUPE_MS + 5
        marks.put("a", window, now_ms)
        marks.put(f"b{window}", 0, now_ms)
        assert marks.get("a", now_ms) == window
        assert set(marks.all(now_ms)) == {"a", f"b{window}"} | ({f"b{window - 1}"} if window else set())


def in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Runs it in an event loop of its own, in a thread of its own."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(work)))
    thread.start()
    thread.join()
    return results[0]


def test_the_clock_follows_the_wall_and_never_steps_back() -> None:
    clock = anchored_clock()
    seen = [clock() for _ in range(1000)]
    assert seen == sorted(seen)
    assert seen[0] > 1_700_000_000_000_000


def test_one_shard_of_a_name_and_its_own_for_each_other() -> None:
    backend: Backend = MemoryBackend()
    assert backend.store("q") is backend.store("q")
    others = [backend.store("r"), backend.store("q", shard=0), backend.store("q", prefix="other")]
    assert len({id(store) for store in [backend.store("q"), *others]}) == 4


async def test_jobs_outlive_event_loops_and_the_closing_of_the_backend() -> None:
    backend = MemoryBackend()
    await asyncio.to_thread(lambda: in_thread(backend.store("q").enqueue([Entry("a", b"1", NOW)])))
    await backend.aclose()
    assert (await backend.store("q").find(["a"]))[0].payload == b"1"


async def test_notices_reach_a_worker_from_another_loop_and_thread() -> None:
    store = MemoryBackend().store("q")
    notices: asyncio.Queue[tuple[Notice, int]] = asyncio.Queue()
    worker = store.worker(worker_id("w"), lambda n: notices.put_nowait((n, threading.get_ident())))
    listening = asyncio.create_task(worker.listen())
    here = threading.get_ident()
    assert await notices.get() == (Notice("connected"), here)
    await worker.turn([], ClaimRequest(1, 1000))
    await asyncio.to_thread(lambda: in_thread(store.enqueue([Entry("a", b"", NOW)])))
    assert await asyncio.wait_for(notices.get(), 5) == (Notice("due"), here)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert not store.shard.heard(worker_id("w"))


async def test_a_worker_whose_loop_is_gone_is_deaf() -> None:
    store = MemoryBackend().store("q")

    async def be_left_behind() -> None:
        store.shard.subscribe(worker_id("w"), LoopEar(lambda _: None))
        await store.worker(worker_id("w"), lambda _: None).turn([], ClaimRequest(1, 1000))
        assert store.shard.heard(worker_id("w"))
        assert len(store.shard.idle) == 1

    await asyncio.to_thread(lambda: in_thread(be_left_behind()))
    assert not store.shard.heard(worker_id("w"))
    assert (await store.enqueue([Entry("a", b"", NOW)]))[0].created
    assert len(store.shard.idle) == 0


async def test_leases_are_renewed_from_a_keepers_own_thread() -> None:
    store = MemoryBackend().store("q")
    worker = store.worker(worker_id("w"), lambda _: None)
    await store.enqueue([Entry("a", b"", NOW)])
    claim = (await worker.turn([], ClaimRequest(1, 1000))).claim
    assert claim is not None
    [lease] = claim.leases
    keeper = store.keeper(worker_id("w"))
    pairs = [("a", lease.token), ("a", "stale")]
    answers = await asyncio.to_thread(lambda: in_thread(keeper.extend(pairs, lease_ms=60_000)))
    assert answers == [True, False]
    assert (store.shard.processing.score("a") or 0) > claim.now_us // 1000 + 50_000


def test_many_threads_share_out_every_job_once() -> None:
    store = MemoryBackend().store("q")
    names = [f"{n:04d}" for n in range(600)]
    asyncio.run(store.enqueue([Entry(name, b"", NOW) for name in names]))
    given: list[Lease] = []

    async def drain(name: str) -> None:
        worker = store.worker(worker_id(name), lambda _: None)
        while True:
            claim = (await worker.turn([], ClaimRequest(7, 60_000))).claim
            assert claim is not None
            if not claim.leases:
                return
            given.extend(claim.leases)
            ends = [Acked(lease.job_id, lease.token) for lease in claim.leases]
            assert (await worker.turn(ends, None)).settled == [True] * len(ends)

    def work(n: int) -> None:
        asyncio.run(drain(f"w{n}"))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(lease.job_id for lease in given) == names
    assert len(store.shard.payload) == 0


async def test_a_call_that_was_cancelled_has_done_nothing() -> None:
    store = MemoryBackend().store("q")
    call = asyncio.create_task(store.enqueue([Entry("a", b"", NOW)]))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await store.find(["a"]))[0].was == "absent"


async def test_calls_let_the_event_loop_run() -> None:
    store: MemoryStore = MemoryBackend().store("q")
    ran = 0

    async def other() -> None:
        nonlocal ran
        while True:
            ran += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for _ in range(10):
        await store.reschedule([("nobody", Due(0))])
    task.cancel()
    assert ran >= 10


async def test_names_of_limits_that_nobody_runs_under_are_forgotten() -> None:
    store = MemoryBackend().store("q")
    hand = store.worker(worker_id("w"), lambda _: None)
    for n in range(3):
        await hand.occupy([Permit("a", f"tenant-{n}", 1), Permit("b", f"tenant-{n}", 1, 1, 1, 2)])
        assert store.shard.permits
        await hand.vacate([Permit("a", f"tenant-{n}", 1), Permit("b", f"tenant-{n}", 1)])
    assert not store.shard.permits
    assert not store.shard.waiting
