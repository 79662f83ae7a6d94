"""Faults that end with a `with` block, on regions that are fake programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from emulator.config.link_shape import LinkShape
from emulator.errors import RuntimeFailure
from emulator.run.history_events import read_events
from geoemu.run import Geo
from tests.runtimes.fixtures import end_all, fake_run

EAST, WEST, EU = "us-east", "us-west", "eu-central"


@pytest.fixture
def geo(tmp_path: Path) -> Iterator[Geo]:
    geo = Geo(fake_run(tmp_path), ends=True)
    geo._bring_up()
    with geo:
        yield geo
    end_all(geo.run_dir)


def shapes(geo: Geo) -> dict[tuple[str, str], LinkShape]:
    status = geo._background.run(geo._runtime.status())
    return {(link.source, link.target): link.shape for link in status.links}


def recorded(geo: Geo) -> list[tuple[str, str | None, str | None]]:
    events = read_events(geo.run_dir / "history" / "operator.jsonl")
    return [(one.op, one.region, one.detail) for one in events]


def test_a_link_fault_ends_with_its_block_and_is_recorded(geo: Geo) -> None:
    declared = shapes(geo)
    with geo.cut(EAST, "us-west,eu-central", one_way=True):
        assert {link for link, shape in shapes(geo).items() if shape.state == "cut"} == {
            (EAST, WEST),
            (EAST, EU),
        }
    assert shapes(geo) == declared
    assert recorded(geo) == [
        *[("cut", EAST, "one way")] * 2,
        *[("heal", EAST, None)] * 2,
    ]


def test_without_a_block_a_fault_lasts(geo: Geo) -> None:
    geo.hold(EAST, EU)
    assert shapes(geo)[EAST, EU].state == "held"


@pytest.mark.parametrize("first_ends_first", [False, True])
def test_faults_of_one_link_end_independently(geo: Geo, first_ends_first: bool) -> None:
    declared = shapes(geo)
    latency, cut = geo.latency(EAST, EU, "200ms"), geo.cut(EAST, EU)
    armed = [
        geo.drop("us-east->eu-central", "snapshot_response"),
        geo.drop("us-east->eu-central", "send_receipt"),
    ]
    for scope in armed[:1] + ([latency, cut] if first_ends_first else [cut, latency]):
        with scope:
            before = shapes(geo)[EAST, EU]
        after = shapes(geo)[EAST, EU]
        if scope is cut:
            assert (before.state, after.state) == ("cut", "up")
            assert after.latency_ms == before.latency_ms
        elif scope is latency:
            assert (before.latency_ms, after.latency_ms) == (200, declared[EAST, EU].latency_ms)
            assert after.state == before.state
        else:
            assert [len(before.frame_faults), len(after.frame_faults)] == [2, 1]
            assert after.frame_faults[0].what == "send_receipt"
    with armed[1]:
        pass
    assert shapes(geo) == declared


def test_a_healed_fault_does_not_end_again(geo: Geo) -> None:
    with geo.cut(EAST, EU):
        geo.heal(EAST, EU)
        with geo.latency(EAST, EU, "300ms"):
            pass
        geo.hold(EAST, EU)
    assert shapes(geo)[EAST, EU].state == "held", "the end of the block healed a later fault"
    with geo.cut(EAST, WEST):
        geo.heal()
        geo.hold(EAST, WEST)
    assert shapes(geo)[EAST, WEST].state == "held"


def test_regions_are_started_and_resumed_at_the_end_unless_they_run(geo: Geo) -> None:
    with geo.kill(EAST, EU), geo.pause(WEST):
        assert [geo.state(region) for region in (EAST, WEST, EU)] == ["killed", "paused", "killed"]
        geo.start(EU)
    assert [geo.state(region) for region in (EAST, WEST, EU)] == ["running"] * 3
    verbs = [(op, region) for op, region, _ in recorded(geo)]
    assert verbs.count(("start", EU)) == 1, "it ran already"
    with geo.stop(cluster="americas"):
        assert [geo.state(EAST), geo.state(WEST)] == ["stopped", "stopped"]
    assert [geo.state(EAST), geo.state(WEST)] == ["running", "running"]


def test_the_error_of_the_block_is_raised_although_the_end_fails(geo: Geo) -> None:
    record = geo.run_dir / "run.json"
    content = record.read_text()
    try:
        with pytest.raises(ZeroDivisionError), geo.cut(EAST, EU):
            print(1 / record.write_text(""))
    finally:
        record.write_text(content)


def test_after_the_end_of_the_run_nothing_is_undone(geo: Geo) -> None:
    with ExitStack() as stack:
        stack.enter_context(geo.cut(EAST, EU))
        stack.enter_context(geo.kill(WEST))
        geo.down()
    assert geo.state(WEST) == "killed"


def test_a_fault_that_is_refused_begins_no_scope(geo: Geo) -> None:
    with pytest.raises(RuntimeFailure, match="did you mean us-east"), geo.cut("us-eats", EU):
        pytest.fail("the block ran")
    assert shapes(geo)[EAST, EU].state == "up"
