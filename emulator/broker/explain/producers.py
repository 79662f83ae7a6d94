"""Explains why the producers of a topic wait: backlog quotas, the publish rate, exclusive access."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from emulator.broker.region import Region
from emulator.broker.topic.producer import ConnectedProducer
from emulator.broker.topic.topic import Topic
from emulator.model.reasons import NO_REASON, Cause, Reason
from emulator.storage.contract import FaultableDisk

PRODUCERS_MAX: Final = 20
"""Maximum number of producers that a list of waiting or of owning producers names."""


def why_disk_delays(region: Region, topic: Topic | None) -> Reason:
    """Return why publishes to a topic (None: it is not loaded) wait for the region's disk or fail; NO_REASON for a
    healthy disk."""
    if not isinstance(region.store, FaultableDisk):
        return NO_REASON
    condition, name = region.store.condition, region.config.region
    match condition.state:
        case "full":
            return Cause.DISK_FULL(region=name)
        case "failing":
            return Cause.DISK_FAILING(region=name)
        case "slow" if topic is not None and topic.publishing.issued:
            count = f"{topic.publishing.issued} append{'' if topic.publishing.issued == 1 else 's'}"
            return Cause.DISK_SLOW(count=count, region=name, delay_ms=condition.delay_ms)
    return NO_REASON


def why_clients_wait(topic: Topic) -> Reason:
    """Return why no client can publish to a topic now; NO_REASON if the topic's limits allow it."""
    refusal = topic.retention.quota_refusal
    if refusal is not None:
        return Cause.QUOTA_EXCEEDED(message=str(refusal))
    if (wait_ms := topic.publishing.rate_wait_ms) > 0:
        return Cause.PUBLISH_RATE(wait_ms=math.ceil(wait_ms))
    if any(one.connection.flow_control.is_paused_for_memory for one in topic.producers.values()):
        return Cause.CLIENT_MEMORY(held_bytes=topic.region.resources.clients.held_bytes)
    return NO_REASON


def access_sentences(topic: Topic) -> list[str]:
    """Describe exclusive access: owner, epoch, wait queue, last change. Empty for a topic that never had an owner, has
    no waiting producers and whose clients may publish in this region."""
    access = topic.access
    machine, owner, queue = access.machine, access.owner, access.waiting
    if machine.epoch is None and owner is None and not queue and not machine.exclusive_region:
        return []
    sentences = []
    if machine.exclusive_region:
        sentences.append(f"clients may publish in region {machine.exclusive_region} only")
    if owner is not None and topic.producers.get(owner.producer_name) is owner:
        sentences.append(f"{_producer(owner)} is the owner in epoch {machine.epoch}")
    elif owner is not None:
        sentences.append(f"{_producer(owner)} is becoming the owner")
    elif machine.reserved_for is not None:
        sentences.append(f"it is reserved for {machine.reserved_for!r}, the owner of epoch {machine.epoch}")
    else:
        sentences.append(
            "no producer owns it"
            + (f"; the newest epoch is {machine.epoch}" if machine.epoch is not None else "")
        )
    if queue:
        sentences.append(f"{len(queue):,} wait: {_list_names([_waiting_producer(one) for one in queue])}")
    if access.ownership.last_change:
        sentences.append(f"last change: {access.ownership.last_change}")
    return sentences


def why_producer_waits(topic: Topic) -> Reason:
    """Return why the first producer of the wait queue waits; NO_REASON for an empty queue."""
    access, machine = topic.access, topic.access.machine
    if not access.waiting:
        return NO_REASON
    first, owner = access.waiting[0].producer_name, access.owner
    if machine.exclusive_region:
        return Cause.ACCESS_ELSEWHERE(producer=first, region=machine.exclusive_region)
    if machine.reserved_for is not None:
        return Cause.ACCESS_KEPT(producer=first, owner=machine.reserved_for)
    if owner is not None and topic.producers.get(owner.producer_name) is owner:
        return Cause.ACCESS_OWNED(
            producer=first,
            owner=owner.producer_name,
            published=_describe_publishing(owner),
            address=owner.connection.address,
        )
    shared = sorted(name for name, one in topic.producers.items() if one.source_region is None)
    if owner is not None or not shared:
        return Cause.ACCESS_CHANGES(producer=first)
    return Cause.ACCESS_SHARED(producer=first, producers=_list_names(shared))


def _describe_publishing(owner: ConnectedProducer) -> str:
    """Describe whether the owner has published: its client may have closed it without the broker receiving that."""
    messages = owner.published.messages
    return f"published {messages:,} messages since it was opened" if messages else "has published nothing"


def _producer(producer: ConnectedProducer) -> str:
    return f"{producer.producer_name!r} ({producer.access_mode.label}, {producer.connection.address})"


def _waiting_producer(producer: ConnectedProducer) -> str:
    priority = f" (priority {producer.queue_priority})" if producer.queue_priority else ""
    return f"{producer.producer_name!r}{priority}"


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - PRODUCERS_MAX:,} more" if len(names) > PRODUCERS_MAX else ""
    return ", ".join(names[:PRODUCERS_MAX]) + more
