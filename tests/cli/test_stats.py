"""`aiodq stats`: its figures, its forms, and what it says when it cannot."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aiodq import Queue
from aiodq.cli import exits
from tests.cli.commands import aiodq, assert_told, environment
from tests.servers import ServerProcess, free_port


async def _fill(url: str, name: str) -> None:
    async with Queue(name, url=url) as queue:
        await queue.send("work", job_id="now")
        await queue.send("work", after=3600, job_id="later")
        await queue.send("work", after=3600, job_id="last")


@pytest.mark.leaves_keys("stats looks at jobs that wait")
async def test_figures_of_two_queues(valkey: ServerProcess, queue_name: str, tmp_path: Path) -> None:
    await _fill(valkey.url, queue_name)
    done = aiodq("stats", queue_name, "empty", "--url", valkey.url, cwd=tmp_path)
    assert done.returncode == exits.OK, done.stderr
    head, first, second = done.stdout.splitlines()
    assert head.split() == ["queue", "due", "scheduled", "processing", "dead", "overdue"]
    assert first.split()[:5] == [queue_name, "1", "3", "0", "0"]
    assert second.split() == ["empty", "0", "0", "0", "0", "0"]
    assert "\x1b" not in done.stdout  # plain text into a pipe


@pytest.mark.leaves_keys("stats looks at jobs that wait")
@pytest.mark.parametrize("variable", ["AIODQ_URL", "REDIS_URL"])
async def test_json_with_the_url_from_the_environment(
    valkey: ServerProcess, queue_name: str, tmp_path: Path, variable: str
) -> None:
    await _fill(valkey.url, queue_name)
    async with Queue(queue_name, url=valkey.url) as queue:
        await queue.pause("for the test")
    done = aiodq("stats", queue_name, "--json", cwd=tmp_path, env={variable: valkey.url})
    (one,) = json.loads(done.stdout)["queues"]
    assert one.pop("oldest_overdue_s") >= 0
    assert one == {"queue": queue_name, "due": 1, "scheduled": 3, "processing": 0, "dead": 0, "paused": True}


def test_watch_goes_on_and_ends_well_with_ctrl_c(
    valkey: ServerProcess, queue_name: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "aiodq", "stats", queue_name, "--watch", "--every", "0.1", "--json"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment({"AIODQ_URL": valkey.url}), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            looks = [json.loads(process.stdout.readline()) for _ in range(3)]
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=10) == exits.OK
        finally:
            process.kill()
    assert [look["queues"][0]["queue"] for look in looks] == [queue_name] * 3


def test_without_any_url(tmp_path: Path) -> None:
    assert_told(aiodq("stats", "orders", cwd=tmp_path), exits.USAGE, "use --url, or set AIODQ_URL")


def test_a_memory_named_by_the_environment(tmp_path: Path) -> None:
    done = aiodq("stats", "orders", cwd=tmp_path, env={"AIODQ_URL": "memory://"})
    assert_told(done, exits.USAGE, "memory:// queues live inside the program")


def test_looking_makes_no_directory(tmp_path: Path) -> None:
    done = aiodq("stats", "orders", "--url", "embedded://./dtaa", cwd=tmp_path)
    assert_told(done, exits.USAGE, "there is no directory dtaa", "`aiodq server dtaa`")
    assert not (tmp_path / "dtaa").exists()


@pytest.mark.parametrize("url", ["memory://", "http://127.0.0.1:1", "nonsense"])
def test_a_url_that_is_none(tmp_path: Path, url: str) -> None:
    assert_told(aiodq("stats", "orders", "--url", url, cwd=tmp_path), exits.USAGE, url.partition("//")[0])


@pytest.mark.parametrize("name", ["a b", "orders/0", "{x}", ""])
def test_a_queue_name_that_cannot_be_one(tmp_path: Path, name: str) -> None:
    done = aiodq("stats", name, "--url", "redis://127.0.0.1:1", cwd=tmp_path)
    assert_told(done, exits.USAGE, "queue name")


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    url = f"redis://:sesame@127.0.0.1:{free_port()}/0"
    done = aiodq("stats", "orders", "--url", url, cwd=tmp_path)
    assert_told(done, exits.UNREACHABLE)
    assert "sesame" not in done.stderr


@pytest.mark.leaves_keys("stats looks at jobs that wait")
@pytest.mark.parametrize(("shards", "fifo"), [(4, False), (1, True), (4, True)])
async def test_shards_and_order_are_found_by_themselves(
    valkey: ServerProcess, queue_name: str, tmp_path: Path, shards: int, *, fifo: bool
) -> None:
    async with Queue(queue_name, url=valkey.url, shards=shards, fifo=fifo) as queue:
        for n in range(10):
            await queue.send("work", after=3600, job_id=f"job-{n}")
    done = aiodq("stats", queue_name, "--json", "--url", valkey.url, cwd=tmp_path)
    assert done.returncode == exits.OK, done.stderr
    assert json.loads(done.stdout)["queues"][0]["scheduled"] == 10
    done = aiodq("check", queue_name, "--url", valkey.url, cwd=tmp_path)
    assert done.returncode == exits.OK, done.stdout + done.stderr
    assert "nothing wrong" in done.stdout
