"""`aiodq worker`: it runs what it is pointed at, stops when told, and explains what it cannot find."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aiodq import Queue
from aiodq.cli import exits
from tests.cli.commands import aiodq, assert_told, environment
from tests.servers import ServerProcess, wait_until

PROGRAM = """
import logging, os
from pathlib import Path
from aiodq import Queue, Worker

orders = Queue(os.environ["QUEUE"])

@orders.task
async def mark(name: str) -> None:
    Path(name).touch()

worker = Worker(orders, concurrency=3, grace=2)
made = lambda: worker
"""


def _program(folder: Path, text: str = PROGRAM, name: str = "shop.py") -> None:
    (folder / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_runs_jobs_until_told_to_stop(
    valkey: ServerProcess, queue_name: str, tmp_path: Path, number: signal.Signals
) -> None:
    _program(tmp_path)
    env = environment({"QUEUE": queue_name, "AIODQ_URL": valkey.url})
    command = [sys.executable, "-m", "aiodq", "worker", "shop:worker"]
    with subprocess.Popen(  # noqa: ASYNC220  (starting it is quick, and nothing else runs in this loop)
        command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            async with Queue(queue_name, url=valkey.url) as queue:
                await queue.send("mark", args=("done",))
            wait_until((tmp_path / "done").exists, what="the job was run")
            process.send_signal(number)
            out, logs = process.communicate(timeout=15)
        finally:
            process.kill()
    assert process.returncode == exits.OK
    assert out == ""
    assert queue_name in logs  # "worker ... serves ...": logs go to stderr
    assert "Traceback" not in logs


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("shop", "write MODULE:WORKER, like shop.worker:worker"),
        (":worker", "write MODULE:WORKER"),
        ("shop:", "write MODULE:WORKER"),
        ("shop.py:worker", "write the module: shop:worker"),
        ("./shop.py:worker", "write the module: shop:worker"),
        ("shpo:worker", "there is no module 'shpo' in "),
        ("shop.tasks:worker", "there is no module 'shop.tasks'"),
        ("shop:workr", "did you mean 'worker'?"),
        ("shop:other.thing", "it holds: worker"),
        ("shop:orders", "shop:orders is a Queue, and the command runs a Worker; did you mean 'worker'?"),
        ("shop:made", "shop:made is no Worker but a function"),
        ("shop:Worker", "shop:Worker is no Worker but the class Worker"),
    ],
)
def test_a_target_that_names_no_worker(tmp_path: Path, target: str, says: str) -> None:
    _program(tmp_path)
    done = aiodq("worker", target, cwd=tmp_path, env={"QUEUE": "orders"})
    assert_told(done, exits.USAGE, says)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nowhere_to_be_found\n", ["No module named 'nowhere_to_be_found'", "shop.py:1"]),
        ("x = 1\ny = 1 / 0\n", ["ZeroDivisionError: division by zero", "shop.py:2: y = 1 / 0"]),
        ("def broken(:\n", ["SyntaxError", "shop.py", "line 1"]),
        ("from aiodq import Queue\nq = Queue('a b')\n", ["queue name", "shop.py:2: q = Queue('a b')"]),
        ("import sys\nsys.exit('no settings')\n", ["SystemExit: no settings", "shop.py:2"]),
    ],
    ids=["missing module", "error", "syntax", "wrong queue", "exit"],
)
def test_a_module_that_cannot_be_imported(tmp_path: Path, text: str, words: list[str]) -> None:
    _program(tmp_path, text)
    assert_told(aiodq("worker", "shop:worker", cwd=tmp_path), exits.USAGE, "importing 'shop' failed", *words)


def test_a_worker_without_handlers(tmp_path: Path) -> None:
    _program(tmp_path, "from aiodq import Queue, Worker\nworker = Worker(Queue('orders', url='memory://'))\n")
    done = aiodq("worker", "shop:worker", cwd=tmp_path)
    assert_told(done, exits.USAGE, "no task of queue orders has a handler here")


def test_a_worker_without_a_url(tmp_path: Path) -> None:
    _program(tmp_path)
    done = aiodq("worker", "shop:worker", cwd=tmp_path, env={"QUEUE": "orders"})
    assert_told(done, exits.USAGE, "AIODQ_URL")


def test_a_program_keeps_the_logging_that_it_set_up(tmp_path: Path) -> None:
    text = "import logging\nlogging.basicConfig(format='OWN %(message)s', level='INFO')\n" + PROGRAM
    _program(
        tmp_path,
        text + "import threading, os, signal\n"
        "threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()\n",
    )
    done = aiodq("worker", "shop:worker", cwd=tmp_path, env={"QUEUE": "orders", "AIODQ_URL": "memory://"})
    assert done.returncode == exits.OK, done.stderr
    assert "OWN worker " in done.stderr
