"""Verdicts on run directories, and the effect of one change to a copy of one."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.run.history import HistoryWriter
from emulator.storage.group import decode_group, encode_group
from emulator.wire.message_metadata import scan_entry
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.evaluation import Evaluation
from spark_jobs.verdict import CheckResult
from spark_jobs.verify import evaluate_run, warm_up

from .sample_run import SampleRun, failover_drill


@pytest.fixture
def drill(drill_template: Path, tmp_path: Path) -> Path:
    """Return a copy of the run directory that the test may change."""
    return Path(shutil.copytree(drill_template, tmp_path / "run"))


def check(evaluation: Evaluation, invariant: str) -> CheckResult:
    (found,) = [one for one in evaluation.checks if invariant in (one.invariant, one.name)]
    return found


def test_a_drill_that_went_well(engine: QueryEngine, drill: Path) -> None:
    evaluation = evaluate_run(engine, drill)
    # The sample has no snapshot and no cursor, no exclusive producer and no transaction.
    assert {one.name for one in evaluation.checks if one.verdict == "not applicable"} == {
        "snapshots-safe",
        "cursors-correct",
        "cursors-converge",
        "one-owner",
        "transactions-atomic",
        "uncommitted-invisible",
        "one-task-per-key",
        "key-epochs-grow",
        "processed-once",
        "plans-kept",
    }
    assert {one.verdict for one in evaluation.checks} == {"valid", "measured", "not applicable"}
    assert {one.invariant for one in evaluation.checks if one.verdict == "measured"} == {"info"}
    assert evaluation.verdict == "valid"
    assert [one.invariant for one in evaluation.checks if one.invariant != "info"] == [
        f"INV-{n}" for n in (*range(1, 7), 12, 13, 18, 128, 25, 58, 59, 70, 71, 72, 125)
    ]

    sample = failover_drill(seconds=4.0, per_second=50)
    stored = len(sample.logs["us-west"])
    figures = evaluation.figures
    assert figures["stored"] == dict.fromkeys(sample.regions, stored)
    assert figures["published"]["asked"] == stored
    assert figures["published"]["unknown"] == figures["published"]["unknown_stored"] == 1
    assert figures["received"]["again"] > 0
    assert figures["failover_gap_seconds"] == 0.84
    timeline = evaluation.timeline
    assert [lane.region for lane in timeline.lanes] == ["us-east", "us-west", "eu-central"]
    assert [(one.region, one.what, one.from_s, one.to_s) for one in timeline.down] == [
        ("us-east", "kill", 1.6, 2.6)
    ]
    assert [(one.region, one.other_region, one.from_s, one.to_s) for one in timeline.gaps] == [
        ("us-east", "us-west", 1.6, 2.44)
    ]
    assert (
        sum(timeline.lanes[0].counts["published"])
        == figures["published_by_region"]["us-east"]["acknowledged"]
    )
    json.dumps(evaluation.as_json())


def skip_entry(run: Path, region: str, entry_id: int) -> bytes:
    """Remove an entry as if `region` had never stored it; later entries move up. Return the entry."""
    with sqlite3.connect(run / "regions" / region / "log.sqlite") as database:
        rows = database.execute("SELECT rowid, log_id, first_entry_id, data FROM entry_groups").fetchall()
        for rowid, log_id, first, data in rows:
            entries = decode_group(data)
            if first <= entry_id < first + len(entries):
                gone = entries.pop(entry_id - first)
                database.execute("DELETE FROM entry_groups WHERE rowid = ?", (rowid,))
                if entries:
                    row = (rowid, log_id, first, len(entries), encode_group(entries))
                    database.execute(
                        "INSERT INTO entry_groups (rowid, log_id, first_entry_id, entry_count, data)"
                        " VALUES (?, ?, ?, ?, ?)",
                        row,
                    )
                return gone
    raise AssertionError(f"no entry {entry_id}")


@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_one_entry_skipped_is_the_witness(engine: QueryEngine, drill: Path, which: str) -> None:
    last = len(failover_drill(seconds=4.0, per_second=50).logs["us-west"]) - 1
    gone = scan_entry(skip_entry(drill, "us-west", {"first": 0, "middle": last // 2, "last": last}[which]))
    evaluation = evaluate_run(engine, drill)
    assert evaluation.verdict == "invalid"
    origin = (gone.replicated_from, gone.producer_name, gone.sequence_id)
    (witness,) = check(evaluation, "INV-2").witness
    assert (witness["origin_region"], witness["producer"], witness["sequence_id"]) == origin
    assert witness["region"] == "us-west"
    # Only one check has the witness; the other check refers to it.
    assert check(evaluation, "INV-6").verdict == "invalid"
    assert "see INV-1 and INV-2" in check(evaluation, "INV-6").sentence
    assert check(evaluation, "INV-1").verdict == "valid"


def test_an_acknowledged_entry_gone_from_its_own_region(engine: QueryEngine, drill: Path) -> None:
    gone = scan_entry(skip_entry(drill, "eu-central", 0))
    evaluation = evaluate_run(engine, drill)
    assert evaluation.verdict == "invalid"
    (witness,) = check(evaluation, "INV-1").witness
    assert (witness["producer"], witness["sequence_id"]) == (gone.producer_name, gone.sequence_id)


def delete(name: str) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


def truncate_log(run: Path) -> None:
    path = run / "regions/us-west/log.sqlite"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def garble_history(run: Path) -> None:
    path = run / "history/billing.jsonl"
    text = path.read_text()
    path.write_text(text[:500] + "\0" * 20 + text[500:])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (delete("regions/us-east"), "the folder regions/us-east is missing"),
        (delete("regions/us-east/log.sqlite"), "regions/us-east/log.sqlite is missing"),
        (delete("regions"), "us-east is missing"),
        (delete("topology.json"), "topology.json is missing"),
        (delete("run.json"), "run.json is missing"),
        (delete("history"), "no history"),
        (delete("history/billing.jsonl"), "history/billing.jsonl is missing"),
        (delete("history/orders-us-east.jsonl"), "history/orders-us-east.jsonl is missing"),
        (truncate_log, "regions/us-west/log.sqlite cannot be read"),
        (garble_history, "history/billing.jsonl:"),
    ],
)
def test_a_damaged_folder_is_unknown_with_the_reason(
    engine: QueryEngine, drill: Path, damage: Callable[[Path], None], reason: str
) -> None:
    damage(drill)
    evaluation = evaluate_run(engine, drill)
    assert evaluation.verdict == "unknown"
    assert reason in " ".join(one.sentence for one in evaluation.checks if one.verdict == "unknown")


def forget_region(run: Path, region: str, *places: str) -> None:
    """Delete a region's folder, and its entries in these parts of topology.json."""
    shutil.rmtree(run / "regions" / region)
    topology = json.loads((run / "topology.json").read_text())
    if "clusters" in places:
        for cluster in topology["clusters"]:
            cluster["regions"] = [one for one in cluster["regions"] if one["name"] != region]
        topology["clusters"] = [one for one in topology["clusters"] if one["regions"]]
    if "links" in places:
        topology["links"] = [one for one in topology["links"] if region not in (one["source"], one["target"])]
    if "namespaces" in places:
        for namespace in topology["namespaces"]:
            namespace["regions"] = [one for one in namespace["regions"] if one != region]
    (run / "topology.json").write_text(json.dumps(topology))


