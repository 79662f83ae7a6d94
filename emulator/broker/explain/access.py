"""Explains the owner and the wait queue of a topic, in sentences."""

from __future__ import annotations

from typing import Final

from emulator.broker.topic.producer import ConnectedProducer
from emulator.broker.topic.topic import Topic
from emulator.model.reasons import NO_REASON, Cause, Reason

NAMED_MAX: Final = 20
"""Maximum number of producers, of those that wait or of those they wait for, that are named."""


def access_sentences(topic: Topic) -> list[str]:
    """The current state: owner, epoch, wait queue, last change. Empty for a topic that never had an owner."""
    access = topic.access
    owner, line = access.owner, access.line
    if access.epoch is None and owner is None and not line and not access.home:
        return []
    said = []
    if access.home:
        said.append(f"clients may publish in region {access.home} only")
    if owner is not None and topic.producers.get(owner.producer_name) is owner:
        said.append(f"{_named(owner)} is the owner in epoch {access.epoch}")
    elif owner is not None:
        said.append(f"{_named(owner)} is becoming the owner")
    elif access.awaited is not None:
        said.append(f"it is reserved for {access.awaited!r}, the owner of epoch {access.epoch}")
    else:
        said.append(
            "no producer owns it"
            + (f"; the newest epoch is {access.epoch}" if access.epoch is not None else "")
        )
    if line:
        more = f" and {len(line) - NAMED_MAX:,} more" if len(line) > NAMED_MAX else ""
        said.append(f"{len(line):,} wait: " + ", ".join(_place(one) for one in line[:NAMED_MAX]) + more)
    if access.standing.last_change:
        said.append(f"last change: {access.standing.last_change}")
    return said


def why_producer_waits(topic: Topic) -> Reason:
    """Return why the first producer of the queue waits; empty when none waits."""
    access = topic.access
    if not access.line:
        return NO_REASON
    first, owner = access.line[0].producer_name, access.owner
    if access.home:
        return Cause.ACCESS_ELSEWHERE(producer=first, region=access.home)
    if access.awaited is not None:
        return Cause.ACCESS_KEPT(producer=first, owner=access.awaited)
    if owner is not None and topic.producers.get(owner.producer_name) is owner:
        return Cause.ACCESS_OWNED(
            producer=first,
            owner=owner.producer_name,
            published=_published(owner),
            address=owner.connection.address,
        )
    shared = sorted(name for name, one in topic.producers.items() if one.source_region is None)
    if owner is not None or not shared:
        return Cause.ACCESS_CHANGES(producer=first)
    more = f" and {len(shared) - NAMED_MAX:,} more" if len(shared) > NAMED_MAX else ""
    return Cause.ACCESS_SHARED(producer=first, producers=", ".join(shared[:NAMED_MAX]) + more)


def _published(owner: ConnectedProducer) -> str:
    """Whether the owner publishes: its client may have closed it without the broker receiving that."""
    messages = owner.published.messages
    return f"published {messages:,} messages since it was opened" if messages else "has published nothing"


def _named(producer: ConnectedProducer) -> str:
    return f"{producer.producer_name!r} ({producer.access_mode.label}, {producer.connection.address})"


def _place(producer: ConnectedProducer) -> str:
    priority = f" (priority {producer.queue_priority})" if producer.queue_priority else ""
    return f"{producer.producer_name!r}{priority}"
