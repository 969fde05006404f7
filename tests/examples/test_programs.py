"""The examples that are programs, run as their header comments say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aiodq import Queue
from tests.conftest import RunScript
from tests.servers import ROOT, ServerProcess, wait_until

EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(path for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_each_says_what_it_shows_and_how_it_is_run(program: Path) -> None:
    header = program.read_text(encoding="utf-8").split('"""')[1]
    assert "\nShows: " in header
    assert "\nRun:   " in header
    assert program.stem in header


@pytest.mark.parametrize("where", ["memory", "server"])
def test_quickstart(run_script: RunScript, valkey: ServerProcess, where: str) -> None:
    env = {"AIODQ_URL": "memory://" if where == "memory" else valkey.url}
    script = run_script(EXAMPLES / "quickstart.py", env=env, ready=None)
    assert script.wait() == 0
    assert [line for line in script.lines if line.startswith("closing")] == ["closing A1001", "closing A1002"]
    told = [line for line in script.lines if line.startswith("A1003")]
    assert len(told) == 2
    assert re.fullmatch(r"A1003 would be closed at \d\d:\d\d:\d\d UTC", told[0])
    assert told[1] == "A1003 was paid, and stays open"


def test_async_worker_runs_until_it_is_told_to_stop(run_script: RunScript, valkey: ServerProcess) -> None:
    env = {"AIODQ_URL": valkey.url}
    worker = run_script(EXAMPLES / "async_worker.py", env=env, ready=None)
    producer = run_script(
        EXAMPLES / "async_worker.py", "ada@example.org", "bob@example.org", env=env, ready=None
    )
    assert producer.wait() == 0
    for _ in range(2):
        worker.wait_for("to ")
    worker.terminate()
    assert worker.wait() == 0
    mails = sorted(worker.lines)
    assert mails == [
        "the mailer closes after 2 mails",
        "to ada@example.org: your basket waits (attempt 1)",
        "to bob@example.org: your basket waits (attempt 1)",
    ]


async def test_the_shop(run_script: RunScript, valkey: ServerProcess) -> None:
    """Contract, handlers and worker in files of their own; orders of the demo's packaged file."""
    env = {"AIODQ_URL": valkey.url, "PYTHONPATH": f"{ROOT}:{EXAMPLES}"}
    worker = run_script(
        "import aiodq.cli; aiodq.cli.main(['worker', 'shop.worker:worker'])", env=env, ready=None
    )
    producer = run_script(
        "import runpy; runpy.run_module('shop.place_orders', run_name='__main__')", env=env, ready=None
    )
    assert producer.wait() == 0
    assert producer.lines == ["12 orders placed"]
    wait_until(lambda: sum("the merchant knows" in line for line in worker.lines) == 12, timeout_s=30)
    worker.terminate()
    assert worker.wait() == 0
    text = "\n".join(worker.lines)
    assert "A1003: closed" in text  # never paid
    assert (
        "A1003: the merchant knows that it is closed" in text
    )  # at the second call: a merchant with a bad line
    assert "A1001: receipt over 38.49 to Camila Rojas" in text
    assert text.count("closed, ") + text.count("receipt over") == 12
    async with Queue("shop", url=valkey.url) as queue:
        stats = await queue.stats()
    assert (stats.scheduled, stats.processing, stats.dead) == (0, 0, 0)
