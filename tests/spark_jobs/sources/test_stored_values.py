"""Positions as numbers of 64 bits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emulator.model.stored_keys import CursorKey
from emulator.storage.contract import ledger_id_base
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.evidence.positions import LEDGER, place_number
from spark_jobs.sources.stored_values import read_position_claims

TOPIC = "persistent://public/default/t"

NAMES = [f"region-{number}" for number in range(2_000)] + ["af"]


def test_positions_of_every_region_and_many_topics_fit() -> None:
    """The ledger ids of a region depend on its name; those of `af` are above nine millions."""
    highest = max(map(ledger_id_base, NAMES))
    assert highest > 9_000_000
    assert place_number(highest + 1_000_000, LEDGER - 1) < 2**63


def marker(**content: object) -> dict[str, Any]:
    """Return the row of a marker of a."""
    row = {"region": "a", "topic": TOPIC, "origin_region": "a", "ledger_id": 1, "entry_id": 5}
    source = {"source_ledger": None, "source_entry": None, "publish_time_ms": 7}
    return row | source | {"marker": json.dumps(content)}


@pytest.mark.parametrize("place", [(2**62, 1), (2**64 - 1, 0), (1, 2**36), (1, -2), (-1, 0)])
@pytest.mark.parametrize("where", ["positions", "local"])
def test_a_marker_with_a_position_that_no_log_can_have_is_a_damage(
    engine: QueryEngine, place: tuple[int, int], where: str
) -> None:
    positions = [("b", place if where == "positions" else (1, 1))]
    row = marker(snapshot="s", local=place if where == "local" else (1, 1), positions=positions)
    claims, damages = read_position_claims([row], [], {}, [])
    assert claims.snapshots.collect() == []
    assert [(damage.region, "which no log can have" in damage.sentence) for damage in damages] == [
        ("a", True)
    ]


@pytest.mark.parametrize(
    "head",
    [
        {"format": 2, "generation": 0, "mark_delete": 2**70},
        {"format": 2, "generation": 0, "mark_delete": -5},
        {"format": 1, "mark_delete": 0, "ranges": [[3, 2**70]]},
        {"format": 2, "generation": [], "mark_delete": 1},
        {"format": 2, "generation": 0, "mark_delete": None},
    ],
)
def test_a_cursor_with_an_impossible_position_is_a_damage(engine: QueryEngine, head: dict[str, Any]) -> None:
    value = ("a", (CursorKey(TOPIC, "s").text, json.dumps(head).encode()))
    claims, damages = read_position_claims([], [value], {("a", TOPIC): (1, 9)}, [])
    assert claims.positions.collect() == []
    assert [damage.sentence[:31] for damage in damages] == ["the cursor of s in a cannot be "]
