"""The stored form of a job: one msgpack array, written by producers, read by workers of any nearby version.

`[version, task, args, kwargs, carried, headers]`; what is empty at the end may be left out. A reader takes a
longer array and unknown `carried` fields as they are (a newer minor form); an unknown version is left to
others. Arguments stay encoded until a handler's types are known.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from aiodq._core.errors import PayloadError

VERSION: Final = 1

NO_ARGS: Final = b"\x90"
NO_KWARGS: Final = b"\x80"
NONE_NAMED: Final = Raw(NO_KWARGS)
"""What `kwargs` of a decoded envelope without them is, so that nobody needs to look into it."""


class Carried(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The options of one call, which travel with its job and go before those of the task. All times in ms.

    `given`: the id was chosen by the caller, so its end leaves a done mark.
    """

    max_attempts: int | UnsetType = UNSET
    timeout_ms: int | UnsetType | None = UNSET
    expires_ms: int | UnsetType | None = UNSET
    keep_result_ms: int | UnsetType = UNSET
    given: bool = False


class Envelope(Struct, frozen=True, array_like=True, gc=False):
    version: int
    task: str
    args: Raw = Raw(NO_ARGS)
    kwargs: Raw = NONE_NAMED
    carried: Carried | None = None
    headers: dict[str, str] | None = None


class UnknownVersion(PayloadError):
    """The envelope was written in a form that this version cannot read: give the job back for a newer
    worker."""


class _Head(Struct, frozen=True, array_like=True):
    version: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)
_head = msgspec.msgpack.Decoder(_Head)


def encode_envelope(envelope: Envelope) -> bytes:
    return _encoder.encode(envelope)


def plain_envelope(task: str, args: bytes, kwargs: bytes) -> bytes:
    """The stored form of a job without options of its own and headers, which is left as short as may be:
    what is encoded already is only put together."""
    if kwargs == NO_KWARGS:
        return b"".join((b"\x93\x01", _packed_name(task), args))
    return b"".join((b"\x94\x01", _packed_name(task), args, kwargs))


@lru_cache(maxsize=1000)
def _packed_name(task: str) -> bytes:
    return _encoder.encode(task)


def decode_envelope(payload: bytes) -> Envelope:
    """Reads a stored payload. Raises UnknownVersion for a version of the future, PayloadError for anything
    unreadable."""
    try:
        envelope = _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(payload, error) from error
    if envelope.version != VERSION:
        raise UnknownVersion(f"payload of version {envelope.version}; this worker reads version {VERSION}")
    return envelope


def _unreadable(payload: bytes, error: Exception) -> PayloadError:
    try:
        version = _head.decode(payload).version
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        version = VERSION
    if version != VERSION:
        return UnknownVersion(f"payload of version {version}; this worker reads version {VERSION}")
    return PayloadError(f"the stored payload cannot be read: {error} (it begins with {payload[:16]!r})")
