"""Stands for the web app: places the first orders of the demo's file, and takes some payments.

Run: python -m shop.place_orders      (beside `aiodq worker shop.worker:worker`, see this package)
"""

import csv
from decimal import Decimal
from importlib.resources import files

import anyio

from .contract import close_order, send_receipt, shop

ORDERS = files("aiodq.cli.demo") / "orders.csv"


async def main() -> None:
    rows = list(csv.DictReader(ORDERS.read_text(encoding="utf-8").splitlines()))[:12]
    async with shop:
        for row in rows:
            order_id = row["order_id"]
            await close_order.options(job_id=f"close-{order_id}").after(seconds=2).enqueue(order_id)
        for row in rows:
            order_id = row["order_id"]
            if row["paid"] and await shop.cancel(f"close-{order_id}"):
                await send_receipt.enqueue(order_id, row["customer"], Decimal(row["amount"]))
        print(f"{len(rows)} orders placed", flush=True)


if __name__ == "__main__":
    anyio.run(main)
