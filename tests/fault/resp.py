"""Cuts a stream of the server's protocol (RESP 2 and 3) into whole frames, for the proxy.

Nothing is interpreted beyond what a fault needs to aim at: the name of a command, and whether a frame is a
pushed message.
"""

from __future__ import annotations

from typing import Final

from aiodq._redis.scripts import library_name, load_scripts

_COUNTED: Final = b"*%~>|"  # arrays, maps, sets, pushes, attributes: frames within frames
_STRINGS: Final = b"$=!"  # a length, then as many bytes


class Splitter:
    """Takes bytes as they arrive, gives whole frames; what is incomplete is kept for later."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0  # end of what was looked through of the frame at the front
        self._open = 1  # values still missing until that frame is whole

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        frames: list[bytes] = []
        while self._advance():
            frames.append(bytes(self._buffer[: self._at]))
            del self._buffer[: self._at]
            self._at, self._open = 0, 1
        return frames

    def _advance(self) -> bool:
        """Looks through further values; True when the frame at the front is whole."""
        while self._open:
            end = self._buffer.find(b"\r\n", self._at)
            if end < 0:
                return False
            kind, after = self._buffer[self._at], end + 2
            missing = self._open - 1
            if kind in _COUNTED:
                count = max(0, int(self._buffer[self._at + 1 : end]))
                missing += count * 2 if kind in b"%|" else count
                if kind == 0x7C:  # an attribute stands before the value it describes
                    missing += 1
            elif kind in _STRINGS:
                length = int(self._buffer[self._at + 1 : end])
                if length >= 0:
                    after += length + 2
                    if len(self._buffer) < after:
                        return False
            self._at, self._open = after, missing
        return True


def words(frame: bytes, most: int = 3) -> list[bytes]:
    """The first words of a command or of a pushed message; [] when the frame is neither."""
    if frame[:1] not in (b"*", b">"):
        return []
    found: list[bytes] = []
    at = frame.find(b"\r\n") + 2
    while len(found) < most and at < len(frame) and frame[at : at + 1] == b"$":
        end = frame.find(b"\r\n", at)
        length = int(frame[at + 1 : end])
        found.append(frame[end + 2 : end + 2 + length])
        at = end + 4 + length
    return found


_names_by_sha: Final[dict[bytes, str]] = {}


def _script_name(sha: bytes) -> str:
    if sha not in _names_by_sha:
        _names_by_sha.update({script.sha.encode(): name for name, script in load_scripts().items()})
    return _names_by_sha.get(sha, "evalsha")


_LOOSE: Final = frozenset({"script", "function", "client", "pubsub", "config"})


def command_name(frame: bytes) -> str:
    """The script's name for EVALSHA and FCALL of ours; else the command in small letters, with its
    subcommand where one makes sense (`script load`)."""
    said = words(frame)
    if not said:
        return "?"
    verb = said[0].decode(errors="replace").lower()
    second = said[1] if len(said) > 1 else b""
    if verb == "evalsha":
        return _script_name(second)
    if verb == "fcall":
        return second.decode(errors="replace").removeprefix(library_name() + "_")
    if verb in _LOOSE:
        return f"{verb} {second.decode(errors='replace').lower()}"
    return verb


def is_pushed(frame: bytes) -> bool:
    """Whether this frame is a published message."""
    said = words(frame, 1)
    return bool(said) and said[0] in (b"message", b"smessage", b"pmessage")


def is_subscription(name: str) -> bool:
    """Whether a command of this name makes its connection a subscriber, whose frames are no answers."""
    return name in ("subscribe", "psubscribe", "ssubscribe")
