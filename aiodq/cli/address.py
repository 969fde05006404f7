"""Which server a command talks to, and which queues: the options that commands share."""

from __future__ import annotations

import os
from typing import Annotated, Final, TypeAlias

import typer

from aiodq import ConfigError, Queue
from aiodq._core.errors import WrongOrder, WrongShards
from aiodq.embedded import parse_embedded_url

_VARIABLES: Final = ("AIODQ_URL", "REDIS_URL")

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


async def as_it_is(queue: Queue, url: str | None, prefix: str) -> Queue:
    """The queue with the number of shards and the order that it was made with."""
    shards, fifo = 1, False
    for _ in range(3):
        try:
            await queue.stats()
        except WrongShards as wrong:
            shards = wrong.shards
        except WrongOrder:
            fifo = True
        else:
            break
        queue = Queue(queue.name, url=_named(url), prefix=prefix, shards=shards, fifo=fifo)
    return queue


def _named(url: str | None) -> str | None:
    return url or next(filter(None, map(os.environ.get, _VARIABLES)), None)


def open_queue(name: str, url: str | None, prefix: str = "aiodq") -> Queue:
    """A queue as a command sees it. Nothing is sent yet.

    Raises: `ConfigError` for a name or URL that cannot be one, no URL at all, or an embedded:// directory
    that is not there: whoever only looks makes none.
    """
    url = _named(url)
    if url is None:
        raise ConfigError(
            f"no server is named: use --url, or set {' or '.join(_VARIABLES)} in the environment, "
            "for example to redis://127.0.0.1:6379/0"
        )
    refuse_memory(url)
    queue = Queue(name, url=url, prefix=prefix)
    if url.startswith("embedded://") and not (directory := parse_embedded_url(url)).is_dir():
        raise ConfigError(
            f"there is no directory {directory}, and so no queue in it; a program that uses {url} makes it, "
            f"and so does `aiodq server {directory}`"
        )
    return queue
