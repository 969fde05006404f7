"""The commands in one place, and how they end: with an exit code and a message, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from aiodq import AiodqError, __version__
from aiodq.cli import check, demo, exits, screen, server, stats, worker

_EPILOG = "Exit codes: " + " · ".join(f"{code} {meaning}" for code, meaning in exits.TABLE) + "."

app: typer.Typer = typer.Typer(
    name="aiodq",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)
app.command("worker", epilog=_EPILOG)(worker.worker)
app.command("stats", epilog=_EPILOG)(stats.stats)
app.command("check", epilog=_EPILOG)(check.check)
app.command("server", epilog=_EPILOG)(server.server)
app.command("demo", epilog=_EPILOG)(demo.demo)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"aiodq {__version__}")
        raise typer.Exit


@app.callback()
def aiodq(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and end.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Delay queues on Redis sorted sets: run workers, look at queues, try it out.

    [bold]Try it[/bold], without Redis on the machine:

        aiodq demo

    [bold]Use it[/bold], with a program of your own in shop.py:

        aiodq server ./data                       # a server, if you have none
        export AIODQ_URL=embedded://./data        # where commands and queues look
        aiodq worker shop:worker                  # run jobs
        aiodq stats orders --watch                # look at a queue
    """


def run(arguments: Sequence[str] | None = None) -> None:
    """Carry out a command line; without any words, show what there is. Ends by `SystemExit`."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        app(words, prog_name="aiodq")
    except AiodqError as error:
        screen.complain(str(error))
        raise SystemExit(exits.exit_code(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(exits.INTERRUPTED) from None