@pytest.mark.parametrize("region", ["us-east", "us-west", "eu-central"])
@pytest.mark.parametrize(
    "places", [(), ("clusters",), ("clusters", "links"), ("clusters", "links", "namespaces")]
)
def test_a_region_whose_folder_and_entry_are_gone_makes_it_unknown(
    engine: QueryEngine, drill: Path, region: str, places: tuple[str, ...]
) -> None:
    forget_region(drill, region, *places)
    evaluation = evaluate_run(engine, drill)
    assert {one.name: one.sentence for one in evaluation.checks if one.verdict == "invalid"} == {}
    assert evaluation.verdict == "unknown"
    assert region in check(evaluation, "evidence-complete").sentence


def test_an_empty_folder_is_unknown(engine: QueryEngine, tmp_path: Path) -> None:
    evaluation = evaluate_run(engine, tmp_path)
    assert evaluation.verdict == "unknown"
    assert {one.verdict for one in evaluation.checks if one.name != "evidence-complete"} == {"not applicable"}


def test_a_region_that_never_came_back_leaves_it_open(engine: QueryEngine, tmp_path: Path) -> None:
    run = SampleRun()
    run.subscribe("us-west", 0.1)
    for number in range(4):
        run.publish("us-east", number, 1 + number, to=None if number < 3 else ["us-east"])
    for number in range(3):
        run.receive("us-west", "us-east", number, 5, number)
    run.fact(6, "kill", region="us-east")
    evaluation = evaluate_run(engine, run.write(tmp_path / "run"))
    assert evaluation.verdict == "unknown"
    assert "us-east was down when the history ended" in check(evaluation, "INV-2").sentence
    run.fact(7, "start", region="us-east")
    assert evaluate_run(engine, run.write(tmp_path / "second")).verdict == "invalid"


def test_a_scenario_that_failed_is_no_pass(engine: QueryEngine, drill: Path) -> None:
    history = HistoryWriter(drill / "history/scenario.jsonl", "scenario", lambda: 1_763_712_009_000)
    history.write("step", "fact", detail="step 3 failed", error="drain: 3 messages never came")
    history.close()
    evaluation = evaluate_run(engine, drill)
    assert evaluation.verdict == "unknown"
    assert "3 messages never came" in check(evaluation, "evidence-complete").sentence


def test_the_warm_up_is_a_valid_run(engine: QueryEngine) -> None:
    assert warm_up(engine).verdict == "valid"
