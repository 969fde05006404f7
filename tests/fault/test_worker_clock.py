"""What a worker believes of the server's clock after an outage, during which one claim was on its way."""

from __future__ import annotations

import asyncio

import pytest

from aiodq import Queue, Worker
from tests.fault.proxy import Proxy
from tests.servers import ServerProcess
from tests.shards import until


async def test_a_job_that_is_on_time_does_not_expire_because_its_claim_waited_for_the_server(
    valkey: ServerProcess, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []
    async with Proxy(valkey.port) as proxy:
        served, beside = Queue(queue_name, url=proxy.url), Queue(queue_name, url=valkey.url)

        @served.task(expires=1)
        async def note(name: str) -> None:
            ran.append(name)

        @beside.stub(name="note")
        async def note_beside(name: str) -> None: ...

        async with served, beside, Worker(served, lease=30, grace=1):
            await note_beside.after(0.4).enqueue("early")  # planned; nobody can look in time
            await asyncio.sleep(0.1)
            proxy.refuse = True
            proxy.cut()
            await asyncio.sleep(4)
            await note_beside.enqueue("punctual")
            proxy.refuse = False
            await until(lambda: "punctual" in ran)
        assert ran == ["punctual"]  # the other had really expired
    assert "clock" not in caplog.text  # nor does the worker take the outage for a step of the server's clock
