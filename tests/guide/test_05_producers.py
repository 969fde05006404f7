"""Programs that only send: they need not import the handlers."""

from __future__ import annotations

import asyncio
from datetime import date

import pytest

from aiodq import ConfigError, Queue, Worker


async def test_a_stub_declares_a_task_that_is_implemented_elsewhere(orders: Queue) -> None:
    shipped: list[tuple[str, date]] = []

    @orders.stub  # contract.py, which producers import
    async def ship(order_id: str, day: date) -> None: ...

    @ship.implement(max_attempts=3)  # handlers.py, which the worker imports
    async def ship_it(order_id: str, day: date) -> None:
        shipped.append((order_id, day))

    await ship.enqueue("A1001", date(2030, 1, 1))
    await Worker(orders).run(burst=True)
    assert shipped == [("A1001", date(2030, 1, 1))]


async def test_a_bound_method_can_implement_a_stub(orders: Queue) -> None:
    class Warehouse:
        def __init__(self) -> None:
            self.shipped: list[str] = []

        async def ship(self, order_id: str) -> None:
            self.shipped.append(order_id)

    @orders.stub
    async def ship(order_id: str) -> None: ...

    warehouse = Warehouse()
    ship.implement(warehouse.ship)
    await ship.enqueue("A1001")
    await Worker(orders).run(burst=True)
    assert warehouse.shipped == ["A1001"]


async def test_a_task_can_be_named(orders: Queue) -> None:
    await orders.send("close_order", args=("A1001",), after=30)
    await orders.stub("close_order").after(30).enqueue("A1001")
    assert [job.task for job in await orders.peek("scheduled")] == ["close_order", "close_order"]


async def test_what_has_no_type_must_arrive_as_it_was(orders: Queue) -> None:
    with pytest.raises(TypeError, match="a date would come back as str"):
        await orders.send("ship", args=("A1001", date(2030, 1, 1)))


async def test_the_server_may_be_named_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, queue_name: str
) -> None:
    orders = Queue("orders")
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.delenv("AIODQ_URL", raising=False)
    with pytest.raises(ConfigError, match="set AIODQ_URL or REDIS_URL"):
        await orders.send("close_order")
    monkeypatch.setenv("AIODQ_URL", f"memory://{queue_name}")
    assert (await orders.send("close_order")).created


def test_a_queue_at_module_level_serves_every_event_loop(queue_name: str) -> None:
    orders = Queue("orders", url=f"memory://{queue_name}")

    async def produce() -> int:
        await orders.send("close_order")
        return (await orders.stats()).scheduled

    assert asyncio.run(produce()) == 1
    assert asyncio.run(produce()) == 2
