"""The worker: `aiodq worker shop.worker:worker`."""

from aiodq import Worker

from .contract import shop

worker = Worker(shop, concurrency=50, grace=10, modules=("shop.handlers",))
