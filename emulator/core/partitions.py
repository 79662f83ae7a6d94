"""Metadata of a partitioned topic, and rules of its partitions (docs/components/partitions.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from emulator.model.values import PARTITIONS_MAX, TopicName


@dataclass(frozen=True, slots=True)
class Partitioned:
    """The stored metadata of a partitioned topic."""

    count: int
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid number of partitions."""
        if (
            isinstance(self.count, bool)
            or not isinstance(self.count, int)
            or not 1 <= self.count <= PARTITIONS_MAX
        ):
            raise ValueError(
                f"{self.count!r} is not a number of partitions; there may be 1 to {PARTITIONS_MAX}"
            )

    def encode(self) -> bytes:
        return json.dumps({"partitions": self.count, "properties": dict(self.properties)}).encode()

    @classmethod
    def decode(cls, value: bytes) -> Partitioned:
        """Decode the result of `encode`. Raises ValueError for anything else."""
        try:
            document = json.loads(value)
            return cls(document["partitions"], document.get("properties") or {})
        except (KeyError, TypeError, AttributeError) as problem:
            raise ValueError(f"not a partitioned topic: {problem}") from None

    def grown_to(self, count: int) -> Partitioned:
        """Return the metadata with more partitions. Raises ValueError when `count` is invalid or not larger (N2)."""
        grown = replace(self, count=count)
        if count <= self.count:
            raise ValueError(f"there are {self.count} partitions already, and their number can only grow")
        return grown


def partition_names(topic: TopicName, count: int, first: int = 0) -> list[str]:
    """Return the full names of the partitions first..count-1."""
    return [f"{topic}-partition-{index}" for index in range(first, count)]


def inherits(index: int, first_entry_id: int, end_entry_id: int) -> bool:
    """Return whether a partition copies the subscriptions of partition 0 when it is loaded (N4): it is another
    partition, and its log is empty."""
    return index > 0 and first_entry_id >= end_entry_id


def is_news(index: int, known: int) -> bool:
    """Return whether a partition that another region replicates is beyond the `known` number of partitions."""
    return index >= known
