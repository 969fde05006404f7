"""`aiodq demo` itself: real processes, a real kill, and nothing left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from aiodq import Queue
from aiodq.cli import exits
from aiodq.cli.demo.orders import packaged_orders
from tests.cli.commands import aiodq, assert_told, environment
from tests.servers import ServerProcess, is_alive, wait_until


def _short_day(folder: Path, count: int = 60) -> Path:
    """The first orders of the packaged file."""
    path = folder / "short.csv"
    path.write_text("".join(packaged_orders().splitlines(keepends=True)[: count + 1]), encoding="utf-8")
    return path


@pytest.mark.slow
def test_it_passes_its_own_check_on_a_server_of_its_own(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = aiodq("demo", "--fast", "--all", cwd=tmp_path, env={"TMPDIR": str(temporary)}, timeout_s=120)
    assert done.returncode == exits.OK, done.stdout + done.stderr
    assert "Check passed: 0 lost, 0 early, 0 doubled, 0 wrong" in done.stdout
    assert "A1001" in done.stdout
    assert "A1120" in done.stdout
    assert "kill -9" in done.stderr
    assert list(temporary.iterdir()) == []
    assert sorted(tmp_path.iterdir()) == [temporary]


@pytest.mark.slow
def test_on_a_server_of_the_users_it_leaves_no_key(server: ServerProcess, tmp_path: Path) -> None:
    """The fixture looks for keys that were left, after the test."""
    orders = str(_short_day(tmp_path))
    done = aiodq(
        "demo", "--fast", "--json", "--orders", orders, "--url", server.url, cwd=tmp_path, timeout_s=120
    )
    assert done.returncode == exits.OK, done.stdout + done.stderr
    assert done.stderr == ""
    figures = json.loads(done.stdout)
    assert figures["passed"] is True
    assert figures["faults"] == []
    assert len(figures["orders"]) == 60
    assert sum(figures["outcomes"].values()) == 60
    recovery = figures["recovery"]
    assert recovery["recovered"] <= recovery["held"]
    assert figures["runs"] >= figures["late"]["runs"] > 60


@pytest.mark.slow
async def test_a_job_that_vanishes_from_the_server_fails_the_check(
    valkey: ServerProcess, tmp_path: Path
) -> None:
    """Somebody takes a closing job away behind the demo's back: it must notice, and say which."""
    with subprocess.Popen(  # noqa: ASYNC220  (starting it is quick, and nothing else runs in this loop)
        [sys.executable, "-m", "aiodq", "demo", "--fast", "--url", valkey.url],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            name = process.stderr.readline().split()[1]
            async with Queue(name, url=valkey.url) as queue:
                with anyio.fail_after(30):
                    while not await queue.cancel("close_unpaid-A1003"):  # noqa: ASYNC110  (nobody tells us)
                        await anyio.sleep(0.02)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == exits.FAILED
    assert "Check FAILED: 1 lost, 0 early, 0 doubled, 0 wrong" in out
    assert "lost: close_unpaid-A1003 has neither ended nor is it anywhere" in out


@pytest.mark.slow
def test_interrupted_on_a_server_of_the_users_it_leaves_no_key(valkey: ServerProcess, tmp_path: Path) -> None:
    """The fixture looks for keys that were left, after the test. Interrupted just after the kill, so that the
    killed worker's jobs are nobody's."""
    with subprocess.Popen(
        [sys.executable, "-m", "aiodq", "demo", "--fast", "--url", valkey.url],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert any("kill -9" in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
            assert process.wait(timeout=20) == exits.INTERRUPTED
        finally:
            process.kill()
    assert "may be left" not in said


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_it_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "aiodq", "demo"],
        cwd=tmp_path,
        env=environment({"TMPDIR": str(temporary)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            workers: list[int] = []
            for line in process.stderr:
                if "processes" in line:
                    workers = [int(word.strip(".")) for word in line.split() if word.strip(".").isdigit()][:2]
                    break
            assert len(workers) == 2
            assert all(map(is_alive, workers))
            process.send_signal(number)
            process.wait(timeout=20)
        finally:
            process.kill()
    wait_until(lambda: not any(map(is_alive, workers)), timeout_s=20, what="the workers are gone")
    if number != signal.SIGKILL:
        assert process.returncode == exits.INTERRUPTED
        assert list(temporary.iterdir()) == []


def test_wrong_input_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("order_id,amount\n")
    assert_told(aiodq("demo", "--orders", "mine.csv", cwd=tmp_path), exits.USAGE, "lacks the columns")
    assert_told(aiodq("demo", "--orders", "none.csv", cwd=tmp_path), exits.USAGE, "cannot read orders")
    assert_told(aiodq("demo", "--url", "memory://", cwd=tmp_path), exits.USAGE, "memory://")


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    done = aiodq("demo", "--url", "redis://127.0.0.1:1/0", cwd=tmp_path)
    assert_told(done, exits.UNREACHABLE)


def test_it_shows_its_input(tmp_path: Path) -> None:
    assert aiodq("demo", "--print-orders", cwd=tmp_path).stdout == packaged_orders()
