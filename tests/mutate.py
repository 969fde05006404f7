"""Takes out one safeguard after the other, and shows that a named test fails without it.

    python -m tests.mutate                      all of them
    python -m tests.mutate "no fence" …         some

Each test is run twice: as the code is, where it has to pass, and with `--without` the safeguard, where it has
to fail. Exits with 1 when a safeguard could be taken out unnoticed. Needs the `test` extra.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.fault.mutations import safeguards

ROOT: Final = Path(__file__).resolve().parent.parent

_CLAIM: Final = "tests/integration/scripts/test_claim.py"

NOTICED_BY: Final[Mapping[str, str]] = {
    "no fence": "tests/integration/test_worker_leases.py::test_b53_a_late_finish_is_refused_and_told",
    "same fence": f"{_CLAIM}::test_one_fence_a_call_that_grows_and_never_runs_behind_the_clock",
    "no recovery": f"{_CLAIM}::test_an_expired_lease_passes_to_another_worker",
    "no fallback claim": "tests/fault/test_rows_wakeup.py::"
    "test_b96_a_job_whose_notice_is_lost_runs_within_the_longest_sleep",
    "no repeat record": "tests/fault/test_reply_loss.py::test_a_lost_reply_changes_neither_answer_nor_effect",
    "no subscribing again": "tests/fault/test_rows_wakeup.py::"
    "test_b90_a_dead_subscription_is_noticed_and_replaced",
    "no due time": f"{_CLAIM}::test_nothing_is_given_before_its_due_time",
    "claim in two steps": f"{_CLAIM}::test_jobs_come_by_due_time_then_bytewise_by_id_and_no_more_than_asked",
    "claim without leaving the schedule": f"{_CLAIM}::test_a_due_job_is_given_whole_and_moves_to_processing",
    "pop, then push": "tests/integration/scripts/test_settle.py::test_a_whole_batch_of_each_kind_in_one_turn",
    "payload left behind": "tests/integration/scripts/test_check.py::test_a_sound_shard_has_nothing_to_find",
}
"""The test that tells of each safeguard; others may tell as well."""


def fails(test: str, *options: str) -> bool:
    """Runs the test. Exits with what pytest said when that is neither a pass nor a failure."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--server", "valkey", *options, test]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if ended.returncode not in (0, 1):
        sys.exit(f"{ended.stdout}\n{ended.stderr}\npytest could not run {test}")
    return ended.returncode == 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="SAFEGUARD", help=", ".join(NOTICED_BY))
    asked = parser.parse_args()
    unknown = set(asked.names) - set(NOTICED_BY)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are: {', '.join(NOTICED_BY)}")
    survived = 0
    for name in asked.names or NOTICED_BY:
        test = NOTICED_BY[name]
        anyway, without = fails(test), fails(test, "--without", name)
        told = "FAILS EVEN WITH IT:" if anyway else "noticed by" if without else "NOT NOTICED by"
        survived += anyway or not without
        print(f"{name:36} {told} {test.partition('::')[2]}", flush=True)
    print("every safeguard is needed" if not survived else f"{survived} went unnoticed")
    untried = sorted(set(safeguards()) - set(NOTICED_BY))
    if untried:
        print(f"without a test: {', '.join(untried)}")
    return 1 if survived or untried else 0


if __name__ == "__main__":
    sys.exit(main())
