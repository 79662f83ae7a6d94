"""What a topic, its subscriptions and its replicators look like as JSON: Pulsar's stats, and rows of `/geoemu/v1`.

Pulsar's names and meanings; a figure that no region keeps is left out rather than given as 0. Three flags appear under
both spellings (`replicated`, `isReplicated`, …), because clients differ in which one they read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from emulator.broker.replication.replicator import Replicator
from emulator.broker.subscription.consumer import Consumer
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.producer import Producer
from emulator.broker.topic.topic import Topic


def topic_stats(topic: Topic, *, publishers: bool = True, consumers: bool = True) -> dict[str, Any]:
    """`stats` of a topic. Without `publishers` or `consumers` these lists are empty."""
    connected = [one for one in topic.producers.values() if isinstance(one, Producer)] if publishers else []
    return {
        "storageSize": topic.log.size_bytes,
        "publishers": [_publisher(one) for one in connected if one.source_region is None],
        "subscriptions": {
            name: _subscription(one, consumers=consumers) for name, one in topic.subscriptions.items()
        },
        "replication": {name: _replicator(one) for name, one in topic.replicators.items()},
        "deduplicationStatus": "Enabled" if topic.deduplicates else "Disabled",
        "waitingPublishers": topic.access.waiting_count,
        **({} if topic.access.epoch is None else {"topicEpoch": topic.access.epoch}),
    }


def sum_of(partitions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`partitioned-stats`: what the figures of all partitions come to, subscriptions by name."""
    subscriptions: dict[str, dict[str, Any]] = {}
    for one in partitions:
        for name, figures in one["subscriptions"].items():
            sum_ = subscriptions.setdefault(
                name, {**figures, "msgBacklog": 0, "unackedMessages": 0, "consumers": []}
            )
            sum_["msgBacklog"] += figures["msgBacklog"]
            sum_["unackedMessages"] += figures["unackedMessages"]
            sum_["consumers"] = [*sum_["consumers"], *figures["consumers"]]
    return {
        "storageSize": sum(one["storageSize"] for one in partitions),
        "waitingPublishers": sum(one["waitingPublishers"] for one in partitions),
        "publishers": [publisher for one in partitions for publisher in one["publishers"]],
        "subscriptions": subscriptions,
        "replication": {},
    }


def internal_stats(topic: Topic) -> dict[str, Any]:
    """`internalStats` of a topic."""
    ledger_id = topic.log.ledger_id
    entries = topic.log.next_entry_id - topic.log.first_entry_id
    ledger = {"ledgerId": ledger_id, "entries": entries, "size": topic.log.size_bytes, "offloaded": False}
    return {
        "entriesAddedCounter": topic.end_entry_id - topic.loaded_end_entry_id,
        "numberOfEntries": entries,
        "totalSize": topic.log.size_bytes,
        "lastConfirmedEntry": str(topic.last_position),
        "state": "LedgerOpened",
        "ledgers": [ledger],
        "cursors": {name: _cursor(one, ledger_id) for name, one in topic.subscriptions.items()},
    }


def topic_row(topic: Topic) -> dict[str, Any]:
    """One topic of `/geoemu/v1/topics`."""
    return {
        "topic": topic.full_name,
        "last_position": str(topic.last_position),
        "entries": topic.log.next_entry_id - topic.log.first_entry_id,
        "replication": {
            name: {"backlog": one.backlog, "connected": one.life.is_connected, "why_not": one.life.why_not}
            for name, one in topic.replicators.items()
        },
        "subscriptions": {
            name: {
                "backlog": one.backlog(),
                "mark_delete": f"{topic.log.ledger_id}:{one.cursor.mark_delete}",
                "consumers": len(one.consumers),
                "replicated": one.cursor.replicated,
                "why_not_replicated": topic.sync.why_not(one) if topic.sync is not None else "",
            }
            for name, one in topic.subscriptions.items()
        },
        "snapshots": topic.sync.summary() if topic.sync is not None else {},
    }


def _publisher(producer: Producer) -> dict[str, Any]:
    return {
        "producerId": producer.producer_id,
        "producerName": producer.producer_name,
        "accessMode": producer.access_mode.label,
        "queuePriority": producer.queue_priority,
        "address": f"/{producer.connection.address}",
        "clientVersion": _version(producer.connection.client_version),
        "metadata": producer.request.metadata,
    }


def _subscription(subscription: Subscription, *, consumers: bool) -> dict[str, Any]:
    replicated, durable = subscription.cursor.replicated, subscription.durable
    active = subscription.dispatcher.active
    return {
        "msgBacklog": subscription.backlog(),
        "type": subscription.dispatcher.type.name.title(),
        "activeConsumerName": active.name if active is not None else "",
        "unackedMessages": sum(state.unacked_messages for state in subscription.dispatcher.consumers),
        "consumers": [
            _consumer(one, subscription.dispatcher.draining.get(one.state.name, 0))
            for one in (subscription.consumers.values() if consumers else ())
        ],
        "replicated": replicated,
        "isReplicated": replicated,
        "durable": durable,
        "isDurable": durable,
    }


def _consumer(consumer: Consumer, draining: int) -> dict[str, Any]:
    state = consumer.state
    return {
        "consumerName": state.name,
        "availablePermits": state.permits,
        "unackedMessages": state.unacked_messages,
        "drainingHashesCount": draining,
        "address": f"/{consumer.connection.address}",
        "clientVersion": _version(consumer.connection.client_version),
        "metadata": consumer.metadata,
    }


def _replicator(replicator: Replicator) -> dict[str, Any]:
    return {
        "replicationBacklog": replicator.backlog,
        "connected": replicator.life.is_connected,
        "whyNot": replicator.life.why_not,
    }


def _cursor(subscription: Subscription, ledger_id: int) -> dict[str, Any]:
    cursor = subscription.cursor
    ranges = [f"({ledger_id}:{first - 1}..{ledger_id}:{last}]" for first, last in cursor.acked_ranges]
    # Nobody reads on a passive side, and yet its mark-delete moves.
    read = max(subscription.dispatcher.read_entry_id, cursor.mark_delete + 1)
    return {
        "markDeletePosition": f"{ledger_id}:{cursor.mark_delete}",
        "readPosition": f"{ledger_id}:{read}",
        "individuallyDeletedMessages": f"[{','.join(ranges)}]",
        "active": bool(subscription.consumers),
    }


def _version(client_version: str) -> str:
    """As Pulsar prints it."""
    return client_version.replace(" ", "-")
