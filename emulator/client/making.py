"""What a topic needs: a producer, or one for each of its partitions."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from emulator.client.partitioned_producer import PartitionedProducer
from emulator.client.producer import Producer, ProducerWish
from emulator.client.routing import PartitionChoice, Router, Routing
from emulator.client.topic_producer import TopicProducer
from emulator.key_hash import KeyHash
from emulator.model import AccessMode

if TYPE_CHECKING:
    from emulator.client.client import Client

_PARTITION: Final = re.compile(r"-partition-\d+$")


async def producer_of(
    client: Client,
    topic: str,
    wish: ProducerWish,
    routing: Routing | Router | None,
    key_hash: KeyHash | None,
    *,
    lazy: bool,
) -> Producer:
    """Not opened yet. ClientError when it cannot be told in time how many partitions there are; ValueError."""
    waits = wish.access_mode is AccessMode.WAIT_FOR_EXCLUSIVE
    partitions = await partitions_before_use(client, topic, for_ever=waits)
    if not partitions:
        return TopicProducer(client, topic, wish)
    choice = PartitionChoice(
        routing or Routing.ROUND_ROBIN,
        key_hash or KeyHash.JAVA_STRING,
        wish.batching,
        client.chance,
        asyncio.get_running_loop().time,
    )
    return PartitionedProducer(client, topic, wish, partitions, choice, lazy=lazy)


async def partitions_before_use(client: Client, topic: str, *, for_ever: bool = False) -> int:
    """Of a topic that somebody is about to use: it may be created. A partition has none (N3)."""
    if not client.settings.asks_for_partitions or _PARTITION.search(topic):
        return 0
    deadline_seconds = None if for_ever else client.settings.operation_timeout_seconds
    return await client.persist(
        lambda: client.partitions_of(topic, may_create=True), deadline_seconds=deadline_seconds
    )
