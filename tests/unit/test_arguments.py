"""Arguments from the call to the handler: what arrives, what is refused and how. Faults B28, B31."""

import dataclasses
import enum
import io
import math
import threading
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from aiodq._core.arguments import MAX_PAYLOAD_BYTES, Arguments
from aiodq._core.envelope import Carried, Envelope, decode_envelope, encode_envelope
from aiodq._core.errors import ConfigError, PayloadError
from aiodq._core.signature import Injected, Parameters


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Pair(NamedTuple):
    a: int
    b: str


class Line(TypedDict):
    sku: str
    count: int


class Item(msgspec.Struct):
    sku: str
    when: datetime


class Order(pydantic.BaseModel):
    id: uuid.UUID
    price: Decimal
    tags: set[str] = set()
    placed: datetime | None = None
    sizes: list[int] = []


class Plain:
    pass


ZONED = datetime(2026, 12, 24, 18, tzinfo=timezone(timedelta(hours=9)))
NAIVE = datetime(2026, 12, 24, 18)  # noqa: DTZ001


def of(fn: Callable[..., object]) -> Arguments:
    return Arguments("close_order", Parameters("close_order", fn))


def through(
    arguments: Arguments, *args: object, **kwargs: object
) -> tuple[tuple[object, ...], dict[str, object]]:
    """As they would arrive: encoded, stored in an envelope, read back, decoded."""
    packed, named = arguments.encode(args, kwargs)
    stored = encode_envelope(Envelope(1, "close_order", msgspec.Raw(packed), msgspec.Raw(named)))
    envelope = decode_envelope(stored)
    return arguments.decode(envelope.args, envelope.kwargs)


def taking(kind: object) -> Arguments:
    def handler(value: object) -> None: ...

    handler.__annotations__ = {"value": kind}
    return of(handler)


def taking_anything() -> Arguments:
    def handler(value: object) -> None: ...

    handler.__annotations__ = {}
    return of(handler)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (datetime, ZONED),
        (datetime, NAIVE),
        (date, date(2026, 12, 24)),
        (time, time(18, 30)),
        (timedelta, timedelta(seconds=1.5)),
        (Decimal, Decimal("1.10")),
        (uuid.UUID, uuid.UUID(int=7)),
        (Colour, Colour.RED),
        (Size, Size.BIG),
        (bytes, b"\x00\xff"),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2)),
        (set[int], {1, 2}),
        (frozenset[str], frozenset({"a"})),
        (Point, Point(1, 2)),
        (Pair, Pair(1, "a")),
        (Line, {"sku": "a", "count": 1}),
        (Item, Item("a", ZONED)),
        (dict[int, str], {1: "a"}),
        (dict[str, list[Decimal]], {"a": [Decimal(1)]}),
        (Literal["a", "b"], "a"),
        (str | None, None),
        (Annotated[int, msgspec.Meta(gt=0)], 5),
        (Order, Order(id=uuid.UUID(int=7), price=Decimal("9.99"), tags={"a"}, placed=ZONED)),
        (Order | None, Order(id=uuid.UUID(int=7), price=Decimal(1))),
        (list[Order], [Order(id=uuid.UUID(int=7), price=Decimal(1), sizes=[1])]),
        (float, math.inf),
        (int, 2**63 - 1),
        (int, -(2**63)),
        (int, 2**64 - 1),
        (Any, {"a": [1, 2.5, None, True, b"x", {"b": "c"}]}),
        (object, ZONED),
        (dict[str, Any], {"a": [1]}),
        (list[tuple[int, Any]], [(1, "a")]),
        (dict[str, object], {"a": ZONED}),
    ],
)
def test_b28_annotated_arguments_arrive_as_what_they_were(kind: object, value: object) -> None:
    (back,), _ = through(taking(kind), value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "value",
    [None, True, 7, 2.5, "text", b"bytes", [1, [2]], {"a": {"b": 1}}, {1: "a", 2: "b"}, ZONED, "", [], {}],
)
def test_b28_without_annotation_only_what_arrives_unchanged_is_taken(value: object) -> None:
    (back,), _ = through(taking_anything(), value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (NAIVE, "a datetime would come back as str"),
        (date(2026, 12, 24), "a date would come back as str"),
        (timedelta(1), "a timedelta would come back as str"),
        (Decimal(1), "a Decimal would come back as str"),
        (uuid.UUID(int=1), "a UUID would come back as str"),
        (Colour.RED, "a Colour would come back as str"),
        (Size.BIG, "a Size would come back as int"),
        ((1, 2), "a tuple would come back as list"),
        ({1}, "a set would come back as list"),
        (Point(1), "a Point would come back as dict"),
        (Item("a", ZONED), "a Item would come back as dict"),
        ([1, {"a": (2,)}], "a tuple would come back as list"),
        (bytearray(b"a"), "a bytearray would come back as bytes"),
    ],
)
@pytest.mark.parametrize("annotated", [False, True])
def test_b28_what_would_change_on_the_way_is_refused(value: object, says: str, annotated: bool) -> None:
    arguments = taking(dict[str, Any] | list[object] | Any) if annotated else taking_anything()
    with pytest.raises(TypeError) as caught:
        arguments.encode((value,), {})
    assert str(caught.value) == (
        f"close_order(): argument 'value': {says}; "
        "annotate parameter 'value' with its type, and it arrives as it is"
    )


