"""Statistics of topics, subscriptions and replicators as JSON: Pulsar's stats, and rows of `/geoemu/v1`.

Names and meanings are Pulsar's; most fields that regions do not have are left out. Counters start when the topic is
loaded. A subscription's `backlogSize` is the size of the log, multiplied by the backlog's share of its entries. Some
flags have two spellings (`replicated`, `isReplicated`, …), because clients differ in which one they read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from emulator.broker.replication.replicator import Replicator
from emulator.broker.subscription.consumer import ConnectedConsumer
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.non_persistent.topic import NonPersistentTopic
from emulator.broker.topic.producer import ConnectedProducer
from emulator.broker.topic.topic import Topic
from emulator.config.compatibility import Compatibility
from emulator.net.addresses import in_url


def topic_stats(topic: Topic, *, publishers: bool = True, consumers: bool = True) -> dict[str, Any]:
    """Return the `stats` of a topic. Without `publishers` or `consumers` these lists are empty."""
    producers = [one for one in topic.producers.values() if isinstance(one, ConnectedProducer)]
    clients = [one for one in producers if one.source_region is None] if publishers else []
    subscriptions = {
        name: _subscription_stats(topic, one, consumers=consumers)
        for name, one in topic.subscriptions.items()
    }
    published, now = topic.metrics.published, _now_seconds()
    found = {
        "msgRateIn": published.message_rate(now),
        "msgThroughputIn": published.byte_rate(now),
        "msgInCounter": published.messages,
        "bytesInCounter": published.bytes,
        "averageMsgSize": published.bytes / published.messages if published.messages else 0.0,
        **{field: sum(one[field] for one in subscriptions.values()) for field in _OUTGOING_COUNTERS},
        "storageSize": topic.log.size_bytes,
        "backlogSize": max((one["backlogSize"] for one in subscriptions.values()), default=0),
        "topicCreationTimeStamp": topic.metrics.loaded_ms,
        "lastPublishTimeStamp": topic.metrics.published_ms,
        "publishers": [_publisher_stats(one, now) for one in clients],
        "subscriptions": subscriptions,
        "replication": {name: _replicator_stats(topic, one, now) for name, one in topic.replicators.items()},
        "compaction": _compaction_stats(topic),
        "deduplicationStatus": "Enabled" if topic.state.deduplicates else "Disabled",
        "waitingPublishers": len(topic.access.machine.queue),
        "nonContiguousDeletedMessagesRanges": sum(
            one["nonContiguousDeletedMessagesRanges"] for one in subscriptions.values()
        ),
        **({} if topic.access.machine.epoch is None else {"topicEpoch": topic.access.machine.epoch}),
    }
    if isinstance(topic, NonPersistentTopic):
        _add_drops(found, topic)
    return found


def _add_drops(found: dict[str, Any], topic: NonPersistentTopic) -> None:
    """Add the dropped messages of a non-persistent topic: per second in the last minute, and since it was loaded."""
    dropped_by_kind = [("subscriptions", topic.dropped), ("replication", topic.dropped_for)]
    rates = {"subscriptions": 0.0, "replication": 0.0}
    for kind, dropped in dropped_by_kind:
        for name, row in found[kind].items():
            drops = dropped.get(name)
            rate = 0.0 if drops is None else drops.rate(topic.now_ms())
            row |= {"msgDropRate": rate, "msgDropCount": 0 if drops is None else drops.total}
            rates[kind] += rate
    found["msgDropRate"] = rates["subscriptions"]


_OUTGOING_COUNTERS = ("msgRateOut", "msgThroughputOut", "msgOutCounter", "bytesOutCounter")
_MAXIMUM_FIELDS = frozenset(
    {
        "lastConsumedTimestamp",
        "lastConsumedFlowTimestamp",
        "lastAckedTimestamp",
        "lastMarkDeleteAdvancedTimestamp",
        "lastPublishTimeStamp",
        "topicCreationTimeStamp",
        "topicEpoch",
        "lastCompactionSucceedTimestamp",
    }
)


def partitioned_stats(partitions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return `partitioned-stats`: the sum of all partitions, with subscriptions and replicators summed by name."""
    whole: dict[str, Any] = {
        "publishers": [],
        "subscriptions": {},
        "replication": {},
        "storageSize": 0,
        "waitingPublishers": 0,
    }
    for one in partitions:
        whole = _merge(whole, one)
    messages = whole.get("msgInCounter", 0)
    return {**whole, "averageMsgSize": whole["bytesInCounter"] / messages if messages else 0.0}


