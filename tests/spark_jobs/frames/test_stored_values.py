"""Positions as numbers of 64 bits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from emulator.model.markers import Snapshot, SubscriptionUpdate
from emulator.model.stored_keys import CursorKey
from emulator.model.values import Position
from emulator.storage.contract import ledger_id_base
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.frames import DataFrame, F, read, schema, small_frame
from spark_jobs.evidence.positions import LEDGER, place_number
from spark_jobs.frames.messages import topic_in_history
from spark_jobs.frames.stored_values import newest_entries, read_cursors, read_position_claims
from spark_jobs.frames.summary import summarise_logs, summarise_table
from spark_jobs.sources.marker_claims import claim_of
from spark_jobs.sources.region_log import read_region_logs
from spark_jobs.sources.region_values import region_values
from spark_jobs.sources.run_folder import open_run_folder

from ..sample_run import TOPIC, SampleRun, place, put_value

NAMES = [f"region-{number}" for number in range(2_000)] + ["af"]


def test_positions_of_every_region_and_many_topics_fit() -> None:
    """The ledger ids of a region depend on its name; those of `af` are above nine millions."""
    highest = max(map(ledger_id_base, NAMES))
    assert highest > 9_000_000
    assert place_number(highest + 1_000_000, LEDGER - 1) < 2**63


EAST, WEST = "us-east", "us-west"


@pytest.mark.parametrize("wrong", [(2**62, 1), (2**64 - 1, 0), (1, 2**36), (1, -2), (-1, 0)])
@pytest.mark.parametrize("where", ["positions", "local"])
def test_a_marker_with_a_position_that_no_log_can_have_is_unreadable(
    wrong: tuple[int, int], where: str
) -> None:
    positions = [("b", wrong if where == "positions" else (1, 1))]
    claim = claim_of(
        {"snapshot": "s", "local": wrong if where == "local" else (1, 1), "positions": positions}
    )
    assert claim["problem"] == f"it has the position {wrong[0]}:{wrong[1]}, which no log can have"
    assert claim["positions"] is None


def test_positions_of_markers_are_those_of_their_own_region(engine: QueryEngine, tmp_path: Path) -> None:
    """One snapshot and two updates, of which us-west stores one; and a snapshot with an impossible position."""
    run = SampleRun()
    run.mark(
        EAST, Snapshot("s", place(EAST, 3), ((WEST, place(WEST, 4)), ("eu-central", Position(7, -1)))), 1
    )
    run.mark(EAST, SubscriptionUpdate("billing", ((WEST, place(WEST, 4)),)), 2, to=[WEST])
    run.mark(EAST, SubscriptionUpdate("billing", ((WEST, place(WEST, 5)),)), 3)
    run.mark(EAST, Snapshot("t", place(EAST, 3), ((WEST, Position(2**62, 4)),)), 4)
    rows = read_region_logs(open_run_folder(run.write(tmp_path / "run")))
    claims = read_position_claims(rows.where(F.col("claim").isNotNull()), topic_in_history([TOPIC], []))
    local = place_number(*place(EAST, 3))
    first = place(EAST, 0).ledger
    assert sorted(map(tuple, claims.snapshots.collect())) == [
        (TOPIC, EAST, f"{first}:0", local, "eu-central", place_number(7, -1), run.time_ms(1)),
        (TOPIC, EAST, f"{first}:0", local, WEST, place_number(*place(WEST, 4)), run.time_ms(1)),
    ]
    assert sorted(tuple(one) for one in claims.updates.collect()) == [
        (TOPIC, "billing", EAST, f"{first}:1", WEST, place_number(*place(WEST, 4)), run.time_ms(2), True),
        (TOPIC, "billing", EAST, f"{first}:2", WEST, place_number(*place(WEST, 5)), run.time_ms(3), False),
    ]
    summary = summarise_logs(rows)[EAST]
    assert summary.claims == 4
    assert summary.marker_damages == (
        f"the marker at {TOPIC} {first}:3 in {EAST}: it has the position {2**62}:4, which no log can have",
    )


CURSOR = {"format": 2, "generation": 0, "mark_delete": 1}


def stored_cursor(tmp_path: Path, head: Mapping[str, Any], topic: str = TOPIC) -> DataFrame:
    """Return the values of us-east, which stores one entry and the cursor of s."""
    run = SampleRun()
    run.publish("us-east", 0, 1)
    path = run.write(tmp_path / "run")
    put_value(path, "us-east", CursorKey(topic, "s").text, json.dumps(head).encode())
    return read(region_values(open_run_folder(path), frozenset({TOPIC})))


@pytest.mark.parametrize(
    "head",
    [
        CURSOR | {"mark_delete": 2**70},
        CURSOR | {"mark_delete": 2**36},
        CURSOR | {"mark_delete": -5},
        {"format": 1, "mark_delete": 0, "ranges": [[3, 2**70]]},
        CURSOR | {"generation": []},
        CURSOR | {"mark_delete": None},
    ],
)
def test_a_cursor_with_an_impossible_position_is_a_damage(
    engine: QueryEngine, tmp_path: Path, head: dict[str, Any]
) -> None:
    values = stored_cursor(tmp_path, head)
    assert values.where(F.col("damage").isNull()).collect() == []
    assert [(one.region, one.sentence[:37]) for one in summarise_table(values, "epoch")[0]] == [
        ("us-east", "the cursor of s in us-east cannot be ")
    ]


@pytest.mark.parametrize(
    ("higher", "end"), [({}, 4), ({("us-east", TOPIC): 9}, 9), ({("us-east", TOPIC): 2}, 4)]
)
def test_cursors_have_positions_in_the_log_of_their_topic(
    engine: QueryEngine, tmp_path: Path, higher: dict[tuple[str, str], int], end: int
) -> None:
    """A partition has the name of its topic in the history. A topic without entries has no positions."""
    partition = f"{TOPIC}-partition-3"
    values = stored_cursor(tmp_path, {"format": 1, "mark_delete": 1, "ranges": [[3, 3]]}, partition)
    rows = small_frame([("us-east", None, partition, 7, 4), ("us-east", "damaged", None, None, None)], _ROWS)
    ends = {(region, partition): entry for (region, _), entry in higher.items()}
    ranges, positions = read_cursors(values, newest_entries(rows, ends))
    cursor = (TOPIC, "s", "us-east")
    assert sorted(map(tuple, ranges.collect())) == [
        (*cursor, place_number(7, 0), place_number(7, 1), place_number(7, end)),
        (*cursor, place_number(7, 3), place_number(7, 3), place_number(7, end)),
    ]
    assert [tuple(one) for one in positions.collect()] == [(*cursor, place_number(7, 1), *[False] * 4)]
    without = newest_entries(rows.where(F.col("damage").isNotNull()), {})
    assert [frame.collect() for frame in read_cursors(values, without)] == [[], []]


_ROWS = schema("region string, damage string, topic string, ledger_id bigint, entry_id bigint")
