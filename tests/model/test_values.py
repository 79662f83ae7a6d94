"""Names of topics and partitions, which clients choose."""

from __future__ import annotations

import pytest

from emulator.model.values import TopicName

PARTITION = "persistent://public/default/orders-partition-7"


def test_a_partition_names_its_topic_and_index() -> None:
    name = TopicName.parse(PARTITION)
    assert name.partition_index == 7
    assert name.partitioned == TopicName.parse("orders")
    assert TopicName.parse("orders").partitioned is None
    assert TopicName.parse("orders").partition_index == -1


@pytest.mark.parametrize("count", [2, 2_000])
def test_a_name_may_end_like_that_of_a_partition_many_times(count: int) -> None:
    """All topics of such a name were built in advance, one within the other, until the interpreter's stack was full."""
    name = TopicName.parse("orders" + "-partition-7" * count)
    assert name.partition_index == 7
    assert name.partitioned == TopicName.parse("orders" + "-partition-7" * (count - 1))


@pytest.mark.parametrize("index", ["1234567890", "9" * 5_000])
def test_a_partition_index_has_at_most_32_bits(index: str) -> None:
    """Longer numbers cannot be converted to an integer, or cannot be sent to clients."""
    name = TopicName.parse(f"orders-partition-{index}")
    assert name.partitioned is None
    assert name.partition_index == -1
