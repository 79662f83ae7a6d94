"""What a topic needs: a producer, consumer or reader, or one for each of its partitions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from emulator.client.consumer import Consumer, ConsumerWish
from emulator.client.messages import partition_index
from emulator.client.multi_topic_consumer import MultiTopicConsumer
from emulator.client.partitioned_producer import PartitionedProducer
from emulator.client.producer import Producer, ProducerWish
from emulator.client.reader import MultiTopicReader, Reader, TopicReader
from emulator.client.routing import PartitionChoice, Router, Routing
from emulator.client.topic_consumer import TopicConsumer
from emulator.client.topic_names import NamedTopics
from emulator.client.topic_producer import TopicProducer
from emulator.client.types import MessageId
from emulator.model.hashing import KeyHash
from emulator.model.values import AccessMode

if TYPE_CHECKING:
    from emulator.client.client import Client


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


async def consumer_of(
    client: Client, topic: str | Sequence[str] | re.Pattern[str], wish: ConsumerWish
) -> Consumer:
    """Not opened yet. ClientError when it cannot be told in time how many partitions there are; ValueError."""
    letters = wish.dead_letters
    if isinstance(topic, re.Pattern):
        if letters is not None and letters.retries:
            raise ValueError("a consumer of a pattern does not support retries: it has no retry topic")
        return MultiTopicConsumer(client, topic.pattern, wish, client.topics_that_fit(topic.pattern))
    topics = [topic] if isinstance(topic, str) else list(topic)
    if letters is not None and topics:
        letters = letters.named_after(topics[0], wish.subscription)
        wish = replace(wish, dead_letters=letters)
        topics += [] if letters.retry_topic is None else [letters.retry_topic]
    is_one = isinstance(topic, str) and len(topics) == 1
    if is_one and not await partitions_before_use(client, topics[0], may_create=wish.may_create):
        return TopicConsumer(client, topics[0], wish)
    if not topics:
        raise ValueError("a consumer needs at least one topic")
    named = topic if isinstance(topic, str) else ", ".join(topic)
    return MultiTopicConsumer(client, named, wish, NamedTopics(client, topics, may_create=wish.may_create))


async def reader_of(
    client: Client, topic: str, wish: ConsumerWish, start: MessageId, *, inclusive: bool
) -> Reader:
    """The same of a reader."""
    if not await partitions_before_use(client, topic):
        return TopicReader(client, topic, wish, start, inclusive=inclusive)
    return MultiTopicReader(client, topic, wish, NamedTopics(client, [topic]), start)


async def partitions_before_use(
    client: Client, topic: str, *, may_create: bool = True, for_ever: bool = False
) -> int:
    """Of a topic that somebody is about to use: it may be created. A partition has none (N3)."""
    if not client.settings.asks_for_partitions or partition_index(topic) >= 0:
        return 0
    deadline_seconds = None if for_ever else client.settings.operation_timeout_seconds
    return await client.persist(
        lambda: client.partitions_of(topic, may_create=may_create), deadline_seconds=deadline_seconds
    )
