"""Choose the partition of a message, as other Pulsar clients do.

The hash of the key selects the partition, so messages of one key keep their order and reach the partition that a Java,
Python or Go client selects (JavaStringHash unless configured otherwise). Messages without a key go round-robin, one
batch per partition, or all to one partition.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum

from emulator.client.config import Batching
from emulator.client.send_queue import OutgoingMessage
from emulator.client.types import ClientError
from emulator.model.hashing import INT_MAX, KeyHash

Router = Callable[[OutgoingMessage, int], int]
"""Function of the application that maps a message and the number of partitions to a partition index."""


class Routing(Enum):
    """Routing of messages without a key."""

    ROUND_ROBIN = "to one partition after the other"
    SINGLE = "all to one, which each producer chooses for itself"


class MessageRouter:
    """Chooses the partitions of one producer."""

    def __init__(
        self,
        routing: Routing | Router,
        key_hash: KeyHash,
        batching: Batching | None,
        chance: random.Random,
        seconds: Callable[[], float],
    ) -> None:
        """`seconds`: a monotonic clock."""
        self._routing = routing
        self._key_hash = key_hash
        self._round_robin = _RoundRobin(batching, seconds)
        self._offset = chance.randrange(INT_MAX)
        """Random offset, so that producers created together do not all begin at partition 0."""
        self._single: int | None = None

    def first(self, partitions: int) -> int:
        """Return the partition that the first message without a key goes to unless the application routes it."""
        return self._offset % partitions

    def choose(self, message: OutgoingMessage, partitions: int) -> int:
        """Return the partition of a message. ClientError when the application's router returns an invalid index."""
        if not isinstance(self._routing, Routing):
            return _check_index(self._routing(message, partitions), partitions)
        if message.key is not None:
            return self._key_hash(message.key) % partitions
        if self._routing is Routing.ROUND_ROBIN:
            return (self._offset + self._round_robin.next(message)) % partitions
        if self._single is None:  # unchanged when partitions are added
            self._single = self.first(partitions)
        return self._single


class _RoundRobin:
    """A counter that advances with each message, or, if messages are batched, when a batch reaches one of its limits: a
    new partition for each message would make batches of one message."""

    def __init__(self, batching: Batching | None, seconds: Callable[[], float]) -> None:
        self._batching = batching
        self._seconds = seconds
        self._count = -1
        self._messages = self._bytes = 0
        self._since = 0.0

    def next(self, message: OutgoingMessage) -> int:
        if self._batching is None or self._count < 0 or self._is_full(self._batching):
            self._count += 1
            self._messages = self._bytes = 0
            self._since = self._seconds()
        self._messages += 1
        self._bytes += len(message.payload)
        return self._count

    def _is_full(self, batching: Batching) -> bool:
        return (
            self._messages >= batching.messages_max
            or self._bytes >= batching.bytes_max
            or self._seconds() - self._since >= batching.delay_ms_max / 1000
        )


def _check_index(index: int, partitions: int) -> int:
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < partitions:
        raise ClientError(f"the router chose partition {index!r} of {partitions}", definite=True)
    return index
