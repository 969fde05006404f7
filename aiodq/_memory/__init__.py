"""The store in memory: the same transitions as the Lua scripts, in plain Python."""

from __future__ import annotations

from aiodq._memory.backend import MemoryBackend

__all__ = ["MemoryBackend"]
