"""The protocol's model keeps its invariants in every interleaving, and needs each of its safeguards."""

from __future__ import annotations

import pytest

from tests.model.explorer import SLICES
from tests.model.states import SAFEGUARDS, Safeguard

NEEDED: dict[Safeguard, tuple[str, str]] = {
    "fence": ("expiry", "an ack without the lease was accepted"),
    "record": ("lost reply", "an ack that counted was answered as refused"),
    "stale": ("lost reply and late copy", "an ack that counted was answered as refused"),
    "second seat": ("seats", "nobody will wake for the head of the queue"),
    "expired claims": ("replaced worker", "a job can never come to its end"),
    "growing fence": ("clock", "a fence did not grow"),
    "marks": ("failover", "a job was completed twice"),
}
"""Without it, which part of the state space shows which failure."""


@pytest.mark.parametrize("name", SLICES)
def test_every_interleaving_keeps_the_invariants(name: str) -> None:
    found = SLICES[name].explore()
    print(f"{name}: {found}")
    assert not found.failure, str(found)
    assert found.states > 1000


@pytest.mark.parametrize("safeguard", SAFEGUARDS)
def test_no_safeguard_is_there_for_nothing(safeguard: Safeguard) -> None:
    name, failure = NEEDED[safeguard]
    found = SLICES[name].explore(safeguard)
    assert found.failure == failure
    assert found.path
