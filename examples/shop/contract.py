"""What producers import: no handler, none of the handlers' dependencies, all of their types."""

from decimal import Decimal

from aiodq import Queue

shop = Queue("shop")  # no url: AIODQ_URL, else REDIS_URL


@shop.stub
async def close_order(order_id: str) -> None:
    """The order was not paid in time."""


@shop.stub
async def send_receipt(order_id: str, customer: str, amount: Decimal) -> None:
    """The order was paid."""


@shop.stub
async def call_webhook(order_id: str, event: str) -> None:
    """Tell the merchant's own system."""
