"""Subscriptions of a topic that has grown: consumers also receive messages that were published to a new partition
before they noticed it (docs/components/partitions.md, N4).

An empty partition gets the subscriptions of partition 0 whenever it is opened, before any producer can publish to it.
So nothing has to be done after a crash, nor in the other regions, where the first request opens it.
"""

from __future__ import annotations

from emulator.broker.components import SubscriptionComponents
from emulator.broker.subscription.cursor_store import StoredCursor, stored_cursors
from emulator.model.stored_keys import CursorKey, parse_key
from emulator.model.values import TopicName
from emulator.storage.contract import Log, Store


async def begin_like_the_first(
    store: Store, name: TopicName, log: Log, components: SubscriptionComponents
) -> None:
    """Create each durable subscription of partition 0 in this one, too, from its first entry on. StorageError."""
    if not components.inherits(name.partition_index, log.first_entry_id, log.next_entry_id):
        return
    for model in _subscriptions(store, f"{name.partitioned}-partition-0", components):
        key = CursorKey(str(name), model.key.subscription)
        if store.get(key.text) is None:
            cursor = components.cursor(log.first_entry_id - 1)
            cursor.set_replicated(model.cursor.replicated)
            if model.cursor.replication_disabled:
                cursor.disable_replication()
            await _put(store, StoredCursor(key, components.cursor_parts(cursor)))


def _subscriptions(store: Store, topic: str, components: SubscriptionComponents) -> list[StoredCursor]:
    """Read only the heads: positions do not matter here, and the topic may be writing the rest."""
    heads = [(parse_key(text), versioned.value) for text, versioned in store.scan(CursorKey.prefix(topic))]
    return list(stored_cursors(heads, components.cursor_parts).values())


async def _put(store: Store, begun: StoredCursor) -> None:
    for step in begun.take_changes().puts:
        for key, value in step.items():
            await store.put(key, value)
