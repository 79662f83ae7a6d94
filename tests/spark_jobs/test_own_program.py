"""A user's own program, which writes its history itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.run.history import HistoryWriter
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.evaluation import Evaluation
from spark_jobs.verify import evaluate_run

from .sample_run import TOPIC, SampleRun, payload_of, place

REGION = "us-east"
MESSAGES = 5


def stored_twice(folder: Path) -> Path:
    """Write the logs of two runs of a producer with deduplication: its sequence ids continue."""
    run = SampleRun()
    for number in range(2 * MESSAGES):
        run.publish(REGION, number, 1.0 + number, producer="shop")
    run.events.clear()
    return run.write(folder)


def run_program(history: HistoryWriter, first: int, last_sequence_id: int) -> None:
    """Record one run of the program: MESSAGES publishes, which are stored from entry `first` on."""
    producer = history.opened_producer(REGION, TOPIC, "shop", last_sequence_id)
    for entry in range(first, first + MESSAGES):
        producer.asked_publish(payload_of(REGION, entry)).ok(f"{place(REGION, entry)}:-1")


def consume(history: HistoryWriter) -> None:
    history.subscribed(REGION, TOPIC, "billing", initial="earliest")
    for entry in range(2 * MESSAGES):
        history.received(REGION, TOPIC, "billing", f"{place(REGION, entry)}:-1", payload_of(REGION, entry))
        history.asked_to_acknowledge(REGION, TOPIC, "billing", f"{place(REGION, entry)}:-1")


def sentences(evaluation: Evaluation) -> str:
    return "\n".join(f"{one.verdict} {one.invariant} {one.sentence}" for one in evaluation.checks)


@pytest.mark.parametrize("second_begins_behind", [MESSAGES - 1, -1], ids=["told where", "counting from 0"])
def test_a_program_that_runs_twice_under_one_name_is_no_violation(
    engine: QueryEngine, tmp_path: Path, second_begins_behind: int
) -> None:
    path = stored_twice(tmp_path / "run")
    for first, last_sequence_id in ((0, -1), (MESSAGES, second_begins_behind)):
        history = HistoryWriter.in_run(path, "shop")
        run_program(history, first, last_sequence_id)
        if first:
            consume(history)
        history.close()
    evaluation = evaluate_run(engine, path)
    assert evaluation.verdict == "valid", sentences(evaluation)
    assert f"{2 * MESSAGES} acknowledged messages" in sentences(evaluation)
    assert ("are 5 higher" in sentences(evaluation)) == (second_begins_behind == -1)


def test_a_program_that_was_killed_leaves_only_open_operations_unknown(
    engine: QueryEngine, tmp_path: Path
) -> None:
    path = stored_twice(tmp_path / "run")
    first = HistoryWriter.in_run(path, "shop")
    run_program(first, 0, -1)
    run_program(first, MESSAGES, MESSAGES - 1)
    first.close()
    file = path / "history" / "shop.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-2]))  # the last receipt, and the end
    assert "has no end" in sentences(evaluate_run(engine, path))
    second = HistoryWriter.in_run(path, "shop")  # the next run seals what the first one left
    consume(second)
    second.close()
    evaluation = evaluate_run(engine, path)
    assert evaluation.verdict == "valid", sentences(evaluation)
    assert evaluation.figures["published"]["unknown"] == 1


def test_regions_and_places_that_do_not_exist_are_not_believed(engine: QueryEngine, tmp_path: Path) -> None:
    path = stored_twice(tmp_path / "run")
    history = HistoryWriter.in_run(path, "shop")
    producer = history.opened_producer("us-eats", TOPIC, "shop", -1)
    for entry in range(2 * MESSAGES):
        producer.asked_publish(payload_of(REGION, entry)).ok(f"{place(REGION, entry)}:-1")
    history.received("atlantis", TOPIC, "billing", "1:0:-1")
    history.close()
    evaluation = evaluate_run(engine, path)
    assert evaluation.verdict == "unknown"
    assert "region: must be a region of this run" in sentences(evaluation)
