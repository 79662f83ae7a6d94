"""The journey of one message, from the history and the logs."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.frames import use_engine
from spark_jobs.figures.journeys import Journey, JourneyEvent, _journey, follow_messages, origin_of
from spark_jobs.report.report import render_page, summary
from spark_jobs.verify import evaluate_run
from tests.spark_jobs.literal import acknowledged, evidence_from, published, received, stored, subscribed
from tests.spark_jobs.sample_run import TOPIC, SampleRun, place


def told(journey: Journey, sample: SampleRun) -> list[tuple[float, str, str, str, str | None]]:
    return [
        (round(stop.at_ms - sample.time_ms(0), 3), stop.op, stop.outcome, stop.region, stop.position)
        for stop in journey.stops
    ]


def test_a_witness_s_message_is_followed_through_regions_and_clients(
    engine: QueryEngine, tmp_path: Path
) -> None:
    sample = SampleRun()
    sample.subscribe("us-west", 0.5)
    sample.publish("us-east", 0, 1.0)
    # us-west stores message 1; eu-central stores only the later message 2, so message 1 is lost there.
    sample.publish("us-east", 1, 2.0, to=["us-west"])
    sample.publish("us-east", 2, 3.0)
    sample.receive("us-west", "us-east", 1, 2.1, entry=1)
    sample.receive("us-west", "us-east", 1, 2.2, entry=1)
    sample.acknowledge("us-west", 1, 2.3)
    evaluation = evaluate_run(engine, sample.write(tmp_path / "run"))
    assert evaluation.verdict == "invalid"
    journey = next(
        one for one in evaluation.journeys if one.origin == (TOPIC, "us-east", "orders-us-east", 1)
    )
    assert told(journey, sample) == [
        (2000.0, "publish", "asked", "us-east", None),
        (2002.0, "publish", "ok", "us-east", f"{place('us-east', 1)}:-1"),
        (2100.0, "receive", "ok", "us-west", f"{place('us-west', 1)}:-1"),
        (2200.0, "receive", "ok", "us-west", f"{place('us-west', 1)}:-1"),
        (2300.0, "acknowledge", "asked", "us-west", f"{place('us-west', 1)}:-1"),
    ]
    assert journey.absent == ("eu-central",)
    seen = {copy.region: copy.by_ms and round(copy.by_ms - sample.time_ms(0), 3) for copy in journey.stored}
    assert seen == {"us-east": 2002.0, "us-west": 2100.0}
    assert {origin_of(witness) for check in evaluation.checks for witness in check.witness} - {None} == {
        one.origin for one in evaluation.journeys
    }


def test_time_and_position_are_those_of_the_first_cumulative_acknowledgement(engine: QueryEngine) -> None:
    """The later one has a lower position, as of a consumer that received the messages again."""
    events = [
        subscribed("a", initial="earliest"),
        *published(0),
        received(0, "a", 20),
        acknowledged("a", 3, 60, how="cumulative"),
        acknowledged("a", 1, 70, how="cumulative"),
    ]
    with use_engine(engine):
        evidence = evidence_from([stored("a", number, number) for number in range(4)], events)
        (journey,) = follow_messages(evidence, [("p", 0)])
    acks = [(stop.at_ms, stop.position, stop.how) for stop in journey.stops if stop.op == "acknowledge"]
    assert acks == [(60.0, "1:3", "cumulative")]


def test_any_message_can_be_followed_by_its_producer_and_number(engine: QueryEngine, tmp_path: Path) -> None:
    sample = SampleRun()
    sample.publish("us-east", 0, 1.0)
    sample.publish("us-east", 1, 2.0)
    run = sample.write(tmp_path / "run")
    evaluation = evaluate_run(engine, run, follow=[("orders-us-east", 1), ("nobody", 7)])
    (journey,) = evaluation.followed
    assert journey.origin == (TOPIC, "us-east", "orders-us-east", 1)
    assert {copy.region for copy in journey.stored} == set(sample.regions)
    page = tmp_path / "report.html"
    text = summary(evaluation, page)
    assert f"orders-us-east 1 of us-east in {TOPIC}:" in text
    assert "orders-us-east publishes it to us-east" in text
    page_text = render_page(evaluation)
    assert "Journeys of messages" in page_text
    assert f"orders-us-east 1 of us-east in {TOPIC}" in page_text


def test_events_at_the_same_time_have_one_order() -> None:
    """Engines return rows in different orders."""
    events = [
        JourneyEvent(1.0, "publish", outcome, "us", error=error)
        for outcome in ("unknown", "failed", "ok")
        for error in (None, "refused", "timeout")
    ]
    there = [_journey(("t", "us", "p", 1), None, list(order)) for order in (events, reversed(events))]
    assert there[0] == there[1]
    copies = [{"region": "eu", "ledger_id": 1, "entry_id": 2, "batch_index": index} for index in (0, 1)]
    message = {"asked_ms": None, "acked_ms": None, "expected": []}
    there = [
        _journey(("t", "us", "p", 1), {**message, "copies": order}, []) for order in (copies, copies[::-1])
    ]
    assert there[0] == there[1]