def _merge(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _combine(name, one[name], other[name])
        if name in one and name in other
        else (one[name] if name in one else other[name])
        for name in {**one, **other}
    }


def _combine(name: str, one: Any, other: Any) -> Any:
    """Combine two values of a field: merge objects, concatenate lists, add numbers, and of the `_MAXIMUM_FIELDS` use
    the larger value. Of two texts or flags use the first that is not empty or False."""
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, dict):
        return _merge(one, other)
    if isinstance(one, list):
        return [*one, *other]
    if isinstance(one, bool | str):
        return one or other
    return max(one, other) if name in _MAXIMUM_FIELDS else one + other


WAITING_MAX = 20
"""Maximum number of waiting producers that a row names."""


def topic_row(topic: Topic) -> dict[str, Any]:
    """Return the row of one topic in `/geoemu/v1/topics`."""
    return {
        "topic": topic.full_name,
        "last_position": str(topic.reading.last_position),
        "entries": topic.log.next_entry_id - topic.log.first_entry_id,
        "replication": {
            name: {"backlog": one.backlog, "connected": one.lifecycle.is_connected, "why_not": one.why_not()}
            for name, one in topic.replicators.items()
        },
        "subscriptions": {
            name: {
                "backlog": one.backlog(),
                "mark_delete": f"{topic.log.ledger_id}:{one.cursor.mark_delete}",
                "consumers": len(one.consumers),
                "replicated": one.cursor.replicated,
                "not_applied": {
                    source: f"{topic.log.ledger_id}:{update.entry_id}"
                    for source, update in one.cursor.unapplied.items()
                },
                "why_not_replicated": topic.subscriptions.why_not_replicated(one),
            }
            for name, one in topic.subscriptions.items()
        },
        "snapshots": topic.subscriptions.replicated.summary()
        if topic.subscriptions.replicated is not None
        else {},
        "access": _access_row(topic),
    }


def _access_row(topic: Topic) -> dict[str, Any]:
    """Return the exclusive access of a topic: owner, epoch, and the producers that wait."""
    access = topic.access
    return {
        "owner": None if access.owner is None else access.owner.producer_name,
        "epoch": access.machine.epoch,
        "waiting": [one.producer_name for one in access.waiting[:WAITING_MAX]],
        "waiting_count": len(access.waiting),
    }


def _compaction_stats(topic: Topic) -> dict[str, Any]:
    view = topic.compaction.view
    if view is None:
        return {}
    return {
        "lastCompactionRemovedEventCount": view.row.removed,
        "lastCompactionSucceedTimestamp": view.row.at_ms,
    }


def _publisher_stats(producer: ConnectedProducer, now: float) -> dict[str, Any]:
    published = producer.published
    return {
        "msgRateIn": published.message_rate(now),
        "msgThroughputIn": published.byte_rate(now),
        "averageMsgSize": published.bytes / published.messages if published.messages else 0.0,
        "producerId": producer.producer_id,
        "producerName": producer.producer_name,
        "accessMode": producer.access_mode.label,
        "queuePriority": producer.queue_priority,
        "address": f"/{producer.connection.address}",
        "connectedSince": iso_time(producer.since_ms),
        "clientVersion": _client_version(producer.connection.client_version),
        "metadata": producer.request.metadata,
    }


def _reported_backlog(topic: Topic, subscription: Subscription) -> int:
    """Return the backlog of a subscription; markers are counted only if the region follows upstream."""
    if Compatibility(topic.region.config.compatibility).follows_upstream("markers_in_backlog"):
        return subscription.cursor.unacked_count(topic.state.readable_end)
    return subscription.backlog()


