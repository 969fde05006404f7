"""Quick start: a task, a job in a second, a job taken back, and a worker, all in one program.

Shows: `Queue`, `task`, `after`, `cancel`, `Worker`.
Run:   python examples/quickstart.py
       It keeps its jobs in memory; AIODQ_URL=redis://127.0.0.1:6379/0 or embedded://./data keeps them longer.
"""

import os

import anyio

from aiodq import Exponential, Queue, Worker

orders = Queue("orders", url=lambda: os.environ.get("AIODQ_URL", "memory://"))


@orders.task(max_attempts=5, backoff=Exponential(first=1, cap=300), timeout=30)
async def close_order(order_id: str) -> None:
    print("closing", order_id)


async def main() -> None:
    async with Worker(orders, concurrency=100):
        await close_order.enqueue("A1001")  # now
        await close_order.after(seconds=1).enqueue("A1002")

        unpaid = await close_order.after(minutes=30).enqueue("A1003")
        print("A1003 would be closed at", f"{unpaid.due_at:%H:%M:%S} UTC")
        if await orders.cancel(unpaid.id):
            print("A1003 was paid, and stays open")

        await anyio.sleep(1.2)


if __name__ == "__main__":
    anyio.run(main)
