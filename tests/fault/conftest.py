"""The fault laboratory's fixtures: a shard whose every byte passes a proxy, and one seen from beside."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest

from aiodq._redis.scripts import Scripting
from tests.fault.lab import Lab, open_lab
from tests.servers import ServerProcess


@pytest.fixture(params=["eval", "functions"])
def scripting(request: pytest.FixtureRequest) -> Scripting:
    """Both ways in which scripts are deployed."""
    return cast("Scripting", request.param)


@pytest.fixture
async def lab(server: ServerProcess, queue_name: str) -> AsyncIterator[Lab]:
    """A shard behind a proxy; replies later than 0.3 s count as lost. Its state is checked at the end."""
    async with open_lab(server, queue_name) as lab:
        yield lab
    server.flush()
