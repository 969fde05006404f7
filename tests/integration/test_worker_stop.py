"""Stopping: graceful, cut short, cancelled, by signal, without a server; always within the grace, losing
nothing.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from aiodq import Queue, Worker
from aiodq._api.worker import EXIT_STUCK
from aiodq.events import JobSettled
from tests.conftest import RunScript
from tests.servers import ServerProcess, free_port
from tests.workers import Bench

PROGRAM = """
import anyio, asyncio, sys, threading
from aiodq import Queue, Worker

queue = Queue(sys.argv[1], url=sys.argv[2])

@queue.task
async def work(seconds: float) -> None:
    print("started", flush=True)
    await anyio.sleep(seconds)
    print("finished", flush=True)

@queue.task
async def stubborn() -> None:
    print("started", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

@queue.task
def thread() -> None:
    print("started", flush=True)
    threading.Event().wait(60)

worker = Worker(queue, lease=float(sys.argv[3]), grace=float(sys.argv[4]))
print("ready", flush=True)
anyio.run(worker.run)
print("left", flush=True)
"""


async def tasks_of(bench: Bench, count: int) -> None:
    @bench.queue.task
    async def work() -> None:
        bench.note("work")
        await asyncio.sleep(60)

    await bench.queue.enqueue_many([work.options(job_id=f"j{n}").job() for n in range(count)])


async def all_given_back(bench: Bench, count: int) -> None:
    for n in range(count):
        assert (await bench.find(f"j{n}")).was == "scheduled"
        assert (await bench.tally(f"j{n}")).failures == 0
        await bench.queue.cancel(f"j{n}")


async def test_b143_running_jobs_end_and_are_settled_before_the_end(bench: Bench) -> None:
    @bench.queue.task
    async def work() -> None:
        bench.note("work")
        await asyncio.sleep(0.3)

    await bench.queue.enqueue_many([work.job() for _ in range(20)])
    async with bench.worker(grace=5):
        await bench.until(lambda: len(bench.starts) == 20)
        started = time.monotonic()
    assert time.monotonic() - started < 1
    assert [event.outcome for event in bench.told(JobSettled)] == ["ack"] * 20
    stats = await bench.store.stats()
    assert (stats.scheduled, stats.processing) == (0, 0)


async def test_after_the_grace_jobs_are_given_back_at_once_and_uncounted(bench: Bench) -> None:
    await tasks_of(bench, 3)
    async with bench.worker(grace=0.8, lease=30):
        await bench.until(lambda: len(bench.starts) == 3)
        started = time.monotonic()
    assert time.monotonic() - started < 0.8
    assert {event.outcome for event in bench.told(JobSettled)} == {"release"}
    await all_given_back(bench, 3)


async def test_b136_five_deploys_in_the_middle_of_a_job_use_up_no_attempt(bench: Bench) -> None:
    @bench.queue.task(max_attempts=3)
    async def work() -> None:
        bench.note("work")
        await asyncio.sleep(60 if bench.runs("work") <= 5 else 0)

    await work.options(job_id="x").enqueue()
    for n in range(1, 7):
        async with bench.worker(grace=0, lease=30):
            await bench.until(lambda: bench.runs("work") == n)  # noqa: B023
    await bench.until_in("done", "x")
    assert [event.outcome for event in bench.told(JobSettled)] == ["release"] * 5 + ["ack"]


async def test_cutting_short_ends_the_grace(bench: Bench) -> None:
    await tasks_of(bench, 2)
    worker = bench.worker(grace=30, lease=30)
    async with worker:
        await bench.until(lambda: len(bench.starts) == 2)
        worker.stop()
        await asyncio.sleep(0.05)
        assert worker.health().running == 2
        started = time.monotonic()
        worker.cut_short()
    assert time.monotonic() - started < 1
    await all_given_back(bench, 2)


async def test_cancelling_run_gives_back_and_passes_the_cancellation_on(bench: Bench) -> None:
    await tasks_of(bench, 2)
    running = asyncio.create_task(bench.worker(grace=30, lease=30).run())
    await bench.until(lambda: len(bench.starts) == 2)
    started = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - started < 1
    await all_given_back(bench, 2)


async def test_a_timeout_around_run_ends_it(bench: Bench) -> None:
    await tasks_of(bench, 1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await bench.worker(grace=30, lease=30).run()
    await all_given_back(bench, 1)


async def test_stop_from_inside_a_handler(bench: Bench) -> None:
    worker = bench.worker()

    @bench.queue.task
    async def work() -> None:
        worker.stop()

    await work.enqueue()
    async with asyncio.timeout(5):
        await worker.run()
    assert [event.outcome for event in bench.told(JobSettled)] == ["ack"]


async def test_b38_a_handler_that_swallows_the_shutdown_is_left_behind_and_said(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.dead_workers = True  # it leaves holding a lease, like one that died
    proceed = asyncio.Event()

    @bench.queue.task
    async def stubborn() -> None:
        bench.note("stubborn")
        while not proceed.is_set():
            try:
                await proceed.wait()
            except asyncio.CancelledError:
                continue

    await stubborn.options(job_id="s").enqueue()
    async with bench.worker(grace=1, lease=0.5):
        await bench.until(lambda: bench.runs("stubborn") == 1)
        started = time.monotonic()
    assert time.monotonic() - started < 1.2
    assert "did not stop within the grace" in caplog.text
    # Its lease runs out; another worker takes the job.
    proceed.set()
    async with bench.worker():
        await bench.until(lambda: bench.runs("stubborn") == 2)
        await bench.until_empty()


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_b141_without_a_server_the_end_comes_within_the_grace(how: str, queue_name: str) -> None:
    queue = Queue(queue_name, url=f"redis://127.0.0.1:{free_port()}")

    @queue.task
    async def work() -> None: ...

    worker = Worker(queue, grace=1)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0.3)
    started = time.monotonic()
    if how == "stop":
        worker.stop()
        await running
    else:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert time.monotonic() - started < 2.5


@pytest.mark.parametrize("kind", ["memory", "valkey"])
async def test_b147_entering_and_leaving_can_be_cancelled_anywhere(
    kind: str, request: pytest.FixtureRequest, queue_name: str
) -> None:
    url = f"memory://{queue_name}" if kind == "memory" else request.getfixturevalue("valkey").url
    before = asyncio.all_tasks()
    for delay_ms in [0, 0.1, 0.5, 1, 2, 3, 5, 8, 12, 20, 30, 60]:
        queue = Queue(queue_name, url=url)

        @queue.task
        async def work() -> None: ...

        async def use(queue: Queue = queue) -> None:
            async with Worker(queue, grace=5):
                await asyncio.sleep(0.01)

        using = asyncio.create_task(use())
        await asyncio.sleep(delay_ms / 1000)
        using.cancel()
        done, _ = await asyncio.wait([using], timeout=1)
        assert done, f"still there a second after its cancellation at {delay_ms} ms"
        await queue.aclose()
        assert asyncio.all_tasks() - before == set()


async def test_an_error_in_the_body_passes_out_after_a_graceful_stop(bench: Bench) -> None:
    @bench.queue.task
    async def work() -> None:
        bench.note("work")
        await asyncio.sleep(0.1)

    await work.enqueue()

    async def use() -> None:
        async with bench.worker(grace=5):
            await bench.until(lambda: bench.runs("work") == 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await use()
    assert [event.outcome for event in bench.told(JobSettled)] == ["ack"]


async def test_an_error_of_the_lifespan_is_the_workers_error(bench: Bench) -> None:
    class Broken(AsyncExitStack):
        async def __aenter__(self) -> Any:
            raise OSError("no database")

    @bench.queue.task
    async def work() -> None: ...

    with pytest.raises(OSError, match="no database"):
        await bench.worker(lifespan=Broken).run()
    with pytest.raises(OSError, match="no database"):
        async with bench.worker(lifespan=Broken):
            pass


async def test_b167_without_signals_it_warns_and_can_be_stopped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unavailable(*_: object) -> None:
        raise NotImplementedError

    @bench.queue.task
    async def work() -> None:
        bench.note("work")

    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", unavailable)
    worker = bench.worker()
    running = asyncio.create_task(worker.run())
    await work.enqueue()
    await bench.until(lambda: bench.runs("work") == 1)
    assert "signals do not stop this worker" in caplog.text
    worker.stop()
    await running


async def test_b167_in_another_thread_it_runs_and_stops(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    @bench.queue.task
    async def work() -> None:
        bench.note("work")

    worker = bench.worker()
    await work.enqueue()
    in_thread = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(worker.run())))
    await bench.until(lambda: bench.runs("work") == 1)
    worker.stop()
    await in_thread
    assert "not the main thread" in caplog.text


async def test_signal_handlers_are_put_back(bench: Bench) -> None:
    def mine(*_: object) -> None: ...

    @bench.queue.task
    async def work() -> None: ...

    before: Callable[..., Any] | int | None = signal.signal(signal.SIGTERM, mine)
    try:
        await bench.worker().run(burst=True)
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


# ---- real processes


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_b143_a_signal_lets_jobs_end(
    valkey: ServerProcess, queue_name: str, run_script: RunScript, number: signal.Signals
) -> None:
    async with Queue(queue_name, url=valkey.url) as queue:
        await queue.enqueue_many([queue.stub("work").job(1.0) for _ in range(20)])
        script = run_script(PROGRAM, queue_name, valkey.url, "30", "10")
        script.wait_for("started")
        script.send_signal(number)
        assert script.wait() == 0
        assert script.lines.count("finished") == 20
        assert script.lines[-1] == "left"
        stats = await queue.stats()
        assert (stats.scheduled, stats.processing) == (0, 0)


async def test_b36_a_second_signal_gives_back_at_once_without_a_traceback(
    valkey: ServerProcess, queue_name: str, run_script: RunScript, capfd: pytest.CaptureFixture[str]
) -> None:
    async with Queue(queue_name, url=valkey.url) as queue:
        await queue.stub("work").options(job_id="x").enqueue(30.0)
        script = run_script(PROGRAM, queue_name, valkey.url, "30", "20")
        script.wait_for("started")
        script.send_signal(signal.SIGINT)
        await asyncio.sleep(0.2)
        assert script.returncode is None
        script.send_signal(signal.SIGINT)
        assert script.wait(5) == 0
        assert (await queue.stats()).due == 1, "due again at once, not after the lease"
        await queue.cancel("x")
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("task", ["stubborn", "thread"])
async def test_b38_what_does_not_stop_is_given_back_and_the_process_ends_with_its_code(
    valkey: ServerProcess, queue_name: str, run_script: RunScript, task: str
) -> None:
    async with Queue(queue_name, url=valkey.url) as queue:
        await queue.stub(task).options(job_id="x").enqueue()
        script = run_script(PROGRAM, queue_name, valkey.url, "30", "2")
        script.wait_for("started")
        started = time.monotonic()
        script.terminate()
        assert script.wait(10) == EXIT_STUCK
        assert time.monotonic() - started < 4
        assert (await queue.stats()).due == 1
        await queue.cancel("x")


async def test_b141_a_process_without_a_server_ends_within_the_grace(
    queue_name: str, run_script: RunScript
) -> None:
    script = run_script(PROGRAM, queue_name, f"redis://127.0.0.1:{free_port()}", "30", "1")
    await asyncio.sleep(0.3)
    started = time.monotonic()
    script.terminate()
    assert script.wait(10) == 0
    assert time.monotonic() - started < 3
