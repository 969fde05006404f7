"""Due times as they travel to the server: an instant, or a delay that the server adds to its own clock."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

MAX_DUE_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: exact in a double, and the last instant that `datetime` can show."""

MAX_DELAY_MS: Final = 1000 * 365 * 86_400_000
"""A thousand years. Longer delays are refused as mistakes; the sum with any clock stays below
`MAX_DUE_MS`."""


class Due(Struct, frozen=True, gc=False):
    """A due time. `relative`: `ms` counts from the moment the server takes the call in; else it is Unix ms.

    An instant in the past means now: the server raises it to its own time.
    """

    ms: int
    relative: bool = True


NOW: Final = Due(0)
