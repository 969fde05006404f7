"""A FastAPI app that closes unpaid orders: it enqueues and cancels, a worker process does the work.

Shows: the queue opened by the app's lifespan; an id of your own, so that a repeated request makes no second
       job; `cancel` with an answer.
Run:   export AIODQ_URL=embedded://./data
       uvicorn fastapi_app:app --app-dir examples          (pip install fastapi uvicorn)
       cd examples && aiodq worker fastapi_app:worker      (in a second terminal)
       curl -X POST localhost:8000/orders -H 'content-type: application/json' -d '{"order_id": "A1001"}'
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from aiodq import Queue, Worker

orders = Queue("orders")  # no url: AIODQ_URL, else REDIS_URL


@orders.task(max_attempts=5, timeout=30)
async def close_order(order_id: str) -> None:
    print("closing", order_id)


worker = Worker(orders)


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
    async with orders:  # one pool of connections for all requests
        yield


app = FastAPI(lifespan=lifespan)


class NewOrder(BaseModel):
    order_id: str
    pay_within_s: float = 1800


class Placed(BaseModel):
    order_id: str
    closes_at: datetime


@app.post("/orders", status_code=201)
async def place_order(order: NewOrder) -> Placed:
    task = close_order.options(job_id=f"close-{order.order_id}").after(order.pay_within_s)
    job = await task.enqueue(order.order_id)
    # The same request again finds the job that is there: same id, same due time, nothing twice.
    return Placed(order_id=order.order_id, closes_at=job.due_at)


@app.delete("/orders/{order_id}/deadline")
async def order_was_paid(order_id: str) -> dict[str, str]:
    change = await orders.cancel(f"close-{order_id}")
    if not change:
        raise HTTPException(409, f"too late or unknown: the closing job is {change.was}")
    return {"order_id": order_id, "state": "paid"}
