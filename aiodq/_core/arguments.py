"""Arguments of jobs: encoded and checked where a job is made, decoded to the handler's types where it is run.

The stored form is msgpack; never pickle. What a parameter's annotation says decides what comes back:

=================================================  ===========================================================
argument                                           arrives as
=================================================  ===========================================================
None, bool, str, bytes, float (NaN and infinities  the same, annotated or not
too), int of up to 64 bits, list, dict with keys
of these types
aware datetime                                     the same instant, in UTC
naive datetime, date, time, timedelta, Decimal,    the same, if the parameter is annotated with that type
UUID, Enum, tuple, set, frozenset, NamedTuple,
TypedDict, dataclass, attrs class, msgspec.Struct
pydantic model (by `model_dump`, `model_validate`) the same, if the parameter is annotated with that model
int for a parameter annotated `float`              float
bytearray, memoryview                              bytes, if the parameter is annotated so
int beyond 64 bits, text with lone surrogates,     refused where the job is made (`PayloadError`)
cyclic containers, locks, files, own classes
anything without annotation that would come back   refused where the job is made (`TypeError`): annotate the
as another type (a tuple as list, a date as text)  parameter
a value that does not fit the annotation           refused where the job is made (`TypeError`)
more than 64 MiB in all                            refused where the job is made (`PayloadError`)
=================================================  ===========================================================

To be sure of it, every job is decoded once where it is made, as the worker will decode it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias, cast

import msgspec
from msgspec.msgpack import Decoder, Encoder

from aiodq._core.envelope import NO_KWARGS, NONE_NAMED
from aiodq._core.errors import ConfigError, PayloadError
from aiodq._core.roundtrip import Check, loose_check
from aiodq._core.signature import LOOSE, Parameters

MAX_PAYLOAD_BYTES: Final = 64 * 1024 * 1024
"""The most bytes that the arguments of one job may have. Larger ones belong into an object store."""

_HEAD_ENDS: Final = {0xDC: 3, 0xDE: 3, 0xDD: 5, 0xDF: 5}
"""Where the counts of longer msgpack arrays and maps end, by their first byte."""

Args: TypeAlias = tuple[object, ...]
Packed: TypeAlias = bytes | bytearray | memoryview | msgspec.Raw


def _dump(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        raise TypeError(f"a {type(value).__qualname__} cannot be stored in a job")
    return dump(by_alias=True, round_trip=True)


def _load(kind: type, value: object) -> object:
    if kind is object:
        return value
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise TypeError(f"a {getattr(kind, '__qualname__', kind)} cannot be read back from a job")
    return validate(value)


_encoder = Encoder(enc_hook=_dump)
_raw_list: Decoder[list[msgspec.Raw]] = Decoder(list[msgspec.Raw])
_raw_dict: Decoder[dict[str, msgspec.Raw]] = Decoder(dict[str, msgspec.Raw])


class Arguments:
    """How the arguments of one task are stored and read.

    `parameters` is None for a task that is known by name only: then any arguments are taken that come back as
    the types they are.
    """

    def __init__(self, task: str, parameters: Parameters | None) -> None:
        self._task = task
        self._parameters = parameters
        self._positions = parameters.positions if parameters is not None else ()
        self._types: dict[str, object] | None = None
        self._by_count: dict[int, tuple[Decoder[Args], tuple[tuple[int, Check], ...]]] = {}
        self._by_parameter: dict[str, tuple[Decoder[object], Check | None]] = {}

    def encode(self, args: Args, kwargs: Mapping[str, object]) -> tuple[bytes, bytes]:
        """The stored form of arguments, checked against the handler's signature and types.

        Raises:
            TypeError: they do not fit the signature, or a value not its annotation.
            PayloadError: a value cannot be stored, or all are too large.
            ConfigError: the handler's annotations cannot be used.
        """
        if self._parameters is not None:
            self._parameters.bind(args, kwargs)
        try:
            packed = _encoder.encode(args)
            named = _encoder.encode(kwargs) if kwargs else NO_KWARGS
        except Exception as error:  # own `model_dump` methods may raise anything
            raise self._unencodable(args, kwargs, error) from error
        size = len(packed) + len(named)
        if size > MAX_PAYLOAD_BYTES:
            raise PayloadError(
                f"{self._task}(): the arguments take {size:,} bytes, above the limit of "
                f"{MAX_PAYLOAD_BYTES:,} bytes: store the data elsewhere and pass a reference to it"
            )
        if args:
            self._check_args(args, packed)
        for name, value in kwargs.items():
            self._check_one(name, value, self._named(name))
        return packed, named

    def decode(self, args: Packed, kwargs: Packed) -> tuple[Args, dict[str, object]]:
        """Stored arguments as the handler's types.

        Raises:
            PayloadError: they do not fit the handler, so a later run would not fit either.
            ConfigError: the handler's annotations cannot be used.
        """
        try:
            values = self._decode_args(args, _count(args))
            named = {} if kwargs is NONE_NAMED or not _count(kwargs) else self._decode_named(kwargs)
            if self._parameters is not None:
                self._parameters.bind(values, named)
        except ConfigError:
            raise
        except Exception as error:  # validators of the user's models may raise anything
            raise PayloadError(f"{self._task}(): the stored arguments do not fit: {error}") from error
        return values, named

    def value_of(self, name: str, args: Args, kwargs: Mapping[str, object]) -> object:
        """What a parameter gets from a job's arguments. Raises ValueError where that is not known here: for a
        task known by name only, of a parameter that is not passed by name."""
        if self._parameters is not None:
            return self._parameters.value_of(name, args, kwargs)
        if name in kwargs:
            return kwargs[name]
        raise ValueError(
            f"{self._task}(): which argument is {name!r} is not known here: pass it by name, or declare the "
            f"task with @queue.stub"
        )

    def make_ready(self) -> None:
        """Reads the annotations now, for a worker that wants to know at its start. Raises ConfigError."""
        for name in self._read_types():
            self._of(name)

    def _check_args(self, args: Args, packed: bytes) -> None:
        count = len(args)
        checks: Iterable[tuple[int, Check]]
        try:
            if count <= len(self._positions):
                decoder, checks = self._by_count.get(count) or self._decoder(count)
                back = decoder.decode(packed)
            else:
                back, checks = self._decode_args(packed, count), self._checks_of(count)
        except ConfigError:
            raise
        except Exception as error:  # as above
            for position, value in enumerate(args):
                self._check_one(self._name_at(position), value, self._at(position))
            raise TypeError(f"{self._task}(): {error}") from error
        for position, check in checks:
            if (change := check(args[position], back[position])) is not None:
                raise self._changed(self._name_at(position), change)

    def _check_one(self, name: str, value: object, how: tuple[Decoder[object], Check | None]) -> None:
        decoder, check = how
        try:
            back = decoder.decode(_encoder.encode(value))
        except Exception as error:  # as above
            raise TypeError(f"{self._task}(): argument {name!r}: {error} (it is {_short(value)})") from error
        if check is not None and (change := check(value, back)) is not None:
            raise self._changed(name, change)

    def _decode_args(self, packed: Packed, count: int) -> Args:
        if count <= len(self._positions):
            return self._decoder(count)[0].decode(packed) if count else ()
        return tuple(
            self._at(position)[0].decode(raw) for position, raw in enumerate(_raw_list.decode(packed))
        )

    def _decode_named(self, kwargs: Packed) -> dict[str, object]:
        return {name: self._named(name)[0].decode(raw) for name, raw in _raw_dict.decode(kwargs).items()}

    def _checks_of(self, count: int) -> Iterable[tuple[int, Check]]:
        """Checks for more arguments than there are parameters to name."""
        every = ((position, self._at(position)[1]) for position in range(count))
        return ((position, check) for position, check in every if check is not None)

    def _decoder(self, count: int) -> tuple[Decoder[Args], tuple[tuple[int, Check], ...]]:
        """One decoder for the first `count` parameters, and checks of those that may come back changed."""
        found = self._by_count.get(count)
        if found is None:
            kinds = tuple(self._read_types()[name] for name in self._positions[:count])
            checks = [(position, self._at(position)[1]) for position in range(count)]
            decoder: Decoder[Args] = Decoder(cast("Any", tuple)[kinds], dec_hook=_load)
            found = decoder, tuple((position, check) for position, check in checks if check is not None)
            self._by_count[count] = found
        return found

    def _at(self, position: int) -> tuple[Decoder[object], Check | None]:
        if position < len(self._positions):
            return self._of(self._positions[position])
        return self._of((self._parameters and self._parameters.rest) or "")

    def _named(self, name: str) -> tuple[Decoder[object], Check | None]:
        parameters = self._parameters
        return self._of(name if parameters is None or name in parameters.names else parameters.others or "")

    def _of(self, parameter: str) -> tuple[Decoder[object], Check | None]:
        """How values for one parameter are read; one that is not known is read without a type."""
        kind = self._read_types().get(parameter, LOOSE)
        found = self._by_parameter.get(parameter if kind is not LOOSE else "")
        if found is None:
            try:
                decoder: Decoder[object] = Decoder(cast("type[object]", kind), dec_hook=_load)
            except TypeError as error:
                raise ConfigError(
                    f"{self._task}(): the type of parameter {parameter!r} cannot be read from a job: {error}"
                ) from error
            found = decoder, loose_check(kind)
            self._by_parameter[parameter if kind is not LOOSE else ""] = found
        return found

    def _read_types(self) -> dict[str, object]:
        if self._types is None:
            self._types = self._parameters.read_types() if self._parameters is not None else {}
        return self._types

    def _name_at(self, position: int) -> str:
        if self._parameters is None:
            return f"args[{position}]"
        return self._parameters.name_at(position)

    def _unencodable(self, args: Args, kwargs: Mapping[str, object], error: Exception) -> PayloadError:
        for name, value in self._with_names(args, kwargs):
            try:
                _encoder.encode(value)
            except Exception as own:  # noqa: BLE001  (as above)
                return PayloadError(
                    f"{self._task}(): argument {name!r}: {_reason(own)} (it is {_short(value)})"
                )
        return PayloadError(f"{self._task}(): the arguments cannot be stored: {_reason(error)}")

    def _with_names(self, args: Args, kwargs: Mapping[str, object]) -> Iterable[tuple[str, object]]:
        yield from ((self._name_at(position), value) for position, value in enumerate(args))
        yield from kwargs.items()

    def _changed(self, name: str, other: str) -> TypeError:
        if self._parameters is None:
            cure = "a task known by name only takes plain values; declare it with @queue.stub to have types"
        else:
            cure = f"annotate parameter {name!r} with its type, and it arrives as it is"
        return TypeError(f"{self._task}(): argument {name!r}: {other}; {cure}")


def _count(packed: Packed) -> int:
    """How many members a msgpack array or map has, read from its head."""
    view = memoryview(cast("bytes", packed))
    head = view[0] if view else 0
    if head & 0xF0 in (0x90, 0x80):
        return head & 0x0F
    count = int.from_bytes(view[1 : _HEAD_ENDS.get(head, 0)])
    if 0 < count < len(view):
        return count
    raise PayloadError(f"expected an array and a map of arguments, got {bytes(view[:16])!r}")


def _reason(error: Exception) -> str:
    if isinstance(error, OverflowError):
        return "whole numbers beyond 64 bits cannot be stored; pass it as text"
    if isinstance(error, RecursionError):
        return "it is nested too deeply, or contains itself"
    return str(error)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  (the repr of a user's class may raise anything)
        return f"a {type(value).__qualname__}"
    return text if len(text) <= 80 else f"{text[:77]}…"
