"""The shop: its queue and its tasks as producers see them (stubs), and the handlers that workers run.

The story is the field's usual one. An order that is not paid within half an hour is closed. A payment is
told to the customer, again after growing pauses until it is acknowledged, and to the merchant's own system by
a webhook, which is retried with back-off and buried when it never works. The queue itself decides between
payment and closing: a payment counts if it could still take the closing job back, which is one atomic step.

Time is the shop's: one of its minutes lasts `minute_s` real seconds.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from msgspec import Struct

from aiodq import Bury, Exponential, Queue, Snooze, Stub, current_job
from aiodq.cli.demo.log import Ended, Log, Started, now_ms
from aiodq.cli.demo.orders import Order

CLOSE_AFTER_MIN: Final = 30
"""How long an order may stay unpaid, in shop minutes."""

RESEND_AFTER_MIN: Final = (5, 10)
"""The pauses between the sends of a notification, in shop minutes; after the last send it is given up."""

WEBHOOK_ATTEMPTS: Final = 4

TASKS: Final = ("close_unpaid", "notify", "call_webhook", "refund")
"""The shop's tasks; an order has at most one job of each."""

# Real seconds that the handlers' pretended work takes: long enough for some to be in hand at any moment.
_CLOSING_S = 0.05
_SENDING_S = 0.15
_CALLING_S = 0.2
_SLOW_CALL_S = 0.8


class Settings(Struct, frozen=True):
    """What every process of the demo has to agree on. `minute_s`: real seconds for a minute of the shop."""

    url: str
    queue: str
    minute_s: float


class WebhookFailed(Exception):
    """The merchant's system answered with an error. Its text is what the dead letters will show."""


class Shop(Struct, frozen=True):
    """The queue and the tasks that can be enqueued there."""

    settings: Settings
    queue: Queue
    close_unpaid: Stub[[Order], None]
    notify: Stub[[Order], None]
    call_webhook: Stub[[Order], None]
    refund: Stub[[Order], None]


def job_id(task: str, order: Order) -> str:
    """The id of an order's job for this task: whoever knows the order can ask for its jobs."""
    return f"{task}-{order.order_id}"


def failed_calls(order: Order) -> int:
    """How many calls of the order's webhook fail before one works, or before they are given up."""
    return {"fails once": 1, "fails twice": 2, "down": WEBHOOK_ATTEMPTS}.get(order.webhook, 0)


def open_shop(settings: Settings) -> Shop:
    """The shop's contract. Nothing is sent."""
    queue = Queue(settings.queue, url=settings.url)

    @queue.stub
    async def close_unpaid(order: Order) -> None:
        """The order was not paid in time: cancel it, and give the goods back to the store."""

    @queue.stub
    async def notify(order: Order) -> None:
        """Tell the customer of the payment until that is acknowledged."""

    @queue.stub
    async def call_webhook(order: Order) -> None:
        """Tell the merchant's own system of the payment."""

    @queue.stub
    async def refund(order: Order) -> None:
        """Money came for an order that was closed already: send it back."""

    return Shop(settings, queue, close_unpaid, notify, call_webhook, refund)


def add_handlers(shop: Shop, log: Log, worker: str) -> None:
    """Give the shop's tasks their handlers, which write down each run in `log`. For worker processes."""
    minute_s = shop.settings.minute_s

    @shop.close_unpaid.implement
    async def close_unpaid(order: Order) -> None:
        async with _recorded(log, worker) as run:
            await anyio.sleep(_CLOSING_S)
            run.note = f"closed {order.order_id}: {order.amount} {order.currency} never came"

    @shop.notify.implement
    async def notify(order: Order) -> None:
        async with _recorded(log, worker) as run:
            await anyio.sleep(_SENDING_S)
            send = current_job().snoozes + 1
            run.note = f"send {send} to {order.customer}"
            if order.acknowledged_at == send:
                run.note += ", acknowledged"
                return
            if send > len(RESEND_AFTER_MIN):
                raise Bury(f"no acknowledgement after {send} sends")
            raise Snooze(RESEND_AFTER_MIN[send - 1] * minute_s, reason="not acknowledged yet")

    backoff = Exponential(first=2 * minute_s, cap=10 * minute_s)

    @shop.call_webhook.implement(max_attempts=WEBHOOK_ATTEMPTS, backoff=backoff, timeout=10)
    async def call_webhook(order: Order) -> None:
        async with _recorded(log, worker) as run:
            await anyio.sleep(_SLOW_CALL_S if order.webhook == "slow" else _CALLING_S)
            attempt = current_job().attempt
            if attempt <= failed_calls(order):
                run.note = f"call {attempt}: answered 503"
                raise WebhookFailed("503 Service Unavailable")
            run.note = f"call {attempt}: answered 200"

    @shop.refund.implement
    async def refund(order: Order) -> None:
        async with _recorded(log, worker) as run:
            await anyio.sleep(_CLOSING_S)
            run.note = f"sent {order.amount} {order.currency} back to {order.customer}"


class _Run:
    """What a handler says about its run."""

    note = ""


@asynccontextmanager
async def _recorded(log: Log, worker: str) -> AsyncGenerator[_Run]:
    """Write down the beginning and the end of a run, however it ends; a killed process leaves no end."""
    job = current_job()
    log.write(
        Started(
            worker=worker,
            job_id=job.id,
            task=job.task,
            fence=job.fence,
            attempt=job.attempt,
            snoozes=job.snoozes,
            crashes=job.crashes,
            interruptions=job.interruptions,
            due_ms=round(job.due_at.timestamp() * 1000),
            late_ms=job.late_by.total_seconds() * 1000,
            at_ms=now_ms(),
        )
    )
    run = _Run()
    by = "return"
    try:
        yield run
    except BaseException as error:
        by = type(error).__name__
        raise
    finally:
        log.write(Ended(worker=worker, job_id=job.id, fence=job.fence, by=by, note=run.note, at_ms=now_ms()))
