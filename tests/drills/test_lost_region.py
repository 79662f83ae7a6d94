"""A region is lost for good while services work, as processes and as containers. The losses in the report are counted
again without any code that made the report. Actors publish their names and numbers in clear, so that a regular
expression finds every copy in the stored bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_cli import geoemu
from tests.runtimes.containers import ROOT, need_containers, remove

pytestmark = [pytest.mark.real, pytest.mark.long]

LOST, LEFT = "us-east", ("us-west", "eu-central")
PRODUCER = "orders-us-east"
_MESSAGE = re.compile(rb'"origin_region":"us-east","producer":"orders-us-east","sequence_id":(\d+)')


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for run in (tmp_path / ".geoemu").glob("runs/*"):
        asyncio.run(remove(run))


def test_what_a_lost_region_cost_is_as_the_disks_say(folder: Path) -> None:
    assert_figures_are_those_of_the_disks(run_scenario(folder, ROOT / "topology.yaml"), in_sqlite)


def test_what_a_lost_container_cost_is_as_the_disks_of_the_kafkas_say(folder: Path) -> None:
    need_containers("region", "kafka")
    assert_figures_are_those_of_the_disks(run_scenario(folder, ROOT / "compose" / "topology.yaml"), in_kafka)


def run_scenario(folder: Path, topology: Path) -> Path:
    """Run the shipped scenario, which must be valid: the cost of a loss is no defect."""
    done = geoemu("run", "region-lost", "-f", str(topology), "--engine", "embedded", folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / ".geoemu" / "runs" / "1"


def assert_figures_are_those_of_the_disks(run: Path, stored_in: Callable[[Path, str], set[int]]) -> None:
    acknowledged_ms = {line["sequence_id"]: line["at_ms"] for line in acknowledged(run)}
    (lost,) = (line for line in lines(run, "scenario") if line["op"] == "lose")
    at = {region: stored_in(run, region) for region in (LOST, *LEFT)}
    left = set.union(*(at[region] for region in LEFT))
    gone = set(acknowledged_ms) - left
    assert gone, "without losses the figures prove nothing"

    figures = json.loads((run / "report" / "report.json").read_text())["figures"]["loss"]
    assert figures["unrecovered"] == len(gone)
    assert figures["kept_in_lost_logs"] == len(at[LOST] - left)
    lacking = {region: len(left - at[region]) for region in LEFT}
    assert figures["lacking"] == {region: n for region, n in lacking.items() if n}
    oldest_ms = min(acknowledged_ms[number] for number in gone)
    assert figures["recovery_point_seconds"] == round((lost["at_ms"] - oldest_ms) / 1000, 3)
    (of_producer,) = figures["by_producer"]
    assert of_producer["producer"] == PRODUCER
    assert of_producer["first_sequence_id"] == min(gone | at[LOST] - left)
    assert of_producer["last_sequence_id"] == max(gone | at[LOST] - left)


def acknowledged(run: Path) -> Iterator[dict[str, Any]]:
    for line in lines(run, PRODUCER):
        if (line["op"], line["outcome"], line["region"]) == ("publish", "ok", LOST):
            yield line


def lines(run: Path, name: str) -> list[dict[str, Any]]:
    read = map(json.loads, (run / "history" / f"{name}.jsonl").read_text().splitlines())
    return [{"region": None, **line} for line in read]


def in_sqlite(run: Path, region: str) -> set[int]:
    with contextlib.closing(sqlite3.connect(run / "regions" / region / "log.sqlite")) as database:
        groups = database.execute("SELECT data FROM entry_groups").fetchall()
    return {int(number) for (data,) in groups for number in _MESSAGE.findall(data)}


def in_kafka(run: Path, region: str) -> set[int]:
    segments = (run / "kafka" / region).glob("*orders-0/*.log")
    return {int(number) for segment in segments for number in _MESSAGE.findall(segment.read_bytes())}
