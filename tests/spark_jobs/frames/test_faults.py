"""An unavailable configuration store is a fault on the timeline."""

from __future__ import annotations

import json
from pathlib import Path

from spark_jobs.figures.timeline import make_timeline
from spark_jobs.frames.faults import Interval, store_outages
from spark_jobs.report.causes import causes
from spark_jobs.report.timeline_drawing import draw_timeline
from spark_jobs.sources.policies import read_namespaces
from spark_jobs.verdict import CheckResult

CLUSTERS = {"us-east": "americas", "us-west": "americas", "eu-central": "europe"}


def noticed(run: Path, region: str, *lines: tuple[float, str | None]) -> None:
    """Write the times of outages of the store with their reasons; None: the store responded again."""
    folder = run / "regions" / region
    folder.mkdir(parents=True)
    text = "".join(json.dumps({"at_ms": at_ms, "region": region, "away": why}) + "\n" for at_ms, why in lines)
    (folder / "metadata.jsonl").write_text(text)


def absences(run: Path) -> tuple[Interval, ...]:
    return store_outages(run, CLUSTERS, 1000.0, 9.0)


def test_outages_that_regions_of_one_cluster_notice_at_once_are_one(tmp_path: Path) -> None:
    noticed(tmp_path, "us-east", (3000.0, "gone"), (5000.0, None), (8000.0, "gone"))
    noticed(tmp_path, "us-west", (3100.0, "gone"), (5200.0, None))
    noticed(tmp_path, "eu-central")
    assert absences(tmp_path) == (
        Interval(2.0, 4.2, "away", "americas"),
        Interval(7.0, 9.0, "away", "americas", ended=False),
    )
    assert read_namespaces(tmp_path, {}) == ({}, [])


def test_an_outage_ends_when_a_restarted_region_receives_changes(tmp_path: Path) -> None:
    noticed(tmp_path, "us-east", (3000.0, "gone"))
    with (tmp_path / "regions" / "us-east" / "metadata.jsonl").open("a") as file:
        file.write(json.dumps({"at_ms": 6000.0, "revision": 1, "path": "/x", "value": None}) + "\n")
    assert absences(tmp_path) == (Interval(2.0, 5.0, "away", "americas"),)


def test_an_outage_is_drawn_and_is_a_hint_for_checks_of_its_clusters_regions(tmp_path: Path) -> None:
    noticed(tmp_path, "us-west", (3000.0, "gone"), (5000.0, None))
    regions = tuple(CLUSTERS)
    timeline = make_timeline(regions, CLUSTERS, 1000.0, 10_000.0, [], [], [], stores=absences(tmp_path))
    svg = draw_timeline(timeline, 1000)
    assert "store of americas" in svg
    beside = CheckResult("c", "c", "INV-2", "invalid", "", ({"region": "us-east", "at_ms": 4000.0},))
    assert causes(beside, timeline) == [
        "The configuration store of americas was unavailable at 2.000 s, for 2.000 s."
    ]
    elsewhere = CheckResult("c", "c", "INV-2", "invalid", "", ({"region": "eu-central", "at_ms": 4000.0},))
    (nothing,) = causes(elsewhere, timeline)
    assert nothing.startswith("No fault of eu-central")