def test_b28_changes_inside_of_loose_containers_are_seen() -> None:
    def handler(a: dict[str, Any], b: list[Any] | None = None, *rest: tuple[int, object]) -> None: ...

    arguments = of(handler)
    arguments.encode(({"a": 1}, None, (1, "a")), {})
    wrong: list[tuple[object, ...]] = [({"a": NAIVE},), ({}, [Decimal(1)]), ({}, None, (1, (2,)))]
    for args in wrong:
        with pytest.raises(TypeError, match="would come back as"):
            arguments.encode(args, {})


def test_b28_nan_and_an_int_for_a_float() -> None:
    def handler(value: float) -> None: ...

    (back,), _ = through(of(handler), math.nan)
    assert isinstance(back, float)
    assert math.isnan(back)
    (back,), _ = through(of(handler), 3)
    assert (back, type(back)) == (3.0, float)


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (str, 7, "argument 'value': Expected `str`, got `int` (it is 7)"),
        (int, "7", "argument 'value': Expected `int`, got `str` (it is '7')"),
        (int, True, "Expected `int`, got `bool`"),
        (int, None, "Expected `int`, got `None`"),
        (list[int], [1, "a"], "Expected `int`, got `str` - at `$[1]`"),
        (Order, {"id": "x"}, "argument 'value': 2 validation errors for Order"),
        (Literal["a"], "b", "Invalid enum value 'b'"),
    ],
)
def test_a_value_that_does_not_fit_its_annotation_is_refused_by_name(
    kind: object, value: object, says: str
) -> None:
    for args, kwargs in [((value,), {}), ((), {"value": value})]:
        with pytest.raises(TypeError) as caught:
            taking(kind).encode(args, kwargs)
        assert says in str(caught.value)
        assert str(caught.value).startswith("close_order(): ")


