"""Replication lag from the order of logs: bounds, and what a limit makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from emulator.model.markers import SnapshotRequest
from emulator.run.limits import parse_limits
from emulator.wire.entry import with_replication
from emulator.wire.markers import encode_marker
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.evaluation import Evaluation
from spark_jobs.figures.limits import check_limits
from spark_jobs.figures.replication_lag import BLOCK_ENTRIES
from spark_jobs.verify import evaluate_run
from tests.spark_jobs.sample_run import TOPIC, SampleRun, place

EAST, WEST = "us-east", "us-west"
LINK = f"{EAST} > {WEST}"


def two_regions() -> SampleRun:
    return SampleRun({"americas": (EAST, WEST)})


def measured(
    engine: QueryEngine, run: SampleRun, folder: Path, limit: str = "replication_lag<=1s"
) -> Evaluation:
    return evaluate_run(engine, run.write(folder / "run"), limits=parse_limits(limit))


def lag_of(evaluation: Evaluation, link: str = LINK) -> dict[str, Any]:
    (found,) = (one for one in evaluation.figures["replication_lag"] if one["link"] == link)
    return dict(found)


def bounds(least: float, most: float | None) -> dict[str, float | None]:
    return {"at_least": least, "at_most": most}


def test_messages_that_the_other_region_publishes_before_and_after_bound_the_lag(
    engine: QueryEngine, tmp_path: Path
) -> None:
    """us-east publishes at 1 s and has the receipt at 1.002 s. In us-west the entry is between a message that was
    requested at 1.1 s and one that was acknowledged at 1.302 s."""
    run = two_regions()
    run.publish(EAST, 0, 1.0, to=[])
    run.publish(WEST, 0, 1.1, to=[])
    run.logs[WEST].append(with_replication(run.logs[EAST][0], EAST, place(EAST, 0)))
    run.publish(WEST, 1, 1.3, to=[])
    for entry in (0, 2):
        run.logs[EAST].append(with_replication(run.logs[WEST][entry], WEST, place(WEST, entry)))
    run.fact(9.0, "phase", detail="the run ends")
    lag = lag_of(measured(engine, run, tmp_path))
    assert (lag["topic"], lag["entries"], lag["missing"]) == (TOPIC, 1, 0)
    assert lag["max"] == lag["p99"] == lag["p50"] == bounds(0.098, 0.3)


def test_a_delivery_bounds_the_lag_of_all_entries_before_it(engine: QueryEngine, tmp_path: Path) -> None:
    run = two_regions()
    run.subscribe(WEST, 0.1)
    for number in range(3):
        run.publish(EAST, number, 1.0 + number / 10)
    run.receive(WEST, EAST, 2, 1.25, entry=2)
    run.fact(9.0, "phase", detail="the run ends")
    assert lag_of(measured(engine, run, tmp_path))["max"] == bounds(0.0, 0.248)


def test_without_traffic_the_end_of_the_run_is_the_bound(engine: QueryEngine, tmp_path: Path) -> None:
    run = two_regions()
    run.publish(EAST, 0, 1.0)
    run.fact(9.0, "phase", detail="the run ends")
    evaluation = measured(engine, run, tmp_path)
    assert lag_of(evaluation)["max"] == bounds(0.0, 7.998)
    (result,) = evaluation.limits
    assert (result.outcome, result.sentence) == (
        "unknown",
        f"replication_lag was at most 7.998 s ({LINK}, {TOPIC}); the traffic in us-west bounds it no closer",
    )


def test_the_bounds_cross_the_blocks_in_which_a_log_is_ordered(engine: QueryEngine, tmp_path: Path) -> None:
    """The message that bounds the first entry is in a later block; so is the entry that the first message bounds."""
    run = two_regions()
    run.publish(WEST, 0, 2.0, to=[])
    for number in range(BLOCK_ENTRIES + 10):
        run.publish(EAST, number, 1.0)
    run.publish(WEST, 1, 3.0, to=[])
    run.logs[EAST] += [
        with_replication(run.logs[WEST][entry], WEST, place(WEST, entry)) for entry in (0, BLOCK_ENTRIES + 11)
    ]
    run.fact(9.0, "phase", detail="the run ends")
    lag = lag_of(measured(engine, run, tmp_path))
    assert (lag["entries"], lag["max"], lag["p50"]) == (
        BLOCK_ENTRIES + 10,
        bounds(0.998, 2.0),
        bounds(0.998, 2.0),
    )


def test_a_message_that_never_arrived_is_late_until_the_end(engine: QueryEngine, tmp_path: Path) -> None:
    run = two_regions()
    run.publish(EAST, 0, 1.0, to=[])
    run.fact(9.0, "phase", detail="the run ends")
    evaluation = measured(engine, run, tmp_path, "replication_lag<=5s")
    assert lag_of(evaluation)["max"] == bounds(7.998, None)
    (result,) = evaluation.limits
    assert result.outcome == "missed"
    assert result.sentence.startswith("replication_lag was at least 7.998 s: a message never arrived")


@pytest.mark.parametrize("skewed", [False, True])
def test_markers_of_a_region_bound_the_lag_unless_its_clock_was_changed(
    engine: QueryEngine, tmp_path: Path, skewed: bool
) -> None:
    run = two_regions()
    run.publish(EAST, 0, 1.0)
    request = encode_marker(SnapshotRequest("s", WEST, False), int(run.time_ms(1.5)), ())[0]
    run.store(WEST, request)
    if skewed:
        run.fact(0.5, "skew", region=WEST, detail="3 s ahead")
    run.fact(9.0, "phase", detail="the run ends")
    assert lag_of(measured(engine, run, tmp_path))["max"] == bounds(0.0, 7.998 if skewed else 0.498)


@pytest.mark.parametrize("publish_time_s", [-3_600.0, 3_600.0])
def test_the_clock_of_a_producer_is_not_used(
    engine: QueryEngine, tmp_path: Path, publish_time_s: float
) -> None:
    run = two_regions()
    run.publish(EAST, 0, 1.0 + publish_time_s)  # the entry has this publish time
    for event in list(run.events):
        if event[0].startswith("orders"):
            actor, at_ms, op, outcome, fields = event
            run.events[run.events.index(event)] = (actor, at_ms - publish_time_s * 1000, op, outcome, fields)
    run.subscribe(WEST, 0.1)
    run.receive(WEST, EAST, 0, 1.1, entry=0)
    run.fact(9.0, "phase", detail="the run ends")
    assert lag_of(measured(engine, run, tmp_path))["max"] == bounds(0.0, 0.098)


def test_links_of_a_lost_region_are_left_out(engine: QueryEngine, tmp_path: Path) -> None:
    run = two_regions()
    run.publish(EAST, 0, 1.0, to=[])
    run.fact(2.0, "lose", region=EAST)
    evaluation = measured(engine, run, tmp_path)
    assert "replication_lag" not in evaluation.figures
    assert evaluation.limits[0].outcome == "unknown"


def test_without_such_a_limit_nothing_is_computed(engine: QueryEngine, tmp_path: Path) -> None:
    run = two_regions()
    run.publish(EAST, 0, 1.0)
    assert "replication_lag" not in measured(engine, run, tmp_path, "gap<=1s").figures


def figures(*maxima: tuple[float, float | None]) -> dict[str, Any]:
    return {
        "replication_lag": [
            {
                "link": f"a > {number}",
                "region": str(number),
                "topic": "t",
                "max": bounds(*one),
                "p99": bounds(0, 0.1),
            }
            for number, one in enumerate(maxima)
        ]
    }


@pytest.mark.parametrize(
    ("limit", "maxima", "outcome", "said"),
    [
        ("replication_lag<=500ms", [(0.1, 0.5), (0, 0.2)], "kept", "between 0.100 s and 0.500 s (a > 0, t)"),
        ("replication_lag<500ms", [(0.1, 0.5)], "unknown", "the traffic in 0 bounds it no closer"),
        ("replication_lag<=500ms", [(0.6, 0.7), (0, 9)], "missed", "between 0.600 s and 0.700 s (a > 0, t)"),
        ("replication_lag<=500ms", [(0, 0.4), (0, None)], "unknown", "a message never arrived (a > 1, t)"),
        ("replication_lag[a > 0]<=500ms", [(0, 0.4), (9, None)], "kept", "at most 0.400 s (a > 0, t)"),
        ("replication_lag[b > a]<=500ms", [(0, 0.4)], "unknown", "figures exist for: a > 0"),
        ("replication_lag.p99<=500ms", [(9, None)], "kept", "at most 0.100 s"),
        (
            "replication_lag<=500ms",
            [],
            "unknown",
            "the logs and the history have no data for replication_lag",
        ),
    ],
)
def test_a_limit_is_missed_only_if_no_value_within_the_bounds_keeps_it(
    limit: str, maxima: Sequence[tuple[float, float | None]], outcome: str, said: str
) -> None:
    (result,) = check_limits(parse_limits(limit), figures(*maxima))
    assert result.outcome == outcome, result.sentence
    assert said in result.sentence
