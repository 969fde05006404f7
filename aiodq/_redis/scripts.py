"""Loads the Lua scripts: one file for each transition, whose header is at once documentation, binding and
contract.

A header names the keys and arguments in their order; the loader binds them to Lua locals, so that bodies
never index KEYS or ARGV. `EACH` names the values of one job, repeated to the end of ARGV; they are bound as
arrays, with `count`. `PARTS` are pasted before the body in their order. The same files serve EVALSHA and, on
Redis 7 and newer, FCALL.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from aiodq._core.rate import FARTHEST_US
from aiodq._core.store import CLOCK_STEP_US, DEAF_POLL_MS, STEADY_MS, WATCH_CROWD

VERSION: Final = 1
"""Version of the stored layout, compared with `v` in `meta`."""

Scripting: TypeAlias = Literal["eval", "functions"]

_CONSTANTS: Final[dict[str, str]] = {
    "VERSION": str(VERSION),
    "PUBLISH": "'PUBLISH'",
    "NUMSUB": "'NUMSUB'",
    "USAGE": "'USAGE'",
    "CLOCK_STEP_US": str(CLOCK_STEP_US),
    "FARTHEST_US": str(FARTHEST_US),
    "WATCH_CROWD": str(WATCH_CROWD),
    "STEADY_MS": str(STEADY_MS),
    "DEAF_POLL_MS": str(DEAF_POLL_MS),
}

_SHARDED: Final[dict[str, str]] = {**_CONSTANTS, "PUBLISH": "'SPUBLISH'", "NUMSUB": "'SHARDNUMSUB'"}
"""In a cluster: a channel belongs to a slot as keys do, so the node that serves a shard carries its notices
too."""


_OF_ORDER: Final = frozenset({"order", "seq", "number"})
"""Keys and parts that only queues need which are first in, first out; the scripts of others go without."""


class Header(Struct, frozen=True):
    """What a script's first lines say. `moves` is empty for scripts that are no transition."""

    name: str
    moves: tuple[tuple[str, str], ...]
    says: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    each: tuple[str, ...]
    parts: tuple[str, ...]
    returns: str


class Script(Struct, frozen=True):
    """One script, ready to send.

    Attributes:
        source: the whole text: for EVAL, and as the body of a function of the library.
        sha: its SHA-1, by which the server knows it.
    """

    header: Header
    source: str
    sha: str

    @property
    def drains(self) -> bool:
        """It finishes when the server's memory is full."""
        return "drain" in self.header.parts


_FIELD = re.compile(r"^-- ([A-Z]+):(?: (.*))?$")


def parse_header(name: str, text: str) -> tuple[Header, str]:
    """Splits a script's text into its header and its body. Raises ValueError for a header without the agreed
    form."""
    lines = text.splitlines()
    end = next((n for n, line in enumerate(lines) if not line.startswith("--")), len(lines))
    first = lines[0].removeprefix("-- ")
    if not first.startswith(name + ":"):
        raise ValueError(f"{name}.lua must begin with '-- {name}: '")
    summary = first.removeprefix(name + ":").strip()
    moves = tuple((a, b) for a, b in re.findall(r"(\w+) -> (\w+)", summary))
    fields: dict[str, str] = {}
    prose = [] if moves else [summary]
    last: str | None = None
    for line in lines[1:end]:
        if match := _FIELD.match(line):
            last = str(match[1])
            fields[last] = match[2] or ""
        elif last is None:
            prose.append(line.removeprefix("-- "))
        elif last == "RETURNS":
            fields[last] += " " + line.removeprefix("--").strip()
    for needed in ("KEYS", "ARGV", "PARTS", "RETURNS"):
        if needed not in fields:
            raise ValueError(f"{name}.lua has no {needed} line in its header")
    return (
        Header(
            name=name,
            moves=moves,
            says=" ".join(prose),
            keys=tuple(fields["KEYS"].split()),
            args=tuple(fields["ARGV"].split()),
            each=tuple(fields.get("EACH", "").split()),
            parts=tuple(fields["PARTS"].split()),
            returns=fields["RETURNS"],
        ),
        "\n".join(lines[end:]),
    )


