"""`aiodq server`: the bundled server in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from aiodq.cli import screen
from aiodq.embedded import EmbeddedServer, serve


def server(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where its data is kept; made if it is missing.")
    ],
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="Also listen on this TCP port. Without: on a socket file in DIR only."
        ),
    ] = None,
    bind: Annotated[str, typer.Option(help="The address for --port.")] = "127.0.0.1",
) -> None:
    r"""Run the bundled server (Valkey) on a directory, until Ctrl-C.

    Prints the URL to use on stdout; the data stays in the directory. Needs
    [bold]aiodq\[embedded][/bold].

    Programs that use [bold]embedded://DIR[/bold] themselves need no such command: the
    first one starts the server and it ends with the last. This command keeps it
    up between them, or opens a port for others.

        aiodq server ./data                # for this user, on this machine
        aiodq server ./data --port 6400    # also for any Redis client
    """
    serve(directory, port, bind, ready=_tell)


def _tell(running: EmbeddedServer) -> None:
    here = f"embedded://{quote(str(running.directory))}"
    url = running.url if running.port is not None else here
    print(url, flush=True)
    screen.note(
        f"Serving {running.directory}, process {running.pid}. Tell programs and commands where it is:"
    )
    screen.note(f"  export AIODQ_URL={url}")
    if running.port is not None:
        screen.note(f"or, without the port:\n  export AIODQ_URL={here}")
    screen.note("Ctrl-C ends it; the data stays.")
