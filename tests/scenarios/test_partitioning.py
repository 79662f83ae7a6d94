"""The partitions of a scenario's topics: created in every cluster before its first step, or the run fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.scenarios.actors.pulsar_producer import PartitionSender, choose
from emulator.scenarios.actors.specs import ProducerSpec
from tests.scenarios.virtual import TOPOLOGY, ScenarioHarness

PATH = "/admin/v2/persistent/public/default/orders/partitions"


def answers(put: tuple[int, bytes], get: tuple[int, bytes]) -> dict[str, tuple[int, bytes]]:
    return {"PUT": put, "GET": get}


@pytest.mark.parametrize("created", [204, 409])
def test_each_cluster_gets_one_request_and_confirms_the_partitions(tmp_path: Path, created: int) -> None:
    harness = ScenarioHarness(tmp_path)
    said = answers((created, b"exists"), (200, b'{"partitions": 3}'))
    harness.answers = lambda _region, method: said[method]
    result = harness.run("begin: short", partitions="{orders: 3}")
    assert result.completed, result.failure
    firsts = [cluster.regions[0].name for cluster in TOPOLOGY.clusters]
    expected = [f"{region} {call}" for region in firsts for call in (f"PUT {PATH} 3", f"GET {PATH} None")]
    assert [what for _, what in harness.requests] == expected
    part = harness.actors["short"].part
    assert isinstance(part, ProducerSpec)
    assert part.topics == tuple(f"persistent://public/default/orders-partition-{index}" for index in range(3))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (answers((409, b"there"), (200, b'{"partitions": 5}')), 'in us-east: 200 {"partitions": 5}'),
        (answers((409, b"there"), (200, b'{"partitions": 0}')), 'in us-east: 200 {"partitions": 0}'),
        (answers((412, b"no such name"), (200, b"{}")), "in us-east: 412 no such name"),
        (answers((500, b""), (200, b'{"partitions": 3}')), "in us-east: 500"),
    ],
)
def test_a_cluster_that_has_another_number_ends_the_run_before_its_first_step(
    tmp_path: Path, said: dict[str, tuple[int, bytes]], words: str
) -> None:
    harness = ScenarioHarness(tmp_path)
    harness.answers = lambda _region, method: said[method]
    result = harness.run("begin: short", partitions="{orders: 3}")
    assert result.failure is not None
    assert result.failure.startswith(
        "before the first step: persistent://public/default/orders does not have 3"
    )
    assert words in result.failure
    assert result.steps_done == 0
    assert harness.actors == {}


def test_messages_of_a_key_have_one_way_and_others_go_round() -> None:
    lanes = [PartitionSender[None](f"orders-partition-{index}") for index in range(3)]
    assert [choose(lanes, None, turn) for turn in range(4)] == [*lanes, lanes[0]]
    assert {choose(lanes, "key-0", turn).topic for turn in range(4)} == {"orders-partition-2"}


def test_a_way_numbers_its_own_messages_and_goes_on_behind_what_its_region_has() -> None:
    lane = PartitionSender[str]("orders-partition-0")
    lane.opened("one life", "s1", -1)
    assert [lane.number() for _ in range(3)] == [0, 1, 2]
    lane.opened("the next", "s2", 1)
    assert lane.number() == 3
    lane.opened("another", "s3", 9)
    assert lane.number() == 10
