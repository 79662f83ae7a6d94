"""INV-12: snapshots and updates against logs and acknowledgements; what they say of the regions that they name."""

from __future__ import annotations

import pytest

from emulator.run.history_events import HistoryEvent
from spark_jobs.checks import snapshots_safe
from spark_jobs.checks.check import Circumstances
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.frames import use_engine
from spark_jobs.evidence.positions import place_number
from spark_jobs.sources.policies import Namespace
from tests.spark_jobs.literal import (
    TOPIC,
    Row,
    acknowledged,
    published,
    received,
    result_of,
    stored,
    subscribed,
)

THREE = Circumstances({"public/default": Namespace(("a", "b", "c"), deduplication=True)})
LATE = 7
"""Position in a of a message of c that b stored at position 0."""


def snapshot_of_a(*others: str) -> list[Row]:
    """Rows of a snapshot of a at position 5 that names position 5 in each of `others`."""
    return [(TOPIC, "a", "1:6:-1", place_number(1, 5), other, place_number(1, 5), 1.0) for other in others]


@pytest.mark.parametrize(("named", "verdict"), [(("b",), "valid"), (("b", "c"), "invalid")])
def test_a_snapshot_is_judged_by_messages_of_the_regions_that_it_names(
    engine: QueryEngine, named: tuple[str, ...], verdict: str
) -> None:
    """A partial snapshot says nothing of messages of the absent region c, of which b has more than a."""
    rows = [stored("b", 0, 1, "c"), stored("a", LATE, 1, "c"), stored("a", 0, 2), stored("b", 1, 2)]
    with use_engine(engine):
        result = result_of(
            snapshots_safe.CHECK, rows, [published(2)], circumstances=THREE, snapshots=snapshot_of_a(*named)
        )
    assert result.verdict == verdict, result.sentence


ACKNOWLEDGED = [received(0, "a"), acknowledged("a", 0), received(1, "a"), acknowledged("a", 1)]
BOTH = [stored(region, number, number) for region in "ab" for number in (0, 1)]
"""Messages 0 and 1 of a, in both regions."""


def snapshot(local: int, upto: int, region: str = "a", other: str = "b") -> Row:
    return (TOPIC, region, "1:6:-1", place_number(1, local), other, place_number(1, upto), 1.0)


def update(upto: int, source: str = "a", to: str = "b") -> Row:
    return (TOPIC, "s", source, "1:7:-1", to, place_number(1, upto), 2.0, True)


@pytest.mark.parametrize(
    ("snapshots", "updates", "events", "kind"),
    [
        pytest.param([snapshot(1, 1)], [update(1)], ACKNOWLEDGED, None, id="all is well"),
        pytest.param([], [update(1)], ACKNOWLEDGED, "without snapshot", id="no snapshot"),
        pytest.param([snapshot(1, 0)], [update(1)], ACKNOWLEDGED, "without snapshot", id="another position"),
        pytest.param(
            [snapshot(1, 1, "b", "a")], [update(1)], ACKNOWLEDGED, "without snapshot", id="of another region"
        ),
        pytest.param(
            [snapshot(1, 0)], [update(0)], ACKNOWLEDGED[:2], "early update", id="before it acknowledged all"
        ),
        pytest.param([snapshot(1, 1)], [update(1)], ACKNOWLEDGED[:2], "broken update", id="not acknowledged"),
    ],
)
def test_an_update_has_the_position_of_a_snapshot_that_its_subscription_passed(
    engine: QueryEngine,
    snapshots: list[Row],
    updates: list[Row],
    events: list[HistoryEvent],
    kind: str | None,
) -> None:
    lines = [subscribed("a", initial="earliest"), published(0), published(1), *events]
    with use_engine(engine):
        found = result_of(snapshots_safe.CHECK, BOTH, lines, snapshots=snapshots, updates=updates)
    assert found.verdict == ("valid" if kind is None else "invalid"), found.sentence
    assert kind in {None, *(one["kind"] for one in found.witness)}, found.witness


def test_an_early_update_counts_the_first_of_several_snapshots_with_its_position(engine: QueryEngine) -> None:
    """A quiet region responds to two requests with the same position."""
    lines = [subscribed("a", initial="earliest"), published(0), published(1), *ACKNOWLEDGED[:2]]
    snapshots = [snapshot(0, 0), snapshot(1, 0)]
    with use_engine(engine):
        found = result_of(snapshots_safe.CHECK, BOTH, lines, snapshots=snapshots, updates=[update(0)])
    assert found.verdict == "valid", found.sentence


@pytest.mark.parametrize(
    ("named", "origin", "trimmed", "damaged", "verdict"),
    [
        pytest.param("bc", "c", False, "", "invalid", id="never received"),
        pytest.param("b", "c", False, "", "valid", id="of a region that the snapshot does not name"),
        pytest.param("bc", "c", True, "", "valid", id="may have been trimmed"),
        pytest.param("bc", "c", False, "a", "unknown", id="the log is damaged"),
        pytest.param("bc", "a", False, "", "valid", id="of the region itself"),
    ],
)
def test_a_region_that_never_received_what_its_snapshot_covers(
    engine: QueryEngine, named: str, origin: str, trimmed: bool, damaged: str, verdict: str
) -> None:
    """The example of the proposal: b stores a message of c, and a does not have it."""
    known = Circumstances(THREE.namespaces, damaged_regions=frozenset(damaged))
    with use_engine(engine):
        found = result_of(
            snapshots_safe.CHECK,
            [stored("b", 0, 1, origin), stored("c", 0, 1, origin)],
            [published(1, region=origin)],
            circumstances=known,
            snapshots=[snapshot(0, 0, other=region) for region in named],
            trimmed=[("a", TOPIC, {1: 1})] if trimmed else [],
        )
    assert found.verdict == verdict, found.sentence
    if verdict == "invalid":
        assert {one["kind"] for one in found.witness} == {"unreceived"}
        assert found.witness[0]["other_position"] == "1:0"


def test_snapshots_are_in_a_log_that_retention_trimmed(engine: QueryEngine) -> None:
    lines = [subscribed("a", initial="earliest"), published(0), published(1), *ACKNOWLEDGED]
    with use_engine(engine):
        found = result_of(
            snapshots_safe.CHECK, BOTH, lines, updates=[update(1)], trimmed=[("a", TOPIC, {1: 1})]
        )
    assert found.verdict == "valid", found.sentence
