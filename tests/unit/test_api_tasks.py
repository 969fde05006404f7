"""Declaring tasks and stubs, plans and jobs made of them; nothing is sent here."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, cast

import fastapi
import msgspec
import pytest

from aiodq import ConfigError, NewJob, PayloadError, Queue, Stub, SyncTask, Task, inject
from aiodq._core.envelope import Carried, decode_envelope
from aiodq._core.jobs import to_entry
from aiodq._core.policy import Policy


@pytest.fixture
def orders() -> Queue:
    return Queue("orders", url="memory://tasks")


async def close_order(order_id: str, note: str = "") -> bool:
    return bool(order_id + note)


def render(page: int) -> bytes:
    return bytes(page)


def test_a_coroutine_function_becomes_a_task_and_stays_callable(orders: Queue) -> None:
    task = orders.task(close_order)
    assert isinstance(task, Task)
    assert (task.name, task.fn) == ("close_order", close_order)
    assert asyncio.run(task("A1")) is True
    assert orders.tasks == {"close_order": task}


def test_a_plain_function_becomes_a_sync_task(orders: Queue) -> None:
    task = orders.task(name="paint", timeout=5)(render)
    assert isinstance(task, SyncTask)
    assert (task.name, task.fn, task(2)) == ("paint", render, b"\0\0")


def test_a_task_keeps_the_functions_name_and_text_for_people(orders: Queue) -> None:
    task = orders.task(close_order)
    assert cast("Any", task).__name__ == "close_order"
    assert repr(task) == "<Task 'close_order' of queue 'orders'>"


def test_partials_and_bound_methods_are_handlers_with_a_name_of_their_own(orders: Queue) -> None:
    class Service:
        async def close(self, order_id: str) -> None: ...

    assert isinstance(orders.task(name="part")(functools.partial(close_order, note="x")), Task)
    assert isinstance(orders.task(Service().close), Task)
    assert set(orders.tasks) == {"part", "close"}


class Holder:
    async def method(self, order_id: str) -> None: ...

    @staticmethod
    async def static(order_id: str) -> None: ...

    @classmethod
    async def of_class(cls, order_id: str) -> None: ...


async def async_generator() -> AsyncIterator[int]:
    yield 1


def generator() -> Iterator[int]:
    yield 1


def with_depends(db: int = fastapi.Depends(render)) -> None: ...


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (async_generator, "async_generator is a generator, of which a worker would run nothing"),
        (generator, "generator is a generator"),
        (Holder.method, "Holder.method is a method without its object"),
        (Holder.__dict__["static"], "put the task decorator below @staticmethod"),
        (Holder.__dict__["of_class"], "put the task decorator below @staticmethod"),
        (Holder, "expected a function as handler"),
        (7, "expected a function as handler, got 7"),
        (lambda: None, "has no name for its task: pass name=…"),
        (
            with_depends,
            "FastAPI's Depends as its default, which only FastAPI fills: write db: T = aiodq.inject",
        ),
    ],
)
def test_what_no_worker_could_run_is_refused_at_the_decorator(
    orders: Queue, fn: Callable[..., Any], says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        orders.task(fn)
    assert says in str(caught.value)
    assert orders.tasks == {}


class Closer:
    async def __call__(self, order_id: str) -> None: ...


def test_objects_that_are_called_are_handlers(orders: Queue) -> None:
    task = orders.task(name="object")(Closer())
    assert isinstance(task, Task)
    with pytest.raises(TypeError, match="argument 'order_id': Expected `str`"):
        cast("Any", task).job(7)
    with pytest.raises(ConfigError, match="has no name for its task"):
        orders.task(Closer())


def test_fastapis_depends_in_an_annotation_is_refused_by_name(orders: Queue) -> None:
    @orders.task
    async def close_order(order_id: Annotated[str, fastapi.Depends(render)]) -> None: ...

    with pytest.raises(
        ConfigError, match="'order_id' is annotated with FastAPI's Depends, which only FastAPI"
    ):
        close_order.job("A1")


def test_a_static_method_is_a_plain_function(orders: Queue) -> None:
    assert isinstance(orders.task(Holder.static), Task)


def test_two_tasks_of_one_name_are_refused_unless_it_is_the_same_function(orders: Queue) -> None:
    first = orders.task(close_order)
    again = orders.task(close_order)  # a module that was loaded again
    assert orders.tasks["close_order"] is again is not first
    with pytest.raises(ConfigError, match="has a task 'close_order' already; pass another name="):
        orders.task(name="close_order")(render)
    assert orders.tasks["close_order"] is again


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 257])
def test_names_of_tasks_are_checked(orders: Queue, name: str) -> None:
    with pytest.raises(ConfigError, match="task name"):
        orders.task(name=name)(close_order)
    with pytest.raises(ValueError, match="task name"):
        orders.stub(name)


def test_options_are_looked_up_at_handler_stub_queue_and_library() -> None:
    queue = Queue("q", url="memory://", defaults={"max_attempts": 7, "timeout": 7, "headers": {"a": "queue"}})

    @queue.stub(timeout=5, expires=5, headers={"a": "stub"})
    async def ship(order_id: str) -> None: ...

    @ship.implement(expires=3)
    async def ship_it(order_id: str) -> None: ...

    assert queue._handlers()["ship"].policy == Policy(max_attempts=7, timeout_ms=5000, expires_ms=3000)
    assert ship.job("A1").headers == ship_it.job("A1").headers == {"a": "stub"}
    assert ship_it.options(headers={}).job("A1").headers == {}
    assert queue.task(close_order).job("A1").headers == {"a": "queue"}


# ---- stubs


def test_a_stub_is_declared_by_signature_and_has_no_handler(orders: Queue) -> None:
    @orders.stub
    async def ship(order_id: str) -> None: ...

    assert isinstance(ship, Stub)
    assert not callable(ship)
    assert orders._handlers() == {}
    with pytest.raises(TypeError, match="ship\\(\\): missing a required argument: 'order_id'"):
        cast("Any", ship).job()


def test_the_implementation_takes_the_stubs_place(orders: Queue) -> None:
    @orders.stub
    async def ship(order_id: str, *, fast: bool = False) -> None: ...

    def provider() -> int:
        return 1

    @ship.implement
    async def ship_it(
        order_id: str, *, fast: bool = False, db: int = inject(provider), more: int = 1
    ) -> None: ...

    assert isinstance(ship_it, Task)
    assert ship_it.name == "ship"
    assert orders.tasks == {"ship": ship_it}
    assert list(orders._handlers()) == ["ship"]


def nothing() -> None: ...
def other_name(order: str, *, fast: bool = False) -> None: ...
def one_more(order_id: str, more: int, *, fast: bool = False) -> None: ...
def one_less(order_id: str) -> None: ...
def other_order(fast: bool, order_id: str) -> None: ...


@pytest.mark.parametrize("wrong", [nothing, other_name, one_more, one_less, other_order])
def test_an_implementation_with_another_signature_is_refused(
    orders: Queue, wrong: Callable[..., Any]
) -> None:
    @orders.stub
    async def ship(order_id: str, *, fast: bool = False) -> None: ...

    with pytest.raises(ConfigError, match=r"the handler takes .*, but its stub declares") as caught:
        ship.implement(wrong)
    assert "(order_id" in str(caught.value)
    assert orders.tasks == {"ship": ship}


def test_a_stub_has_one_handler_and_only_through_implement(orders: Queue) -> None:
    @orders.stub
    async def ship(order_id: str) -> None: ...

    with pytest.raises(
        ConfigError, match="'ship' is declared by a stub: register its handler with implement"
    ):
        orders.task(name="ship")(close_order)

    @ship.implement
    async def ship_it(order_id: str) -> None: ...

    with pytest.raises(ConfigError, match="has a task 'ship' already"):

        @ship.implement
        async def other(order_id: str) -> None: ...


def test_a_stub_injects_nothing(orders: Queue) -> None:
    def provider() -> int:
        return 1

    with pytest.raises(ConfigError, match="inject belongs to its implementation"):

        @orders.stub
        async def ship(order_id: str, db: int = inject(provider)) -> None: ...


# ---- plans and jobs


def test_a_job_has_its_id_its_arguments_and_its_time_from_birth(orders: Queue) -> None:
    task = orders.task(close_order)
    job = task.after(minutes=1, seconds=0.5).job("A1", note="x")
    assert (job.queue, job.task, job.args, job.kwargs) == ("orders", "close_order", ("A1",), {"note": "x"})
    assert (job.after, job.at, len(job.id)) == (60.5, None, 14)
    assert task.job("A1").id != task.job("A1").id
    when = datetime(2030, 1, 1, tzinfo=UTC)
    assert (task.at(when).job("A1").after, task.at(when).job("A1").at) == (None, when)
    assert (task.job("A1").after, task.options(job_id="own").job("A1").id) == (0, "own")


def test_the_stored_form_of_a_job(orders: Queue) -> None:
    task = orders.task(close_order)
    entry = to_entry(
        task.options(job_id="own", max_attempts=2, headers={"a": "1"}).after(2).job("A1", note="x")
    )
    envelope = decode_envelope(entry.payload)
    assert (envelope.version, envelope.task, envelope.headers) == (1, "close_order", {"a": "1"})
    assert msgspec.msgpack.decode(envelope.args) == ["A1"]
    assert msgspec.msgpack.decode(envelope.kwargs) == {"note": "x"}
    assert envelope.carried == Carried(max_attempts=2, given=True)
    assert (entry.job_id, entry.due.ms, entry.due.relative, entry.remember) == ("own", 2000, True, True)
    plain = to_entry(task.job("A1"))
    assert decode_envelope(plain.payload).carried is None
    assert plain.remember is False


def test_a_later_step_of_a_plan_wins_and_no_step_changes_an_earlier_one(orders: Queue) -> None:
    task = orders.task(close_order)
    base = task.options(max_attempts=2, headers={"a": "1"}).after(60)
    other = base.options(max_attempts=3).at(datetime(2030, 1, 1, tzinfo=UTC)).after(5)
    assert (base.job("A1").after, other.job("A1").after) == (60, 5)
    assert other.job("A1").headers == {"a": "1"}
    assert decode_envelope(to_entry(other.job("A")).payload).carried == Carried(max_attempts=3)
    assert decode_envelope(to_entry(base.job("A")).payload).carried == Carried(max_attempts=2)
    assert task.job("A1").after == 0


def test_later_changes_of_arguments_and_headers_do_not_reach_the_job(orders: Queue) -> None:
    @orders.task
    async def many(ids: list[str]) -> None: ...

    ids = ["a"]
    job = many.job(ids)
    more = job.with_headers({"h": "1"})
    ids.append("b")
    assert msgspec.msgpack.decode(decode_envelope(to_entry(job).payload).args) == [["a"]]
    assert (more.id, more.headers, job.headers) == (job.id, {"h": "1"}, {})


WRONG_CALLS: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda t: t.after(float("nan")), ValueError, "after=nan"),
    (lambda t: t.after(True), TypeError, "after=True"),
    (lambda t: t.after(minutes="3"), TypeError, "minutes='3'"),
    (lambda t: t.after(hours=timedelta(1)), TypeError, "hours=datetime.timedelta"),
    (lambda t: t.after(days=float("inf")), ValueError, "days=inf"),
    (lambda t: t.after(days=365_000, hours=1), ValueError, "above a thousand years"),
    (lambda t: t.at(datetime(2030, 1, 1)), ValueError, "has no time zone"),  # noqa: DTZ001
    (lambda t: t.at(60), TypeError, "at=60"),
    (lambda t: t.options(durability="fsynced"), TypeError, "'durability' is not in this version"),
    (lambda t: t.options(unique=3), TypeError, "unique=3: expected a Unique or None"),
    (lambda t: t.options(spread=-3), ValueError, "spread=-3"),
    (lambda t: t.options(rate=3), TypeError, "unknown call option 'rate'"),
    (lambda t: t.job(), TypeError, "missing a required argument: 'order_id'"),
    (lambda t: t.job(7), TypeError, "argument 'order_id': Expected `str`, got `int`"),
    (lambda t: t.job("\ud800"), PayloadError, "argument 'order_id'"),
    (lambda t: t.by_id(""), ValueError, "job id"),
]


@pytest.mark.parametrize(("make", "error", "says"), WRONG_CALLS)
def test_wrong_calls_are_refused_before_anything_is_sent(
    orders: Queue, make: Callable[[Any], object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as caught:
        make(orders.task(close_order))
    assert says in str(caught.value)


def test_b01_a_negative_delay_is_now_also_in_parts(orders: Queue) -> None:
    task = orders.task(close_order)
    assert task.after(-5).job("A").after == task.after(hours=-1, minutes=30).job("A").after == 0
    assert task.after(timedelta(hours=1), minutes=-30).job("A").after == 1800


def test_a_task_by_name_takes_plain_values_and_knows_a_task_of_this_process(orders: Queue) -> None:
    unknown = orders.stub("elsewhere")
    assert unknown.job(1, a=[1]).task == "elsewhere"
    with pytest.raises(TypeError, match="a task known by name only takes plain values"):
        unknown.job((1,))
    orders.task(close_order)
    with pytest.raises(TypeError, match="argument 'order_id': Expected `str`"):
        orders.stub("close_order").job(7)


def test_a_plan_that_is_never_sent_is_reported_in_development_mode() -> None:
    program = """
import warnings
from aiodq import Queue
q = Queue("q", url="memory://")
@q.task
async def close_order(order_id: str) -> None: ...
close_order.after(60).options(max_attempts=2)
close_order.after(60).job("A1")
"""
    cases: list[tuple[list[str], int]] = [(["-X", "dev"], 1), ([], 0)]
    for flags, times in cases:
        done = subprocess.run(
            [sys.executable, *flags, "-c", program],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr.count("a plan for task 'close_order' was made but never sent") == times, (
            done.stderr
        )


def test_new_jobs_show_what_they_are(orders: Queue) -> None:
    job: NewJob[bool] = orders.task(close_order).options(job_id="x").job("A1")
    assert repr(job) == "<NewJob 'x' for task 'close_order' of queue 'orders'>"
