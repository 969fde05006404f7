"""Memory alone, under a virtual clock: the promises hold after each of thousands of random moves."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.property.machine import QueueMachine

# Without the phase that explains failures: it runs a shrunk example many times over, under a tracer.
PHASES = (
    hypothesis.Phase.explicit,
    hypothesis.Phase.reuse,
    hypothesis.Phase.generate,
    hypothesis.Phase.shrink,
)
SETTINGS = hypothesis.settings(max_examples=150, stateful_step_count=60, phases=PHASES)


class OddMachine(QueueMachine):
    """With claims of unsteady workers, false clocks and small byte budgets."""

    odd = True


@pytest.mark.parametrize("machine", [QueueMachine, OddMachine])
def test_promises_hold_after_each_step(machine: type[QueueMachine]) -> None:
    run_state_machine_as_test(machine, settings=SETTINGS)
