"""A region that never came back: the cost of its loss is reported and is never a defect; all else is checked as
usual."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.run.limits import parse_limits
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.evaluation import Evaluation
from spark_jobs.report.ci_report import junit, markdown
from spark_jobs.report.report import render_page, summary
from spark_jobs.verdict import CheckResult
from spark_jobs.verify import evaluate_run
from tests.spark_jobs.sample_run import TOPIC, SampleRun

LOST_AT_S = 2.0


def lossy_run(only_at_home: int = 3, *, hole: bool = False, back: bool = False) -> SampleRun:
    """us-east acknowledges 10 messages and is lost at 2 s. No other region stores the last `only_at_home`, acknowledged
    from 1.5 s on; of the others only us-west stores the one before them."""
    run = SampleRun()
    run.subscribe("us-west", 0.1)
    for number in range(10):
        at_s = (
            0.2 + number * 0.1 if number < 10 - only_at_home else 1.5 + 0.1 * (number - (10 - only_at_home))
        )
        to: list[str] | None = None
        if number >= 10 - only_at_home:
            to = []
        elif number == 9 - only_at_home:
            to = ["us-west"]
        elif hole and number == 2:
            to = ["eu-central"]
        run.publish("us-east", number, at_s, to=to)
    for entry, number in enumerate(n for n in range(10 - only_at_home) if not (hole and n == 2)):
        run.receive("us-west", "us-east", number, 1.9, entry)
    run.fact(LOST_AT_S, "lose", region="us-east")
    if back:
        run.fact(LOST_AT_S + 1, "start", region="us-east")
    run.fact(LOST_AT_S + 2, "phase", detail="all that is left has arrived")
    return run


def judged(engine: QueryEngine, run: SampleRun, folder: Path, limits: str = "") -> Evaluation:
    return evaluate_run(engine, run.write(folder), limits=parse_limits(limits))


def check(evaluation: Evaluation, name: str) -> CheckResult:
    (found,) = [one for one in evaluation.checks if name in (one.name, one.invariant)]
    return found


def test_messages_that_only_the_lost_region_had_are_counted_and_dated(
    engine: QueryEngine, tmp_path: Path
) -> None:
    evaluation = judged(engine, lossy_run(), tmp_path / "run")
    assert evaluation.verdict == "valid", [one for one in evaluation.checks if one.verdict != "valid"]
    loss = evaluation.figures["loss"]
    assert loss["regions"] == ["us-east"]
    assert (loss["unrecovered"], loss["kept_in_lost_logs"]) == (3, 3)
    assert loss["recovery_point_seconds"] == pytest.approx(LOST_AT_S - 1.502, abs=0.001)
    assert loss["lacking"] == {"eu-central": 1}
    (row,) = loss["by_producer"]
    assert (row["producer"], row["first_sequence_id"], row["last_sequence_id"]) == ("orders-us-east", 7, 9)
    sentence = f"3 acknowledged messages of {TOPIC} lost with us-east: no remaining region stores them."
    assert sentence in check(evaluation, "loss").sentence
    assert check(evaluation, "loss").verdict == "measured"
    said = "Valid: no guarantee was broken. 3 acknowledged messages were lost with us-east."
    assert evaluation.headline == evaluation.as_json()["headline"] == said
    terminal = summary(evaluation, Path("report.html"))
    assert said in terminal
    assert TOPIC in terminal
    assert said in render_page(evaluation)
    assert "3 messages of 10 were lost with us-east" in check(evaluation, "INV-5").sentence


def test_a_loss_excuses_no_hole(engine: QueryEngine, tmp_path: Path) -> None:
    evaluation = judged(engine, lossy_run(hole=True), tmp_path / "run")
    assert check(evaluation, "INV-2").verdict == "invalid"
    assert [one["sequence_id"] for one in check(evaluation, "INV-2").witness] == [2]


def test_a_region_that_came_back_was_not_lost(engine: QueryEngine, tmp_path: Path) -> None:
    evaluation = judged(engine, lossy_run(back=True), tmp_path / "run")
    assert evaluation.figures["loss"] is None
    assert check(evaluation, "INV-2").verdict != "valid"
    assert evaluation.verdict != "valid"


def test_a_lost_region_needs_no_log_but_a_readable_one_must_hold_what_it_acknowledged(
    engine: QueryEngine, tmp_path: Path
) -> None:
    gone = lossy_run().write(tmp_path / "gone")
    (gone / "regions" / "us-east" / "log.sqlite").unlink()
    evaluation = evaluate_run(engine, gone)
    assert evaluation.verdict == "valid", [one for one in evaluation.checks if one.verdict != "valid"]
    loss = evaluation.figures["loss"]
    assert (loss["unrecovered"], loss["kept_in_lost_logs"]) == (3, 0)
    sentence = check(evaluation, "evidence-complete").sentence
    assert "but for the log of us-east, which was lost (regions/us-east/log.sqlite " in sentence

    forgetful = lossy_run()
    del forgetful.logs["us-east"][4]
    assert check(judged(engine, forgetful, tmp_path / "forgetful"), "INV-1").verdict == "invalid"


def test_replication_between_the_remaining_regions_is_checked_as_before(
    engine: QueryEngine, tmp_path: Path
) -> None:
    run = lossy_run()
    run.publish("us-west", 0, 0.5, to=["us-east"])
    run.publish("us-west", 1, 0.6)
    evaluation = judged(engine, run, tmp_path / "run")
    assert check(evaluation, "INV-2").verdict == "invalid"
    assert [one["region"] for one in check(evaluation, "INV-2").witness] == ["eu-central"]


def test_limits_are_held_and_written_for_continuous_integration(engine: QueryEngine, tmp_path: Path) -> None:
    evaluation = judged(
        engine, lossy_run(), tmp_path / "run", "unrecovered=0,outage<=2s,latency.max<=10s,gap<=1s"
    )
    assert [one.outcome for one in evaluation.limits] == ["missed", "kept", "kept", "kept"]
    assert evaluation.verdict == "valid", "a limit does not change the verdict"
    xml = junit(evaluation)
    assert 'failures="1"' in xml
    assert '<testcase classname="geoemu.limit" name="unrecovered=0">' in xml
    assert "| ❌ missed | limit unrecovered=0 | unrecovered was 3 |" in markdown(evaluation)
