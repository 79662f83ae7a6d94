"""Carries out the decisions of `core.access` for one topic: stores grants, admits, fences and rejects producers.

enter ──▶ decisions ──▶ sent to the producer's connection
              └─ WriteGrant: wait for issued appends ──▶ put the grant ──▶ durable ──▶ decisions
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from emulator.broker.environment import RegionServices
from emulator.broker.topic.access_store import WaitQueueWriter, encode_grant, newest_grant, stored_wait_queue
from emulator.config.compatibility import Compatibility
from emulator.core.access.machine import Access
from emulator.core.access.types import (
    AccessGrant,
    AccessRules,
    Admit,
    Claimant,
    Decision,
    Enqueue,
    Evict,
    GrantChange,
    GrantStep,
    Refuse,
)
from emulator.errors import ProtocolError, ServerError, StorageError
from emulator.model.stored_keys import GrantKey
from emulator.model.values import AccessMode

if TYPE_CHECKING:
    from emulator.broker.topic.producer import ConnectedProducer
    from emulator.broker.topic.transactions import TopicTransactions
    from emulator.broker.topic.view import PublishingTopic

logger = logging.getLogger(__name__)


class OwnershipStatus:
    """Time and reason of the last change of a topic's owner, for `explain`."""

    def __init__(self, region: RegionServices, topic: str, since_ms: int) -> None:
        self._region = region
        self._topic = topic
        self.since_ms = since_ms
        self.last_change = ""
        """Sentence that describes the last change and its reason."""
        self.ownerless_since: float | None = None
        """Loop time since which producers have waited without an owner; None: no producer waits, or there is an
        owner."""

    def changed(self, sentence: str) -> None:
        """Record a change of the owner that `sentence` describes."""
        self.since_ms = self._region.environment.wall_clock_ms()
        self.last_change = sentence
        logger.info("%s: %s", self._topic, sentence)

    def note_ownerless(self, *, ownerless: bool) -> None:
        """Measure the time during which producers wait for a topic without an owner; called after each decision."""
        if ownerless == (self.ownerless_since is not None):
            return
        now = asyncio.get_running_loop().time()
        if self.ownerless_since is None:
            self.ownerless_since = now
        else:
            self._region.resources.access_figures.ownerless_seconds += now - self.ownerless_since
            self.ownerless_since = None


