"""What is remembered of a job that did not end well at once: counters and the last errors.

The server keeps it as an opaque blob beside the job and never looks inside; only a retry, a snooze, a
hand-back with a delay and a burial write it. Readers take unknown fields and a broken blob as they come:
history must never be the reason why a job cannot go on.
"""

from __future__ import annotations

import contextlib
import traceback
from types import TracebackType
from typing import Final

import msgspec
from msgspec import Struct

from aiodq._core.directives import leaves_of

ERRORS_KEPT: Final = 5
MESSAGE_LENGTH: Final = 1000
TRACEBACK_LENGTH: Final = 4000
LEAVES_SHOWN: Final = 10


class ErrorRecord(Struct, frozen=True, rename={"at_ms": "t", "type": "e", "message": "m", "traceback": "b"}):
    """One error as text. `at_ms` is the server's time, Unix ms; `traceback` keeps its end when it is long."""

    at_ms: int
    type: str
    message: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class Reservation(Struct, frozen=True, array_like=True):
    """A start that a rate has put off: the job waits for its moment, and then starts without asking again.

    Attributes:
        due_ms: the job's own due time, Unix ms.
        at_ms: the moment reserved for it.
        losses: its crashes and interruptions when it was reserved; with more of them a run may have used it.
    """

    due_ms: int
    at_ms: int
    losses: int


SPENT: Final = -1
"""`losses` of a reservation that a run has used."""


class Tally(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={
        "failures": "f",
        "snoozes": "s",
        "handbacks": "h",
        "errors": "e",
        "reason": "r",
        "reservation": "w",
    },
):
    """Counters and history of one job.

    Attributes:
        failures: runs that failed since the job was enqueued or replayed.
        snoozes: how often its handler put it off.
        handbacks: how often it was given back in a row because no worker knew its task or its payload's
            version.
        errors: the last `ERRORS_KEPT` errors, oldest first.
        reason: why it was buried; empty for a job that was not.
        reservation: set while a rate puts its start off, and until that run ends.
    """

    failures: int = 0
    snoozes: int = 0
    handbacks: int = 0
    errors: tuple[ErrorRecord, ...] = ()
    reason: str = ""
    reservation: Reservation | None = None

    def with_errors(self, *records: ErrorRecord) -> Tally:
        return msgspec.structs.replace(self, errors=(*self.errors, *records)[-ERRORS_KEPT:])

    def failed(self, *records: ErrorRecord) -> Tally:
        """One more failure, with its errors."""
        return msgspec.structs.replace(
            self.with_errors(*records), failures=self.failures + 1, handbacks=0, reservation=None
        )

    def snoozed(self) -> Tally:
        return msgspec.structs.replace(self, snoozes=self.snoozes + 1, handbacks=0, reservation=None)

    def handed_back(self) -> Tally:
        return msgspec.structs.replace(self, handbacks=self.handbacks + 1)

    def put_off(self, reservation: Reservation) -> Tally:
        """A rate has put its start off."""
        return msgspec.structs.replace(self, reservation=reservation)

    def spent(self, at_ms: int) -> Tally:
        """A run has used its reservation: the next one, at that time, asks anew. Its own due time is kept."""
        if self.reservation is None:
            return self
        used = msgspec.structs.replace(self.reservation, at_ms=at_ms, losses=SPENT)
        return msgspec.structs.replace(self, reservation=used)

    def buried(self, reason: str) -> Tally:
        return msgspec.structs.replace(self, reason=_clean(reason, MESSAGE_LENGTH))

    def revived(self) -> Tally:
        """For a replay: all attempts again, the history kept."""
        return Tally(errors=self.errors)


EMPTY: Final = Tally()

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Tally)


def encode_tally(tally: Tally) -> bytes:
    return _encoder.encode(tally)


def read_tally(blob: bytes | None) -> Tally:
    """The tally of a stored blob. One that cannot be read counts as none, with a note of that as its only
    error.
    """
    if not blob:
        return EMPTY
    try:
        return _decoder.decode(blob)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        note = f"the stored counters could not be read and start anew: {error}"
        return Tally(errors=(ErrorRecord(0, "PayloadError", _clean(note, MESSAGE_LENGTH)),))


def record_error(error: BaseException, at_ms: int, *, note: str = "") -> ErrorRecord:
    """An error as text, with the leaves of an exception group; never raises, whatever the error's own methods
    do.
    """
    message = f"{note}: {_message(error)}" if note else _message(error)
    return ErrorRecord(
        at_ms, type(error).__qualname__, _clean(message, MESSAGE_LENGTH), _clean_end(_traceback(error))
    )


def describe(error: BaseException) -> str:
    """`Type: message` in one line, for logs and events."""
    name, message = type(error).__qualname__, _clean(" ".join(_message(error).split()), MESSAGE_LENGTH)
    return f"{name}: {message}" if message else name


def _message(error: BaseException) -> str:
    leaves = leaves_of(error)
    if len(leaves) == 1 and leaves[0] is error:
        return _text_of(error)
    shown = "; ".join(f"{type(leaf).__qualname__}: {_text_of(leaf)}" for leaf in leaves[:LEAVES_SHOWN])
    more = f"; and {len(leaves) - LEAVES_SHOWN} more" if len(leaves) > LEAVES_SHOWN else ""
    return f"{_text_of(error)} [{shown}{more}]"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  # the text of a user's error may raise anything
        return "(its text could not be made)"


def _traceback(error: BaseException) -> str:
    with contextlib.suppress(BaseException):  # formatting calls into the user's errors as well
        return "".join(traceback.format_exception(type(error), error, users_part(error.__traceback__)))
    return "(its traceback could not be made)"


def users_part(tb: TracebackType | None) -> TracebackType | None:
    """The traceback without our own frames at its beginning."""
    part = tb
    while part is not None and part.tb_frame.f_globals.get("__name__", "").startswith("aiodq._"):
        part = part.tb_next
    return part or tb


def _clean(text: str, longest: int) -> str:
    """Storable: valid Unicode, and no longer than that."""
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return text.encode("utf-8", "replace").decode()


def _clean_end(text: str) -> str:
    """As `_clean`, but keeps the end, where a traceback says most."""
    if len(text) > TRACEBACK_LENGTH:
        text = "…" + text[1 - TRACEBACK_LENGTH :]
    return text.encode("utf-8", "replace").decode()
