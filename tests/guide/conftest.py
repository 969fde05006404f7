"""The queue of each guide test: `orders`, in this process and of this test alone.

Put `url="redis://…"` in place of `memory://`, and everything in this folder holds for a server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiodq import Queue


@pytest.fixture
async def orders(queue_name: str) -> AsyncIterator[Queue]:
    async with Queue("orders", url=f"memory://{queue_name}") as queue:
        yield queue