class TopicAccess:
    """Exclusive access to one topic, which owns this object."""

    def __init__(self, topic: PublishingTopic, transactions: TopicTransactions) -> None:
        """Raise StorageDamaged when the stored grant cannot be read."""
        region = topic.region
        rules, has_grace_period = _access_rules(frozenset(region.config.compatibility.items()))
        self._topic = topic
        self._transactions = transactions
        grace_period_ms = region.config.settings.exclusive_grace_period_ms
        self._grace_seconds = grace_period_ms / 1000 if has_grace_period else 0.0
        queued_before: dict[str, int] = {}
        newest = None
        if not topic.is_new:
            newest = newest_grant(region.store, topic.full_name)
            if self._grace_seconds > 0:
                queued_before = stored_wait_queue(region.store, topic.full_name)
        self._last_owner = "" if newest is None else newest.owner
        """Name of the last owner."""
        self.machine: Access = region.environment.components.topics.access(
            newest,
            reserved=self._grace_seconds > 0,
            queued_before=queued_before,
            rules=rules,
        )
        self.ownership = OwnershipStatus(region, topic.full_name, topic.metrics.loaded_ms)
        self._figures = region.resources.access_figures
        self._closed = False
        loop_us = int(asyncio.get_running_loop().time() * 1_000_000)
        # The wall clock may have been set back: new producers still queue behind those that waited before.
        start_us = self.ownership.since_ms * 1_000
        if queued_before:
            start_us = max(start_us, max(queued_before.values()) + 1)
        self._wall_minus_loop_us = start_us - loop_us
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        """Completes when the pending write of a grant is durable or has failed."""
        self._queued: dict[Claimant, None] = {}
        """Producers in the wait queue, until they are admitted, refused or removed."""
        self._stored_queue: WaitQueueWriter | None = None
        self._has_grace_period = self.machine.reserved_for is not None or bool(queued_before)

    @property
    def stored_queue(self) -> WaitQueueWriter:
        """Writes the wait queue. Created at the first use: most topics have none."""
        if self._stored_queue is None:
            self._stored_queue = WaitQueueWriter(
                self._topic.region, self._topic.full_name, self.machine.queue
            )
        return self._stored_queue

    def start(self) -> None:
        """Start the grace period, if any, in which the former owner and waiting producers may reconnect. Called once
        the topic is loaded: a topic that failed to load decides nothing."""
        if not self._has_grace_period:
            return
        if self.machine.reserved_for is not None:
            self.ownership.changed(
                f"it is reserved for {self.machine.reserved_for!r}, the owner before the topic was loaded"
            )
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._grace_seconds, self._grace_period_over)

    def _grace_period_over(self) -> None:
        former = self.machine.reserved_for
        self._carry_out(self.machine.grace_period_over(), f"{former!r} did not reconnect in time")

    # Events.

    def enter(self, producer: ConnectedProducer) -> None:
        """Handle a client's request for a producer. The connection receives the outcome, now or later."""
        waits = producer.access_mode is AccessMode.WAIT_FOR_EXCLUSIVE
        draw = self._topic.region.environment.random.getrandbits(32) if waits else 0
        now_us = int(asyncio.get_running_loop().time() * 1_000_000) + self._wall_minus_loop_us
        why = f"{producer.producer_name!r} requested it ({producer.access_mode.label})"
        self._carry_out(self.machine.enter(producer, now_us, draw), why)

    def left(self, producer: ConnectedProducer, why: str = "it left") -> None:
        """Remove a producer that was closed or lost its connection. No effect after `close`, or if it never entered."""
        if not self._closed:
            self._queued.pop(producer, None)
            self._carry_out(self.machine.left(producer), f"{producer.producer_name!r} closed: {why}")

    def set_exclusive_region(self, region: str) -> None:
        """Set the only region in which clients may publish from now on; empty: this region."""
        if region != self.machine.exclusive_region:
            self._carry_out(
                self.machine.set_exclusive_region(region),
                f"clients may now publish in {region or 'this region'}",
            )

    # Queries.

    @property
    def owner(self) -> ConnectedProducer | None:
        """The producer that owns the topic, or whose grant is being stored."""
        return cast("ConnectedProducer | None", self.machine.owner)

    @property
    def waiting(self) -> list[ConnectedProducer]:
        """The waiting producers, in the order of promotion."""
        return cast("list[ConnectedProducer]", self.machine.waiting())

    def named(self, name: str) -> ConnectedProducer | None:
        """Return the producer of this name that waits, or that owns the topic or is becoming its owner."""
        return cast("ConnectedProducer | None", self.machine.named(name))

    # Carrying out.

    def _carry_out(self, decisions: Sequence[Decision], why: str) -> None:
        for decision in decisions:
            if isinstance(decision, Admit):
                self._admit(cast("ConnectedProducer", decision.claimant), decision.epoch)
            elif isinstance(decision, Enqueue):
                producer = cast("ConnectedProducer", decision.claimant)
                self._queued[producer] = None
                producer.connection.producers.waits(producer)
            elif isinstance(decision, Refuse):
                self._refuse(decision)
            elif isinstance(decision, Evict):
                self.evict(cast("ConnectedProducer", decision.claimant), why)
            else:
                self._begin_writing(decision.change, why)
        machine = self.machine
        if machine.queue.changes:
            self.stored_queue.changed()
        if self._queued or self.ownership.ownerless_since is not None:
            granted = machine.owner is not None and machine.change is None
            self.ownership.note_ownerless(ownerless=bool(self._queued) and not granted and not machine.shared)

    def _admit(self, producer: ConnectedProducer, epoch: int | None) -> None:
        if self._queued.pop(producer, False) is None:
            self._figures.promotions += 1
        producer.connection.producers.admitted(producer, epoch)

    def _refuse(self, decision: Refuse) -> None:
        producer = cast("ConnectedProducer", decision.claimant)
        was_queued = self._queued.pop(producer, False) is None
        if was_queued and decision.code is ServerError.ProducerFenced:
            self._figures.fences += 1
        producer.connection.producers.refused(producer, ProtocolError(decision.code, decision.sentence))

    def evict(self, producer: ConnectedProducer, why: str) -> None:
        """Fence a producer: close it, and abort its open transactions."""
        self._figures.fences += 1
        logger.info("%s: producer %s is fenced: %s", self._topic.full_name, producer.producer_name, why)
        producer.connection.producers.close(producer)
        self._transactions.owner_lost(producer.producer_name, "its producer was fenced")

    def _begin_writing(self, change: GrantChange, why: str) -> None:
        self._writing = asyncio.get_running_loop().create_future()
        self._topic.region.spawn(self._write(change, why, self._writing))

    async def _write(self, change: GrantChange, why: str, writing: asyncio.Future[None]) -> None:
        try:
            grant = await self._store_grant(change, why)
        except StorageError as failure:
            logger.error(
                "%s: the change of exclusive access could not be stored: %s", self._topic.full_name, failure
            )
            if not self._closed:
                self._carry_out(self.machine.not_written(str(failure)), "the new owner could not be stored")
            return
        finally:
            writing.set_result(None)
        if not self._closed:
            self._note_change(change, grant, why)
            self._carry_out(self.machine.written(grant), why)

    async def _store_grant(self, change: GrantChange, why: str) -> AccessGrant:
        """Store a grant after the former owner's sends are durable or have failed, and before the new owner receives a
        response (X1). StorageError when it is not durable, or when that is unknown."""
        await self.wait_for_issued_sends()
        if self._closed:
            raise StorageError("the topic was unloaded", definite=True)
        grant = change.at(self._topic.log.next_entry_id)
        await self.make_durable(grant, why)
        return grant

    async def wait_for_issued_sends(self) -> None:
        """Wait until all issued sends are durable or have failed."""
        self._topic.flush()
        await self._topic.issued_so_far()

    async def make_durable(self, grant: AccessGrant, why: str) -> None:
        """Store a grant, and wait until it is durable. StorageError when it is not, or when that is unknown."""
        await self.store(grant, why)

    def store(self, grant: AccessGrant, why: str) -> asyncio.Future[int]:
        """Issue the write of a grant; the future completes when it is durable."""
        region = self._topic.region
        key = GrantKey.of(self._topic.full_name, grant.epoch).text
        region.store.get(key)  # after a failed put the store rejects the key until it is read (S5)
        return region.store.put(key, encode_grant(grant, why, region.environment.wall_clock_ms()))

    def _note_change(self, change: GrantChange, grant: AccessGrant, why: str) -> None:
        owner, epoch = grant.owner, grant.epoch
        if change.step is GrantStep.GRANT:
            self._topic.region.resources.protocol_events.note("takeover", self._topic.full_name)
            self._abort_transactions_of_former_owner(owner, epoch)
            self.ownership.changed(f"{owner!r} became the owner in epoch {epoch}, because {why}")
        elif change.step is GrantStep.FENCE:
            self.ownership.changed(f"epoch {epoch} has no owner, because {why}")
        elif change.step is GrantStep.END:
            self.ownership.changed(f"{owner!r} is no longer the owner, because {why}; no producer waits")
        else:
            self.ownership.changed(f"{owner!r} reconnected and remains the owner in epoch {epoch}")

    def _abort_transactions_of_former_owner(self, owner: str, epoch: int) -> None:
        """Abort the former owner's open transactions: the new owner does not wait for them (decision 0027)."""
        former, self._last_owner = self._last_owner, owner
        if former and former != owner:
            self._transactions.owner_lost(
                former, f"{owner!r} became the owner of {self._topic.full_name} in epoch {epoch}"
            )

    # Closing.

    def close(self) -> None:
        """Stop deciding: the topic is unloaded. Producers that this disconnects keep their stored grant."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._stored_queue is not None:
            self._stored_queue.close()

    async def settled(self) -> None:
        """After `close`: wait until no write is pending."""
        if self._writing is not None:
            await self._writing
        if self._stored_queue is not None:
            await self._stored_queue.settled()


@lru_cache(maxsize=16)
def _access_rules(switches: frozenset[tuple[str, str]]) -> tuple[AccessRules, bool]:
    """Return the rules, and whether an owner has a grace period after its topic was unloaded. Computed once for all
    topics of a region."""
    compatibility = Compatibility(dict(switches))
    rules = AccessRules(
        first_come_first_served=compatibility.follows_upstream("queue_priority"),
        promotes_once=compatibility.follows_upstream("failed_promotion"),
        forgets_fenced=compatibility.follows_upstream("fenced_producers"),
    )
    return rules, not compatibility.follows_upstream("unloaded_owner")
