"""Links of a run: declared latency, measured lag, faults by direction."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.figures.links import LinkSummary, summarise_links
from spark_jobs.figures.measures import Measures
from spark_jobs.figures.timeline import Timeline
from spark_jobs.frames.faults import Interval
from spark_jobs.verify import evaluate_run
from tests.spark_jobs.sample_run import SampleRun


def timeline(*faults: Interval) -> Timeline:
    return Timeline(0.0, 10.0, (), links=faults)


def test_a_fault_of_both_directions_belongs_to_both_and_one_of_a_direction_to_it() -> None:
    both = Interval(1.0, 2.0, "cut", "a", "b")
    one_way = Interval(3.0, 10.0, "latency", "b", "a", ended=False, one_way=True, detail="200 ms")
    there, back = summarise_links({("a", "b"): 20.0, ("b", "a"): 30.0}, timeline(both, one_way), Measures())
    assert there == LinkSummary("a", "b", 20.0, None, (both,))
    assert back == LinkSummary("b", "a", 30.0, None, (both, one_way))
    assert (there.state, there.worst) == ("up", "cut")
    assert (back.state, back.worst) == ("latency", "cut")


def test_links_that_only_faults_or_lags_name_follow_the_declared_ones() -> None:
    lags = Measures(lag_seconds={"b > c": {"p50": 0.1, "p99": 0.2, "max": 0.3}})
    cut = Interval(1.0, 2.0, "cut", "c", "a", one_way=True)
    links = summarise_links({("a", "b"): 20.0}, timeline(cut), lags)
    assert [(link.source, link.target, link.latency_ms) for link in links] == [
        ("a", "b", 20.0),
        ("b", "c", None),
        ("c", "a", None),
    ]
    assert links[1].lag_seconds == {"p50": 0.1, "p99": 0.2, "max": 0.3}


def test_a_fault_without_a_region_makes_no_link() -> None:
    assert summarise_links({}, timeline(Interval(1.0, 2.0, "cut", "", "a")), Measures()) == ()


def test_the_links_of_a_run_are_those_of_its_topology(tmp_path: Path) -> None:
    sample = SampleRun()
    sample.subscribe("us-west", 0.0)
    sample.publish("us-east", 0, 1.0)
    sample.receive("us-west", "us-east", 0, 1.052, entry=0)
    sample.fact(2.0, "cut", region="us-east", other_region="us-west", detail="one way")
    evaluation = evaluate_run(EmbeddedEngine(), sample.write(tmp_path))
    links = {(link.source, link.target): link for link in evaluation.links}
    assert len(links) == 6
    cut = links["us-east", "us-west"]
    assert (cut.latency_ms, cut.state, cut.lag_seconds) == (
        20.0,
        "cut",
        {"p50": 0.05, "p99": 0.05, "max": 0.05},
    )
    assert links["us-west", "us-east"].state == "up"
    written = evaluation.as_json()["links"]
    assert {link["state"] for link in written} == {"up", "cut"}
