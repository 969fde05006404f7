"""An aiohttp app with the worker inside it: one process takes requests and runs the jobs.

Shows: a cleanup context that opens the queue and runs a worker in the app's event loop, without touching the
       web server's signals; rescheduling.
Run:   AIODQ_URL=embedded://./data python examples/aiohttp_app.py          (pip install aiohttp)
       curl -X POST localhost:8080/reminders -d '{"user": "ada", "in_s": 5}'
"""

from collections.abc import AsyncIterator

from aiohttp import web

from aiodq import Queue, Worker

reminders = Queue("reminders")  # no url: AIODQ_URL, else REDIS_URL


@reminders.task(max_attempts=3)
async def remind(user: str) -> None:
    print("reminding", user)


async def queue_and_worker(_app: web.Application) -> AsyncIterator[None]:
    async with reminders, Worker(reminders, concurrency=10, grace=5):
        yield


async def add(request: web.Request) -> web.Response:
    body = await request.json()
    user, in_s = str(body["user"]), float(body["in_s"])
    job = await remind.options(job_id=f"remind-{user}").after(in_s).enqueue(user)
    return web.json_response({"due_at": job.due_at.isoformat(), "created": job.created}, status=201)


async def move(request: web.Request) -> web.Response:
    body = await request.json()
    change = await reminders.reschedule(f"remind-{request.match_info['user']}", after=float(body["in_s"]))
    return web.json_response({"moved": change.made, "was": change.was}, status=200 if change else 404)


def create_app() -> web.Application:
    app = web.Application()
    app.cleanup_ctx.append(queue_and_worker)
    app.add_routes([web.post("/reminders", add), web.patch("/reminders/{user}", move)])
    return app


if __name__ == "__main__":
    web.run_app(create_app())
