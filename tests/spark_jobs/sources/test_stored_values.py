"""Positions as numbers of 64 bits."""

from __future__ import annotations

from emulator.storage.contract import ledger_id_base
from spark_jobs.sources.stored_values import LEDGER, place_number

NAMES = [f"region-{number}" for number in range(2_000)] + ["af"]


def test_positions_of_every_region_and_many_topics_fit() -> None:
    """The ledger ids of a region depend on its name; those of `af` are above nine millions."""
    highest = max(map(ledger_id_base, NAMES))
    assert highest > 9_000_000
    assert place_number(highest + 1_000_000, LEDGER - 1) < 2**63
