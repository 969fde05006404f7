"""How long the roles of a worker wait between tries when the server does not answer."""

from __future__ import annotations

import random
from typing import Final

BACKOFF_FIRST_S: Final = 0.05
BACKOFF_CAP_S: Final = 1.0
"""Below the three seconds after which others may take expired leases: after an outage the holders come
first.
"""


def backoff_s(failures: int) -> float:
    """A wait in seconds: `BACKOFF_FIRST_S` doubled that many times, capped, less up to a half at random."""
    return min(BACKOFF_CAP_S, BACKOFF_FIRST_S * 2.0 ** min(failures, 8)) * (0.5 + random.random() / 2)
