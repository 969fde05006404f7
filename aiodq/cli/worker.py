"""`aiodq worker`: run a worker of the user's program in the foreground."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import Annotated

import anyio
import typer

from aiodq.cli.target import load_worker


class LogLevel(StrEnum):
    """How much of what `logging` is told goes to stderr."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def worker(
    target: Annotated[
        str,
        typer.Argument(metavar="MODULE:WORKER", help="Where the Worker is, as a program would import it."),
    ],
    log_level: Annotated[LogLevel, typer.Option(help="The least that is logged to stderr.")] = LogLevel.info,
) -> None:
    """Run a worker: wait for due jobs, run their handlers, settle them.

    With this in [bold]shop/worker.py[/bold]

        from aiodq import Worker
        from shop.contract import orders
        worker = Worker(orders, concurrency=50, modules=("shop.handlers",))

    run, in the folder that holds [bold]shop[/bold]:

        aiodq worker shop.worker:worker

    Queues, concurrency, lease and the rest are the Worker's own arguments. One
    process uses one core; start as many as you like, on any machine.

    It ends by SIGTERM or Ctrl-C, gracefully: nothing new is taken, running
    handlers have the worker's [bold]grace[/bold] to end, the rest is given back at once,
    uncounted. A second signal cuts that short. A server that is away does not
    end it: it tries again. A program that has set up logging keeps its own.
    """
    loaded = load_worker(target)
    # Only now: where the user's module has set up the root logger, this does nothing.
    logging.basicConfig(
        level=log_level.value.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
    )
    anyio.run(loaded.run)
