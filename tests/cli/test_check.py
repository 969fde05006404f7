"""`aiodq check`: what it finds, mends and says, and with which exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aiodq import Queue
from aiodq.cli import exits
from tests.cli.commands import aiodq, assert_told
from tests.servers import ServerProcess, free_port


async def _fill(server: ServerProcess, name: str) -> None:
    """Three sound jobs, and one whose place was removed by hand."""
    async with Queue(name, url=server.url) as queue:
        for job_id in ("a", "b", "c", "lost"):
            await queue.send("work", after=3600, job_id=job_id)
    with server.client() as client:
        client.zrem(f"aiodq:{{{name}}}:schedule", "lost")


@pytest.mark.leaves_keys("check looks at jobs that wait")
async def test_a_fault_is_told_then_mended_then_gone(
    valkey: ServerProcess, queue_name: str, tmp_path: Path
) -> None:
    await _fill(valkey, queue_name)
    done = aiodq("check", queue_name, "empty", "--url", valkey.url, cwd=tmp_path)
    assert_told(done, exits.FAILED, "--repair")
    first, finding, empty = done.stdout.splitlines()
    assert first == f"{queue_name}: 7 entries looked at, 1 fault"
    assert finding == "  lost: has a payload, but is in no place: nobody would ever run it"
    assert empty == "empty: 0 entries looked at, nothing wrong"

    done = aiodq("check", queue_name, "--repair", "--url", valkey.url, cwd=tmp_path)
    assert done.returncode == exits.OK, done.stderr
    assert "1 fault, 1 mended" in done.stdout
    assert "scheduled again, due now" in done.stdout
    assert "\x1b" not in done.stdout

    done = aiodq("check", queue_name, "--url", valkey.url, cwd=tmp_path)
    assert done.returncode == exits.OK
    assert "nothing wrong" in done.stdout


@pytest.mark.leaves_keys("check looks at jobs that wait")
async def test_json(valkey: ServerProcess, queue_name: str, tmp_path: Path) -> None:
    await _fill(valkey, queue_name)
    done = aiodq("check", queue_name, "--json", cwd=tmp_path, env={"AIODQ_URL": valkey.url})
    assert done.returncode == exits.FAILED
    (one,) = json.loads(done.stdout)["queues"]
    (finding,) = one.pop("findings")
    assert one == {
        "queue": queue_name,
        "checked": 7,
        "found": {"no-place": 1},
        "repaired": 0,
        "left": 1,
    }
    assert (finding["kind"], finding["subject"], finding["repaired"]) == ("no-place", "lost", False)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    assert_told(aiodq("check", "orders", "--url", url, cwd=tmp_path), exits.UNREACHABLE)


def test_a_queue_in_memory_cannot_be_seen(tmp_path: Path) -> None:
    assert_told(aiodq("check", "orders", "--url", "memory://", cwd=tmp_path), exits.USAGE, "memory")
