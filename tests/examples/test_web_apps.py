"""The web apps of the examples, over HTTP, with a worker in the same process."""

from __future__ import annotations

from datetime import datetime

import httpx
import pytest
from aiohttp.test_utils import TestClient, TestServer

from aiodq import Queue, Worker
from tests.servers import ServerProcess


async def _drained(queue: Queue) -> None:
    """Return when the queue holds no job any more."""
    import anyio

    with anyio.fail_after(10):
        while True:
            stats = await queue.stats()
            if not stats.scheduled and not stats.processing:
                return
            await anyio.sleep(0.01)


async def test_fastapi(
    valkey: ServerProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIODQ_URL", valkey.url)
    from examples.fastapi_app import app, orders

    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),  # the transport itself runs no lifespan
        httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
        Worker(orders),
    ):
        paid = await client.post("/orders", json={"order_id": "A1"})
        assert paid.status_code == 201, paid.text
        again = await client.post("/orders", json={"order_id": "A1", "pay_within_s": 5})
        assert again.json() == paid.json()  # a repeated request made no second job, and moved nothing
        assert datetime.fromisoformat(paid.json()["closes_at"]).tzinfo is not None

        unpaid = await client.post("/orders", json={"order_id": "A2", "pay_within_s": 0.2})
        assert unpaid.status_code == 201

        assert (await client.delete("/orders/A1/deadline")).json() == {"order_id": "A1", "state": "paid"}
        await _drained(orders)
        too_late = await client.delete("/orders/A2/deadline")
        assert too_late.status_code == 409
        assert (await client.post("/orders", json={"order_id": ["wrong"]})).status_code == 422
    assert capsys.readouterr().out == "closing A2\n"


async def test_aiohttp(
    valkey: ServerProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIODQ_URL", valkey.url)
    from examples.aiohttp_app import create_app, reminders

    async with TestClient(TestServer(create_app())) as client:
        added = await client.post("/reminders", json={"user": "ada", "in_s": 3600})
        assert added.status == 201
        assert (await added.json())["created"] is True

        moved = await client.patch("/reminders/ada", json={"in_s": 0.1})
        assert await moved.json() == {"moved": True, "was": "scheduled"}
        await _drained(reminders)

        nobody = await client.patch("/reminders/bob", json={"in_s": 1})
        assert nobody.status == 404
        assert await nobody.json() == {"moved": False, "was": "absent"}
    assert capsys.readouterr().out == "reminding ada\n"
