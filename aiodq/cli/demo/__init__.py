"""`aiodq demo`: a shop's day on real processes, with a kill in the middle and its own check at the end."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import anyio
import typer

from aiodq.cli import exits, screen
from aiodq.cli.address import refuse_memory


def demo(
    orders: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV", help="Orders of your own, in the form of the packaged file (see --print-orders)."
        ),
    ] = None,
    *,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Use this server, instead of a bundled one made for the occasion."),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Play the day three times as fast.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also list every order and what became of it.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="The figures as one line of JSON, nothing else.")
    ] = False,
    print_orders: Annotated[
        bool, typer.Option("--print-orders", help="Only print the packaged file of orders.")
    ] = False,
) -> None:
    r"""See aiodq at work: a shop, two worker processes, one of them killed.

    120 orders from a file are placed over forty minutes of the shop's clock,
    which runs 400 times as fast as yours. Unpaid orders are closed after half an
    hour. Payments are told to the customer, again after 5 and 10 minutes until
    acknowledged, and to the merchant by a webhook, which is retried with
    back-off; what never works ends in the dead letters. In the middle one worker
    is killed (SIGKILL) with jobs in hand.

    The processes write down what they do. At the end this is compared with the
    file: was a job lost, started early, run twice without a cause (a retry, or
    the kill), or did an order end otherwise than it should? Then the exit code
    is 1.

    It takes about 15 seconds, needs no Redis, and leaves nothing behind. (It does
    need [bold]aiodq\[embedded,cli][/bold], or --url.)

        aiodq demo
        aiodq demo --all
        aiodq demo --url redis://127.0.0.1:6379/0 --json | jq .late
    """
    # Here, not above: the demo imports much of the library, and `aiodq --help` should not wait for that.
    from aiodq.cli.demo.live import Picture
    from aiodq.cli.demo.orders import packaged_orders, read_orders
    from aiodq.cli.demo.play import Plan, play
    from aiodq.cli.demo.processes import WorkerFailed
    from aiodq.cli.demo.tables import show_report

    if print_orders:
        print(packaged_orders(), end="")
        return
    refuse_memory(url)
    # A demo that is told to end cleans up as after Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    plan = Plan(read_orders(orders), url, minute_s=0.05 if fast else 0.15)
    try:
        with Picture(quiet=json) as picture:
            report = anyio.run(play, plan, picture)
    except WorkerFailed as error:
        screen.complain(str(error))
        raise typer.Exit(exits.FAILED) from None
    except KeyboardInterrupt:  # here: older versions of typer have another exit code for it
        raise typer.Exit(exits.INTERRUPTED) from None
    if json:
        screen.show_json(report)
    else:
        show_report(report, everything=everything)
    raise typer.Exit(exits.OK if report.passed else exits.FAILED)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)