def nested_in_itself() -> list[object]:
    inner: list[object] = []
    inner.append(inner)
    return inner


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (2**64, "whole numbers beyond 64 bits cannot be stored; pass it as text"),
        (-(2**63) - 1, "whole numbers beyond 64 bits"),
        ("a\ud800", "surrogates not allowed"),
        (nested_in_itself(), "nested too deeply, or contains itself"),
        (threading.Lock(), "a lock cannot be stored in a job"),
        (io.StringIO(), "a StringIO cannot be stored in a job"),
        (Plain(), "a Plain cannot be stored in a job"),
        (Plain, "a type cannot be stored in a job"),
        (Order, "cannot be stored in a job"),
        (2j, "a complex cannot be stored in a job"),
        ((n for n in [1]), "a generator cannot be stored in a job"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(value: object, says: str) -> None:
    def handler(first: int, value: Any, named: Any = None) -> None: ...

    for args, kwargs, name in [((1, value), {}, "value"), ((1, 2), {"named": value}, "named")]:
        with pytest.raises(PayloadError) as caught:
            of(handler).encode(args, kwargs)
        assert f"close_order(): argument {name!r}: " in str(caught.value)
        assert says in str(caught.value)


def test_errors_of_a_models_own_methods_are_the_jobs_payload_errors() -> None:
    class Broken:
        def model_dump(self, **_: object) -> object:
            raise RuntimeError("out of order")

        def __repr__(self) -> str:
            raise RuntimeError("not even that")

    with pytest.raises(PayloadError, match=r"argument 'value': out of order \(it is a .*Broken\)"):
        taking(Any).encode((Broken(),), {})


def test_b31_a_payload_beyond_the_limit_is_refused_with_its_size() -> None:
    def handler(body: bytes) -> None: ...

    arguments = of(handler)
    arguments.encode((b"x" * (MAX_PAYLOAD_BYTES - 10),), {})
    with pytest.raises(PayloadError, match="take 67,108,871 bytes, above the limit of 67,108,864 bytes"):
        arguments.encode((b"x" * MAX_PAYLOAD_BYTES,), {})


# ---- binding


def example(a: int, b: str = "", *, c: int = 0) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((), {}, "close_order(): missing a required argument: 'a'"),
        ((1, "b", 3), {}, "close_order(): too many positional arguments"),
        ((1,), {"d": 4}, "close_order(): got an unexpected keyword argument 'd'"),
        ((1,), {"a": 4}, "close_order(): multiple values for argument 'a'"),
    ],
)
def test_wrong_calls_are_refused_as_python_does(
    args: tuple[object, ...], kwargs: Mapping[str, object], says: str
) -> None:
    with pytest.raises(TypeError) as caught:
        of(example).encode(args, kwargs)
    assert str(caught.value) == says


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1,), {}), ((1, "b"), {"c": 3}), ((), {"a": 1}), ((), {"c": 1, "b": "x", "a": 2})],
)
def test_arguments_arrive_as_they_were_passed(args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    assert through(of(example), *args, **kwargs) == (args, kwargs)


def test_all_kinds_of_parameters() -> None:
    def handler(a: int, /, b: date, *rest: Decimal, c: date, **others: uuid.UUID) -> None: ...

    day = date(2026, 1, 1)
    args = (1, day, Decimal(1), Decimal(2))
    kwargs: dict[str, object] = {"c": day, "x": uuid.UUID(int=1), "a": uuid.UUID(int=2)}
    assert through(of(handler), *args, **kwargs) == (args, kwargs)
    with pytest.raises(TypeError, match=r"argument 'rest\[0\]': Invalid decimal"):
        of(handler).encode((1, day, "a"), {"c": day})
    with pytest.raises(TypeError, match="missing a required argument: 'c'"):
        of(handler).encode((1, day), {})
    many = (1, day, *map(Decimal, range(70_000)))
    assert through(of(handler), *many, c=day) == (many, {"c": day})


def test_defaults_stay_the_handlers() -> None:
    packed, named = of(example).encode((1,), {})
    assert (msgspec.msgpack.decode(packed), msgspec.msgpack.decode(named)) == ([1], {})


# ---- injected parameters


def provider() -> str:
    return "x"


def injected(a: int, db: object = Injected(provider), b: int = 0, *, c: int = 0) -> None: ...


def test_injected_parameters_are_no_arguments_of_a_job() -> None:
    arguments = of(injected)
    assert through(arguments, 1, b=2, c=3) == ((1,), {"b": 2, "c": 3})
    with pytest.raises(TypeError, match="'db' is injected by the worker and cannot be passed"):
        arguments.encode((1,), {"db": 2})
    with pytest.raises(TypeError, match=r"too many positional arguments \(injected by the worker: db\)"):
        arguments.encode((1, 2), {})


def test_a_plain_call_must_pass_what_a_worker_injects() -> None:
    parameters = Parameters("close_order", injected)
    parameters.check_plain_call((1, "db"), {})
    parameters.check_plain_call((1,), {"db": "db"})
    with pytest.raises(
        TypeError, match="'db' is injected when a worker runs it; in a plain call pass it: db=…"
    ):
        parameters.check_plain_call((1,), {})


def test_what_no_worker_could_inject_is_refused() -> None:
    def positional(db: object = Injected(provider), /) -> None: ...

    with pytest.raises(ConfigError, match="'db' must not be positional-only"):
        of(positional)


# ---- annotations


def test_annotations_are_read_at_first_use_and_errors_name_task_and_parameter() -> None:
    def handler(a: int, price: object) -> None: ...

    handler.__annotations__["price"] = "Missing"
    arguments = of(handler)
    with pytest.raises(ConfigError) as caught:
        arguments.encode((1, 2), {})
    assert "close_order(): the annotation of parameter 'price' cannot be read" in str(caught.value)
    assert "name 'Missing' is not defined" in str(caught.value)
    assert "outside of `if TYPE_CHECKING:`" in str(caught.value)
    with pytest.raises(ConfigError):
        arguments.make_ready()


def test_the_annotation_of_the_return_value_need_not_be_readable() -> None:
    def handler(a: int) -> object: ...

    handler.__annotations__["return"] = "Missing"
    assert through(of(handler), 1) == ((1,), {})


def test_annotations_that_no_job_can_bring_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="the type of parameter 'value' cannot be read from a job"):
        taking(str | uuid.UUID).encode(("a",), {})
    with pytest.raises(ConfigError, match="parameter 'value'"):
        taking(Order | int).make_ready()