def _subscription_stats(topic: Topic, subscription: Subscription, *, consumers: bool) -> dict[str, Any]:
    replicated, durable = subscription.cursor.replicated, subscription.durable
    active, sent, now = subscription.dispatcher.strategy.active, subscription.sent, _now_seconds()
    backlog = _reported_backlog(topic, subscription)
    entries = topic.log.next_entry_id - topic.log.first_entry_id
    return {
        "msgRateOut": sent.message_rate(now),
        "msgThroughputOut": sent.byte_rate(now),
        "msgOutCounter": sent.messages,
        "bytesOutCounter": sent.bytes,
        "msgBacklog": backlog,
        "backlogSize": topic.log.size_bytes * backlog // entries if entries else 0,
        "type": subscription.dispatcher.type.name.title(),
        "activeConsumerName": active.name if active is not None else "",
        "unackedMessages": sum(
            state.unacked_messages for state in subscription.dispatcher.strategy.consumers
        ),
        "blockedSubscriptionOnUnackedMsgs": subscription.dispatcher.is_full,
        "subscriptionProperties": subscription.cursor.properties,
        "lastConsumedTimestamp": subscription.sent_ms,
        "lastConsumedFlowTimestamp": subscription.flow_ms,
        "lastAckedTimestamp": subscription.acked_ms,
        "lastMarkDeleteAdvancedTimestamp": subscription.stored_cursor.mark_delete_ms,
        "nonContiguousDeletedMessagesRanges": len(subscription.cursor.acked_ranges),
        "msgDelayed": subscription.dispatcher.delayed_entries,
        "consumersAfterMarkDeletePosition": {},
        "consumers": [
            _consumer_stats(one, subscription.dispatcher.strategy.draining.get(one.state, 0), now)
            for one in (subscription.consumers.values() if consumers else ())
        ],
        "replicated": replicated,
        "isReplicated": replicated,
        "durable": durable,
        "isDurable": durable,
    }


def _consumer_stats(consumer: ConnectedConsumer, draining: int, now: float) -> dict[str, Any]:
    state, sent = consumer.state, consumer.sent
    return {
        "msgRateOut": sent.message_rate(now),
        "msgThroughputOut": sent.byte_rate(now),
        "msgOutCounter": sent.messages,
        "bytesOutCounter": sent.bytes,
        "consumerName": state.name,
        "availablePermits": state.permits,
        "unackedMessages": state.unacked_messages,
        "blockedConsumerOnUnackedMsgs": state.unacked_messages
        >= consumer.subscription.topic.subscriptions.limits.unacked_messages_per_consumer_max,
        "drainingHashesCount": draining,
        "lastConsumedTimestamp": consumer.sent_ms,
        "lastConsumedFlowTimestamp": consumer.flow_ms,
        "lastAckedTimestamp": consumer.acked_ms,
        "address": f"/{consumer.connection.address}",
        "connectedSince": iso_time(consumer.since_ms),
        "clientVersion": _client_version(consumer.connection.client_version),
        "metadata": consumer.metadata,
    }


def _replicator_stats(topic: Topic, replicator: Replicator, now: float) -> dict[str, Any]:
    inbound = [
        one
        for one in topic.producers.values()
        if isinstance(one, ConnectedProducer) and one.source_region == replicator.remote
    ]
    return {
        "msgRateIn": sum(one.published.message_rate(now) for one in inbound),
        "msgThroughputIn": sum(one.published.byte_rate(now) for one in inbound),
        "msgRateOut": replicator.sent.message_rate(now),
        "msgThroughputOut": replicator.sent.byte_rate(now),
        "msgOutCounter": replicator.sent.messages,
        "bytesOutCounter": replicator.sent.bytes,
        "replicationBacklog": replicator.backlog,
        "connected": replicator.lifecycle.is_connected,
        "inboundConnection": f"/{inbound[0].connection.address}" if inbound else None,
        "inboundConnectedSince": iso_time(inbound[0].since_ms) if inbound else None,
        "outboundConnection": f"{in_url(replicator.peer.config.host)}:{replicator.peer.config.port}",
        "outboundConnectedSince": iso_time(replicator.since_ms)
        if replicator.lifecycle.is_connected
        else None,
        "whyNot": replicator.why_not(),
    }


def iso_time(at_ms: int) -> str:
    """Format a time in ms since 1970 as Pulsar does: 2026-11-23T02:54:55.123Z."""
    moment = datetime.fromtimestamp(at_ms / 1_000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _now_seconds() -> float:
    return asyncio.get_running_loop().time()


def _client_version(client_version: str) -> str:
    """Return a client's version in Pulsar's form, without spaces."""
    return client_version.replace(" ", "-")
