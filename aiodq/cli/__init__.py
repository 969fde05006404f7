"""The command line `aiodq` (extra: `aiodq[cli]`): one small file per command.

`main()` is the console script. This file imports nothing of the extra, so that a plain installation answers
with what is missing instead of a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command (default: of this process's arguments). Ends by `SystemExit`, with a code of `exits`."""
    try:
        from aiodq.cli.app import run
    except ModuleNotFoundError as missing:
        name = (missing.name or "").partition(".")[0]
        if name not in {"typer", "rich"}:
            raise
        print(
            f"aiodq: the command line needs {name}, which is not installed.\n"
            "       Install it with the extra: pip install 'aiodq[cli]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    run(arguments)
