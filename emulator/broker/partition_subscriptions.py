"""Subscriptions of a topic that has grown: what is published to a new partition before its consumers have noticed it is
theirs all the same (docs/rooms/partitions.md, N4)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory import Directory
from emulator.broker.topic_slot import Wish
from emulator.errors import ProtocolError, StorageError

logger = logging.getLogger(__name__)


async def carry_subscriptions(directory: Directory, first: str, new: Sequence[str]) -> None:
    """Have each durable subscription of partition 0 (`first`) in the new partitions, from their first entry on. Where
    that fails the log says so: consumers make what is missing when they come."""
    try:
        model = await directory.acquire(first, Wish.EXISTING)
        for name in new:
            await _carry(model, await directory.acquire(name, Wish.CREATE))
    except (ProtocolError, StorageError) as failure:
        logger.warning("subscriptions of %s are not in all of its new partitions yet: %s", first, failure)


async def _carry(model: Topic, topic: Topic) -> None:
    begun = []
    for subscription in list(model.subscriptions.values()):
        if not subscription.durable or subscription.name in topic.subscriptions:
            continue
        cursor = topic.region.environment.parts.cursor(topic.first_entry_id - 1)
        made = topic.create_subscription(subscription.name, cursor)
        if subscription.cursor.replicated:
            topic.replicate_subscription(made)
        begun.append(made)
    for made in begun:
        await made.persisted()
