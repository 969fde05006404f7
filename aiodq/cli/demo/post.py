"""What the demo tells a worker process that it starts: by an environment variable, as JSON."""

from __future__ import annotations

import os
from typing import Final

import msgspec
from msgspec import Struct

from aiodq import ConfigError
from aiodq.cli.demo.shop import Settings

_VARIABLE: Final = "AIODQ_DEMO_WORKER"


class Post(Struct, frozen=True):
    """Where a worker stands. `log`: the file that it writes its records to."""

    worker: str
    log: str
    lease_s: float
    settings: Settings

    def environment(self) -> dict[str, str]:
        """This process's environment, with the post in it."""
        return {**os.environ, _VARIABLE: msgspec.json.encode(self).decode()}


def my_post() -> Post:
    """What this process was told. Raises: `ConfigError` if it was not started by the demo."""
    try:
        return msgspec.json.decode(os.environ[_VARIABLE], type=Post)
    except KeyError:
        raise ConfigError("this worker is started by `aiodq demo`, and makes no sense alone") from None
