"""What workers run. Handlers may enqueue each other by the contract, without importing each other."""

from decimal import Decimal

from aiodq import Exponential, Snooze, current_job

from . import contract


class WebhookDown(Exception):
    """The merchant's system did not take it: tried again, and in the end put to the dead letters."""


@contract.close_order.implement(max_attempts=5)
async def close_order(order_id: str) -> None:
    print(
        f"{order_id}: closed, {current_job().late_by.total_seconds() * 1000:.0f} ms after its time",
        flush=True,
    )
    await contract.call_webhook.enqueue(order_id, "closed")


@contract.send_receipt.implement(max_attempts=3, timeout=10)
async def send_receipt(order_id: str, customer: str, amount: Decimal) -> None:
    if current_job().snoozes == 0:
        raise Snooze(0.5, reason="the accounts are still being written")  # later, and not a failure
    print(f"{order_id}: receipt over {amount} to {customer}", flush=True)
    await contract.call_webhook.enqueue(order_id, "paid")


@contract.call_webhook.implement(max_attempts=4, backoff=Exponential(first=0.2, cap=60), timeout=5)
async def call_webhook(order_id: str, event: str) -> None:
    if current_job().attempt == 1 and order_id.endswith("3"):  # a merchant with a bad line
        raise WebhookDown("503 Service Unavailable")
    print(f"{order_id}: the merchant knows that it is {event}", flush=True)
