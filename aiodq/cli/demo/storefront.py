"""The shop's web app, in small: places the orders of the file at their times, and takes their payments.

It is what a FastAPI handler would do: `await enqueue` with a delay and an id of its own, `await cancel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import anyio

from aiodq import Enqueued, NewJob
from aiodq.cli.demo.log import Log, Recalled, Sent, now_ms
from aiodq.cli.demo.orders import Order
from aiodq.cli.demo.shop import CLOSE_AFTER_MIN, Shop, job_id


class Storefront:
    """Plays the orders once. `shop_s` is the shop's clock: seconds after its opening, of its own time."""

    def __init__(self, shop: Shop, orders: Sequence[Order], log: Log) -> None:
        self._shop = shop
        self._log = log
        self._speed = 60 / shop.settings.minute_s
        self._opened = anyio.current_time()
        placings = [(float(order.placed_s), "place", order) for order in orders]
        payments = [(float(order.paid_s), "pay", order) for order in orders if order.paid_s is not None]
        self._timeline = sorted(placings + payments, key=itemgetter(0))

    @property
    def shop_s(self) -> float:
        """What the shop's clock shows."""
        return self.open_for_s * self._speed

    @property
    def closes_s(self) -> float:
        """When the last order's time to be paid is over."""
        return max(at for at, *_ in self._timeline) + CLOSE_AFTER_MIN * 60

    @property
    def trading_s(self) -> float:
        """How long customers come, in real seconds."""
        return max(at for at, *_ in self._timeline) / self._speed

    @property
    def open_for_s(self) -> float:
        """For how long the shop has been open, in real seconds."""
        return anyio.current_time() - self._opened

    async def trade(self) -> None:
        """Let the day pass, to the last customer. Raises: the calls' `AiodqError`s, as a group."""
        self._opened = anyio.current_time()
        async with anyio.create_task_group() as calls:
            for at, what, order in self._timeline:
                await anyio.sleep(max(0.0, (at - self.shop_s) / self._speed))
                calls.start_soon(self._place if what == "place" else self._pay, order)

    async def _place(self, order: Order) -> None:
        delay_s = CLOSE_AFTER_MIN * self._shop.settings.minute_s
        closing = self._shop.close_unpaid.options(job_id=job_id("close_unpaid", order)).after(delay_s)
        await self._send(order, closing.job(order))

    async def _pay(self, order: Order) -> None:
        """The payment counts if it could still take the closing back: one of the two wins, come what may."""
        closing = job_id("close_unpaid", order)
        change = await self._shop.queue.cancel(closing)
        self._log.write(Recalled(closing, change.made, change.was, now_ms()))
        if change:
            await self._send(
                order,
                self._shop.notify.options(job_id=job_id("notify", order)).job(order),
                self._shop.call_webhook.options(job_id=job_id("call_webhook", order)).job(order),
            )
        else:
            await self._send(order, self._shop.refund.options(job_id=job_id("refund", order)).job(order))

    async def _send(self, order: Order, *jobs: NewJob[None]) -> None:
        for new, sent in zip(jobs, await self._shop.queue.enqueue_many(jobs), strict=True):
            self._log.write(_sent(order, new, sent))


def _sent(order: Order, new: NewJob[None], sent: Enqueued[None]) -> Sent:
    return Sent(
        job_id=sent.id,
        order_id=order.order_id,
        task=new.task,
        due_ms=round(sent.due_at.timestamp() * 1000),
        created=sent.created,
        at_ms=now_ms(),
    )
