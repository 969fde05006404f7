"""Which server a command talks to, and which queues: the options that commands share."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from aiodq import ConfigError, Queue

UrlOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The server: redis://, rediss://, unix:// or embedded://DIR. "
        "Default: $AIODQ_URL, else $REDIS_URL.",
    ),
]
PrefixOption: TypeAlias = Annotated[
    str, typer.Option("--prefix", help="What the queue's keys start with, if the program changed it.")
]


def refuse_memory(url: str | None) -> None:
    """Raises: `ConfigError` for a memory:// URL, which no second process can share."""
    if url is not None and url.lower().startswith("memory:"):
        raise ConfigError(
            "memory:// queues live inside the program that made them; a command cannot see them. "
            "Use embedded://DIR for a queue that several processes share"
        )


def open_queue(name: str, url: str | None, prefix: str = "aiodq") -> Queue:
    """A queue as a command sees it. Nothing is sent yet.

    Raises: `ConfigError` for a name or URL that cannot be one, or no URL at all.
    """
    refuse_memory(url)
    return Queue(name, url=url, prefix=prefix)