# ---- what a worker reads


def test_stored_arguments_of_another_signature_are_payload_errors() -> None:
    packed, named = of(example).encode((1, "b"), {"c": 3})

    def fewer(a: int) -> None: ...

    def others(a: str, b: str, c: int) -> None: ...

    def more(a: int, b: str, d: int, c: int) -> None: ...

    cases: list[tuple[Callable[..., object], str]] = [
        (fewer, "too many positional"),
        (others, "Expected `str`, got `int`"),
        (more, "missing a required argument: 'd'"),
    ]
    for fn, says in cases:
        with pytest.raises(PayloadError, match=r"close_order\(\): the stored arguments do not fit") as caught:
            of(fn).decode(packed, named)
        assert says in str(caught.value)


@pytest.mark.parametrize("packed", [b"", b"\xff", b"\xdd\xff\xff\xff\xff", b"\x91", b"\xa1x", b"\xdc"])
def test_b27_unreadable_arguments_are_payload_errors(packed: bytes) -> None:
    with pytest.raises(PayloadError):
        of(example).decode(packed, b"\x80")
    with pytest.raises(PayloadError):
        of(example).decode(b"\x91\x01", packed)


# ---- by name


def test_a_task_known_by_name_takes_plain_values() -> None:
    by_name = Arguments("close_order", None)
    assert through(by_name, 1, [ZONED], c={"a": None}) == ((1, [ZONED]), {"c": {"a": None}})
    with pytest.raises(
        TypeError, match=r"'args\[1\]': a tuple would come back as list; a task known by name only"
    ):
        by_name.encode((1, (2,)), {})
    with pytest.raises(TypeError, match="'when': a datetime would come back as str"):
        by_name.encode((), {"when": NAIVE})
    with pytest.raises(PayloadError, match=r"argument 'args\[0\]': a lock cannot"):
        by_name.encode((threading.Lock(),), {})


def test_the_envelope_carries_arguments_unchanged() -> None:
    packed, named = of(example).encode((1,), {"b": "x"})
    envelope = Envelope(1, "t", msgspec.Raw(packed), msgspec.Raw(named), Carried(max_attempts=3), {"h": "1"})
    back = decode_envelope(encode_envelope(envelope))
    assert of(example).decode(back.args, back.kwargs) == ((1,), {"b": "x"})
