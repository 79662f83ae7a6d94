"""The producers of one topic, their limits, and the entries that are admitted and not yet durable."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

from emulator.broker.topic.pending_publish import Pending, limits_of
from emulator.broker.topic.producer import ConnectedProducer
from emulator.core.flow.rate_limit import Throttle
from emulator.core.policies.limits import MAX_MESSAGE_SIZE, PUBLISH_RATE
from emulator.core.policies.topic_policies import DEFAULTS, TopicPolicies
from emulator.core.policies.topics import DEDUPLICATION, KEEP_ALIVE_INTERVAL
from emulator.errors import StorageError

if TYPE_CHECKING:
    from emulator.broker.connection.flow_control import FlowControl
    from emulator.broker.topic.exclusive_access import TopicAccess
    from emulator.broker.topic.view import TopicView

PUBLISHING = (KEEP_ALIVE_INTERVAL, MAX_MESSAGE_SIZE, PUBLISH_RATE)
OBEYS = (DEDUPLICATION, *PUBLISHING)
"""Policies that this module acts upon (PO1)."""


class TopicPublishing:
    """Producers and pending publishes of one topic, which owns this object."""

    def __init__(self, topic: TopicView, access: TopicAccess) -> None:
        self._topic = topic
        self._access = access
        self.producers: dict[str, ConnectedProducer] = {}
        """Connected producers by name, inbound replicators included."""
        self.limits = self.client_limits = limits_of(topic.region.config)
        """Maximum sizes of entries: `limits` for other regions, `client_limits` for clients."""
        self.batch: list[Pending] = []
        """Publishes admitted and not yet issued."""
        self.issued = 0
        """Number of issued batches whose outcome is not known yet."""
        self.last_issued: asyncio.Future[int] | None = None
        self._is_limited = topic.region.environment.components.topics.is_limited
        self._throttle: Throttle | None = None
        self._delayed: WeakKeyDictionary[FlowControl, None] | None = None
        """Connections from which reading was delayed for the publish rate, since it was set; None: no connection."""
        self._switching_deduplication: asyncio.Lock | None = None
        """Serialises changes of deduplication; the last one wins. Created at the first change."""

    @property
    def is_pending(self) -> bool:
        """Whether a publish was admitted whose outcome is not known yet."""
        return bool(self.batch) or self.issued > 0

    def apply(self, old: TopicPolicies | None, new: TopicPolicies) -> None:
        """Apply changed policies; `old` is None for a topic that was just loaded, to which the defaults apply."""
        topic, before = self._topic, DEFAULTS if old is None else old
        if new.differs(before, KEEP_ALIVE_INTERVAL):
            for producer in (*self.producers.values(), *self._access.waiting):
                producer.connection.liveness.hurry(new[KEEP_ALIVE_INTERVAL])
        if new.differs(before, MAX_MESSAGE_SIZE):
            limits, policy_bytes = limits_of(topic.region.config), new[MAX_MESSAGE_SIZE]
            if policy_bytes:
                limits = replace(limits, payload_bytes=min(policy_bytes, limits.payload_bytes))
            self.client_limits = limits
        if new.differs(before, PUBLISH_RATE):
            now_ms = asyncio.get_running_loop().time() * 1000
            self._throttle = topic.region.environment.components.topics.throttle_of(new[PUBLISH_RATE], now_ms)
            self._end_delays()
        wanted = new[DEDUPLICATION]
        switches = topic.state.deduplicates != wanted if old is None else new.differs(old, DEDUPLICATION)
        if topic.keeps_messages and switches:
            topic.region.spawn(self._switch_deduplication())

    async def _switch_deduplication(self) -> None:
        """Enable or disable deduplication according to the policies. The known sequence ids are deleted durably first:
        without deduplication, producers may have restarted their numbering."""
        topic = self._topic
        if self._switching_deduplication is None:
            self._switching_deduplication = asyncio.Lock()
        async with self._switching_deduplication:
            wanted = topic.policies[DEDUPLICATION]
            if topic.closed or topic.state.deduplicates == wanted:
                return
            topic.state.forget_producers()
            try:
                await topic.checkpoints.write_durably()
            except StorageError as failure:
                topic.failed(failure)
                return
            topic.state.deduplicates = wanted and not topic.closed

    def attach(self, producer: ConnectedProducer) -> None:
        """Register a connected producer, whose name must be free, and apply the publish rate to it."""
        self.producers[producer.producer_name] = producer
        self._delay_reading([producer])
        if producer.source_region is not None:
            self._topic.subscriptions.links_changed()

    def detach(self, producer: ConnectedProducer, why: str) -> None:
        """Remove a producer, unless it is no longer the one registered under its name."""
        if self.producers.get(producer.producer_name) is not producer:
            return
        del self.producers[producer.producer_name]
        if producer.source_region is None:
            self._access.left(producer, why)
        else:
            self._topic.subscriptions.link_lost(producer.source_region)

    def apply_publish_rate(self, batch: Sequence[Pending]) -> None:
        """Count published entries against the publish rate. While they exceed it, the broker does not read from any
        client with a producer of the topic: the limit is the topic's, and connections have no share of their own
        (INV-79). Replicators of other regions are not throttled: their entries were acknowledged there."""
        if self._throttle is None:
            return
        clients = [one for one in batch if self._is_limited(one.attachment.publisher)]
        if not clients:
            return
        messages = sum(one.messages for one in clients)
        now_ms = asyncio.get_running_loop().time() * 1000
        self._throttle.take(messages, sum(one.size_bytes for one in clients), now_ms)
        published = [cast(ConnectedProducer, one.attachment) for one in clients]
        self._delay_reading(dict.fromkeys((*self.producers.values(), *published)))

    @property
    def rate_wait_ms(self) -> float:
        """Time until the publish rate allows another message; 0: one is allowed now."""
        return (
            0.0
            if self._throttle is None
            else self._throttle.wait_ms(asyncio.get_running_loop().time() * 1000)
        )

    def _delay_reading(self, producers: Iterable[ConnectedProducer]) -> None:
        """Delay reading from these producers' clients until the publish rate allows more."""
        if self._throttle is None:
            return
        wait_ms = self.rate_wait_ms
        if wait_ms > 0:
            for producer in producers:
                if producer.is_limited:
                    producer.slow_down(wait_ms / 1000)
                    if self._delayed is None:
                        self._delayed = WeakKeyDictionary()
                    self._delayed[producer.connection.flow_control] = None

    def _end_delays(self) -> None:
        """Read again from all clients that the publish rate has delayed, even if their producers were closed since."""
        former, self._delayed = self._delayed, None
        for delayed in list(former or ()):
            delayed.speed_up()

    def close(self) -> None:
        """End the delays: the topic is unloaded, and its producers are gone."""
        self._throttle = None
        self._end_delays()
