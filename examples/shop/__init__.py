"""A shop in three files, as a real program is laid out.

`contract.py` is what the web app imports: the queue, and its tasks by signature. `handlers.py` does the work
and is imported by workers only. `worker.py` is what `aiodq worker` runs.

Run, in this folder's parent (examples/):

    export AIODQ_URL=embedded://./data
    aiodq worker shop.worker:worker         # in one terminal, or several
    python -m shop.place_orders             # in another
    aiodq stats shop
"""