def _bindings(header: Header) -> str:
    lines: list[str] = []
    if header.keys:
        lines.append(f"local {', '.join(header.keys)} = unpack(KEYS)")
    if header.args:
        lines.append(f"local {', '.join(header.args)} = unpack(ARGV, 1, {len(header.args)})")
    if header.each:
        fixed, stride = len(header.args), len(header.each)
        lines.append(f"local count = (#ARGV - {fixed}) / {stride}")
        lines.append(f"local {', '.join(header.each)} = {', '.join('{}' for _ in header.each)}")
        lines.append("for i = 1, count do")
        lines += [
            f"  {name}[i] = ARGV[{fixed - stride + n + 1} + i * {stride}]"
            for n, name in enumerate(header.each)
        ]
        lines.append("end")
    return "\n".join(lines)


def _assemble(name: str, text: str, parts: Mapping[str, str], values: Mapping[str, str]) -> Script:
    header, body = parse_header(name, text)
    if values["FIFO"] == "false":
        header = replace(header, keys=_without_order(header.keys), parts=_without_order(header.parts))
    pasted = "\n".join(parts[part] for part in header.parts)
    constants = {key: value for key, value in values.items() if re.search(rf"\b{key}\b", pasted + body)}
    chunks = [
        f"local {', '.join(constants)} = {', '.join(constants.values())}" if constants else "",
        _bindings(header),
        pasted,
        body,
    ]
    source = "\n".join(chunk for chunk in chunks if chunk) + "\n"
    return Script(header, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def _without_order(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in _OF_ORDER)


@cache
def load_scripts(*, sharded: bool = False, fifo: bool = False) -> Mapping[str, Script]:
    """All scripts by name, read from the package once. `sharded`: as they are sent to a cluster; `fifo`: for
    queues that are first in, first out."""
    folder = files("aiodq._redis") / "lua"
    parts = {
        entry.name.removesuffix(".lua"): entry.read_text()
        for entry in (folder / "parts").iterdir()
        if entry.name.endswith(".lua")
    }
    texts = {
        entry.name.removesuffix(".lua"): entry.read_text()
        for entry in folder.iterdir()
        if entry.name.endswith(".lua")
    }
    values = {**(_SHARDED if sharded else _CONSTANTS), "FIFO": "'1'" if fifo else "false"}
    return {name: _assemble(name, text, parts, values) for name, text in sorted(texts.items())}


@cache
def library_name(*, sharded: bool = False, fifo: bool = False) -> str:
    """Name of the function library: the layout version, and a mark of the sources, so that releases live side
    by side."""
    sources = "".join(script.source for script in load_scripts(sharded=sharded, fifo=fifo).values())
    mark = hashlib.sha1(sources.encode(), usedforsecurity=False)
    return f"aiodq_{VERSION}_{mark.hexdigest()[:10]}"


def function_name(name: str, *, sharded: bool = False, fifo: bool = False) -> str:
    return f"{library_name(sharded=sharded, fifo=fifo)}_{name}"


def library_source(*, sharded: bool = False, fifo: bool = False) -> str:
    """The scripts as one function library. Draining scripts get the flag that lets them run when memory is
    full."""
    chunks = [f"#!lua name={library_name(sharded=sharded, fifo=fifo)}"]
    for name, script in load_scripts(sharded=sharded, fifo=fifo).items():
        flags = "'allow-oom'" if script.drains else ""
        function = function_name(name, sharded=sharded, fifo=fifo)
        chunks.append(
            f"redis.register_function{{function_name='{function}', flags={{{flags}}}, "
            f"callback=function(KEYS, ARGV)\n{script.source}end}}"
        )
    return "\n".join(chunks) + "\n"
