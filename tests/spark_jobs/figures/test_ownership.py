"""The number of topics of each host before and after the fault of a host."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from spark_jobs.engines.contract import QueryEngine
from spark_jobs.figures.ownership import AccessRequest, Contest, HostFault, Moment, contests, faults_of
from spark_jobs.report.charts import draw_loads, legend_of, sentences_of
from spark_jobs.verify import evaluate_run
from tests.spark_jobs.report.test_report import EVIL
from tests.spark_jobs.sample_run import TOPIC, SampleRun


def place(number: int) -> tuple[str, str]:
    return "us-east", f"t-{number}"


def shares(hosts: int, topics: int) -> list[AccessRequest]:
    """Every host requested every topic, and each owns an equal share."""
    names = [f"h-{number + 1}" for number in range(hosts)]
    return [
        *(AccessRequest(place(topic), name) for name in names for topic in range(topics)),
        *(AccessRequest(place(topic), names[topic % hosts], 1.0) for topic in range(topics)),
    ]


def test_the_topics_of_a_killed_host_are_counted_by_new_owner_with_the_time_without_one() -> None:
    taken_over = [
        AccessRequest(place(0), "h-2", 1010.0),
        AccessRequest(place(2), "h-2", 1030.0),
        AccessRequest(place(4), "h-3", 1050.0),
    ]
    (found,) = contests(
        [*shares(2, 6), AccessRequest(place(0), "h-3"), *taken_over], [HostFault(1000.0, "kill", "h-1")]
    )
    assert (found.name, found.topics) == ("h", 6)
    assert found.loads == {"h-1": (3, 0), "h-2": (3, 5), "h-3": (0, 1)}
    assert found.moments == (Moment("h-1 killed", 3, 0, 0.03, 0.05),)


def test_topics_without_a_new_owner_are_counted_and_in_no_load() -> None:
    (found,) = contests(
        [*shares(2, 4), AccessRequest(place(0), "h-2", 1500.0)], [HostFault(1000.0, "kill", "h-1")]
    )
    assert found.loads == {"h-1": (2, 0), "h-2": (2, 3)}
    assert found.moments == (Moment("h-1 killed", 2, 1, 0.5, 0.5),)


def test_loads_are_those_of_the_moment_in_which_every_topic_has_an_owner_again() -> None:
    """At the end of a run each host hands its topics over to the next one; that is not counted as load."""
    ending = [AccessRequest(place(topic), "h-3", 9000.0 + topic) for topic in range(6)]
    taken_over = [AccessRequest(place(0), "h-2", 1010.0), AccessRequest(place(3), "h-3", 1020.0)]
    (found,) = contests([*shares(3, 6), *taken_over, *ending], [HostFault(1000.0, "kill", "h-1")])
    assert found.loads == {"h-1": (2, 0), "h-2": (2, 3), "h-3": (2, 3)}


def test_hosts_that_die_together_are_one_moment_and_later_ones_another() -> None:
    faults = [
        HostFault(1000.0, "kill", "h-1"),
        HostFault(1004.0, "pause", "h-2"),
        HostFault(3000.0, "kill", "h-3"),
    ]
    taken_over = [AccessRequest(place(topic), "h-3", 1010.0 + topic) for topic in (0, 1)]
    last = [AccessRequest(place(topic), "h-4", 3005.0) for topic in range(3)]
    (found,) = contests([*shares(3, 3), AccessRequest(place(0), "h-4"), *taken_over, *last], faults)
    assert [moment.words for moment in found.moments] == ["h-1 killed, h-2 paused", "h-3 killed"]
    assert found.loads == {"h-1": (1, 0, 0), "h-2": (1, 0, 0), "h-3": (1, 3, 0), "h-4": (0, 0, 3)}


def test_hosts_of_other_topics_or_of_another_region_are_another_contest() -> None:
    here = [AccessRequest(("us-east", "t"), "east-1", 1.0), AccessRequest(("us-east", "t"), "east-2")]
    there = [
        AccessRequest(("eu-central", "t"), "central-1", 1.0),
        AccessRequest(("eu-central", "t"), "central-2"),
    ]
    faults = [HostFault(10.0, "kill", "east-1"), HostFault(2000.0, "kill", "central-1")]
    assert [(one.name, len(one.moments)) for one in contests([*here, *there], faults)] == [
        ("central", 1),
        ("east", 1),
    ]
    assert contests([*here, *there], []) == ()


def test_faults_are_the_steps_that_end_the_ownership_of_hosts() -> None:
    notes = [("kill h-1", 3.0), ("start h-1", 4.0), ("kill other", 5.0), ("pause h-2", 1.0), (None, 2.0)]
    facts = [{"op": "note", "detail": detail, "at_ms": at_ms} for detail, at_ms in notes]
    facts.append({"op": "step", "detail": "kill h-1", "at_ms": 0.0})
    assert faults_of(facts, ["h-1", "h-2"]) == [HostFault(1.0, "pause", "h-2"), HostFault(3.0, "kill", "h-1")]


def test_the_history_contains_it(engine: QueryEngine, tmp_path: Path) -> None:
    """A shared producer is no owner; an exclusive one is an owner once it received an epoch."""
    sample = SampleRun()
    for host, at, epoch in (("h-1", 1.0, 0), ("h-2", 2.0, 1)):
        opened = {"region": "us-east", "topic": TOPIC, "producer": host}
        sample.tell(host, at, "connect", "ok", **opened, session=host, last_sequence_id=-1, topic_epoch=epoch)
    sample.publish("us-east", 0, 1.5)
    sample.fact(1.9, "note", detail="kill h-1", region="us-east")
    evaluation = evaluate_run(engine, sample.write(tmp_path))
    (found,) = evaluation.ownership
    assert found.loads == {"h-1": (1, 0), "h-2": (0, 1)}
    assert found.moments == (Moment("h-1 killed", 1, 0, 0.1, 0.1),)
    assert evaluation.as_json()["ownership"][0]["moments"][0]["orphaned"] == 1


CONTEST = Contest(
    f"h {EVIL}",
    40,
    {"h-1": (8, 0), "h-2": (8, 16), "h-10": (8, 8)},
    (Moment("h-1 killed", 8, 1, 0.0124, 1.5),),
)


@pytest.mark.parametrize("width", [1180, 356])
def test_each_host_has_a_bar_for_each_moment_and_all_numbers_beside_them(width: int) -> None:
    svg = draw_loads(CONTEST, width, [CONTEST])
    assert re.findall(r">(\d+ → \d+)<", svg) == ["8 → 0", "8 → 16", "8 → 8"]
    assert re.findall(r">(h-\d+)<", svg) == ["h-1", "h-2", "h-10"]
    bars = [float(size) for size in re.findall(r'<rect class="load-\w+"[^>]* width="([\d.]+)"', svg)]
    assert bars[0] == pytest.approx(bars[3] / 2, abs=0.1)
    assert bars[1] == 0
    assert EVIL not in svg


def test_bars_of_two_contests_begin_at_one_place_and_have_one_scale() -> None:
    small = Contest("s", 4, {"a-host-with-a-long-name": (2, 0), "s-2": (2, 4)}, CONTEST.moments)
    edges = {
        re.findall(
            r'class="load-soft" x="([\d.]+)"[^>]* width="([\d.]+)"', draw_loads(one, 1180, [CONTEST, small])
        )[0]
        for one in (CONTEST, small)
    }
    assert len({left for left, _ in edges}) == 1
    assert sorted(float(width) for _, width in edges)[1] == pytest.approx(
        4 * sorted(float(width) for _, width in edges)[0], abs=0.5
    )


def test_the_legend_explains_the_bars_and_the_time_without_an_owner() -> None:
    assert [words for _, words in legend_of(CONTEST)] == ["before", "h-1 killed"]
    assert sentences_of(CONTEST) == [
        "h-1 killed: 8 topics lost their owner; half of the 7 that got a new owner had none for 12 ms or less,"
        " the slowest for 1.500 s; 1 got no new owner."
    ]
    all_taken_over = replace(CONTEST, moments=(Moment("h-1 killed", 8, 0, 0.0124, 1.5),))
    assert sentences_of(all_taken_over) == [
        "h-1 killed: 8 topics lost their owner; half of them had none for 12 ms or less, the slowest for 1.500 s."
    ]
