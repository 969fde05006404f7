"""Names checked at the door: what may be a queue, a prefix, a task, a job id, a header.

Names become parts of the server's keys and channels, members of its sets, parts of URLs and file names. What
would be ambiguous in one of these places is refused before anything is sent, with a message that shows it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

MAX_QUEUE_NAME: Final = 128
MAX_PREFIX: Final = 64
MAX_JOB_ID_BYTES: Final = 256
MAX_TASK_NAME_BYTES: Final = 256

_PLAIN: Final = re.compile(r"[A-Za-z0-9._:/+@=,~#%-]+", re.ASCII)
_SHARD_END: Final = re.compile(r"/[0-9]+\Z", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ALLOWED: Final = "letters a-z and A-Z, digits and . _ : / + @ = , ~ # % -"
_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_ID_LETTERS: Final = bytes(_LETTERS[byte % 62] for byte in range(256))

JOB_ID_BYTES: Final = 14
"""Random bytes, and characters, of a made job id. With 14 an id takes 16 bytes of the server's memory in each
of the two places that hold it, with 15 it would take 24."""


def check_queue_name(name: str) -> str:
    """Gives the name of a queue back if it can be one: 1 to 128 characters of `_ALLOWED`.

    Braces would move the hash tag of the keys, wildcards would match other queues' keys, and `orders/0` is
    the first shard of `orders`; so these are no names of queues.

    Raises:
        TypeError: not a string.
        ValueError: any other name.
    """
    _plain(name, "queue name", MAX_QUEUE_NAME)
    if _SHARD_END.search(name):
        raise ValueError(
            f"queue name {_shown(name)}: names that end in /<digits> are those of shards; write -<digits>"
        )
    return name


def check_prefix(prefix: str) -> str:
    """Gives the prefix of all keys back if it can be one. Raises as `check_queue_name`."""
    return _plain(prefix, "prefix", MAX_PREFIX)


def check_job_id(job_id: str) -> str:
    """Gives an id back if it can be a job's: 1 to 256 bytes of UTF-8 without control characters.

    Braces only stand around a shard key in front: of `{t7}x` only `t7` decides about the shard.

    Raises:
        TypeError: not a string.
        ValueError: any other id.
    """
    _text(job_id, "job id", MAX_JOB_ID_BYTES)
    if "{" in job_id or "}" in job_id:
        key, closed, rest = job_id[1:].partition("}")
        if job_id[0] != "{" or not (key and closed and rest) or "{" in key or "{" in rest or "}" in rest:
            raise ValueError(
                f"job id {_shown(job_id)}: braces only stand around a shard key in front, as in {{t7}}x"
            )
    return job_id


def check_task_name(name: str) -> str:
    """Gives the name of a task back: 1 to 256 bytes of UTF-8 without control characters.

    Raises:
        TypeError: not a string.
        ValueError: any other name.
    """
    return _text(name, "task name", MAX_TASK_NAME_BYTES)


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """A copy of the headers of a job: strings by non-empty strings.

    Raises:
        TypeError: not a mapping, or a key or value that is not a string.
        ValueError: an empty key, or text that is no valid Unicode.
    """
    return dict(_header(key, value) for key, value in _items(headers))


def job_id_from(random: bytes) -> str:
    """A job id of letters and digits, one for each random byte, of which each keeps nearly 6 bits.

    Of a billion such jobs, the chance that any two have the same id is less than one in a million.
    """
    return random.translate(_ID_LETTERS).decode("ascii")


def _plain(name: object, what: str, longest: int) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{what} {name!r}: expected a string, got {type(name).__name__}")
    if not name or len(name) > longest:
        raise ValueError(f"{what} {_shown(name)}: expected 1 to {longest} characters, got {len(name)}")
    if not _PLAIN.fullmatch(name):
        raise ValueError(f"{what} {_shown(name)}: expected only {_ALLOWED}")
    return name


def _text(text: object, what: str, longest: int) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{what} {text!r}: expected a string, got {type(text).__name__}")
    if text.isascii() and text.isprintable():  # nearly all: two looks that cost next to nothing
        size = len(text)
    else:
        size = len(_utf8(text, what))
        if _CONTROL.search(text):
            raise ValueError(f"{what} {_shown(text)}: control characters are not allowed")
    if not 0 < size <= longest:
        raise ValueError(f"{what} {_shown(text)}: expected 1 to {longest} bytes of UTF-8, got {size}")
    return text


def _items(headers: object) -> list[tuple[object, object]]:
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers={headers!r}: expected a mapping of strings to strings")
    return list(cast("Mapping[object, object]", headers).items())


def _header(key: object, value: object) -> tuple[str, str]:
    if not isinstance(key, str) or not isinstance(value, str):
        raise TypeError(f"header {key!r}: {value!r}: expected a string by a string")
    if not key:
        raise ValueError(f"header '': {value!r}: expected a name that is not empty")
    _utf8(key, "header")
    _utf8(value, f"header {key!r}:")
    return key, value


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} {_shown(text)}: no valid Unicode text ({error.reason})") from error


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:60]!r}… ({len(text)} characters)"
