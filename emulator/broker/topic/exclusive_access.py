"""Carries out the decisions of `core.access` for one topic: stores grants, admits, fences and rejects producers.

    enter ──▶ decisions ──▶ sent to the producer's connection
                  └─ WriteGrant: wait for what is issued ──▶ put the grant ──▶ durable ──▶ decisions

The wait queue is stored too, but no response waits for that: losing it costs only the order of the producers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol, cast

from emulator.broker.debounced_writer import DebouncedWriter, one_key
from emulator.broker.environment import RegionServices
from emulator.config.compatibility import Compatibility
from emulator.core.access import (
    Access,
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
from emulator.errors import ProtocolError, ServerError, StorageDamaged, StorageError
from emulator.model.stored_keys import GrantKey, LineKey
from emulator.model.values import AccessMode
from emulator.storage.contract import Log, Store

if TYPE_CHECKING:
    from emulator.broker.topic.producer import ConnectedProducer

logger = logging.getLogger(__name__)

_UNREADABLE = (ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""Errors of decoding a stored row of any content."""
LINE_WRITE_DELAY_SECONDS = 0.02
LINE_REMEMBERED_MAX = 1_000
"""Number of waiting producers whose order survives a restart."""


class TransactionsOfOwners(Protocol):
    """The topic's transactions, as this module needs them."""

    def owner_lost(self, name: str, why: str) -> None:
        """The owner with this name has lost the topic: abort its open transactions."""
        ...


class AccessHost(Protocol):
    """The topic, as this module needs it."""

    @property
    def region(self) -> RegionServices: ...
    @property
    def full_name(self) -> str: ...
    @property
    def log(self) -> Log: ...
    @property
    def transactions(self) -> TransactionsOfOwners: ...

    def flush(self) -> None: ...

    async def issued_so_far(self) -> None: ...

    def failed(self, failure: BaseException) -> None: ...


class OwnershipStatus:
    """How long the owner of a topic has been the same, and what changed it: for `explain`."""

    def __init__(self, loaded_ms: int) -> None:
        self.since_ms = loaded_ms
        self.last_change = ""
        """What changed the owner last, and why."""
        self.ownerless_since: float | None = None
        """Loop time; None: no producer waits, or there is an owner."""


class TopicAccess:
    """Owned by its topic."""

    def __init__(self, topic: AccessHost) -> None:
        """StorageDamaged when a stored row cannot be read."""
        region = topic.region
        settings = region.config.settings
        chosen = Compatibility(region.config.compatibility)
        self._topic = topic
        self._store = region.store
        self._patience_seconds = settings.exclusive_patience_ms / 1000
        if chosen.follows_upstream("unloaded_owner"):
            self._patience_seconds = 0.0
        line_before = _line_before(region.store, topic.full_name) if self._patience_seconds > 0 else {}
        newest = newest_grant(region.store, topic.full_name)
        self._granted_to = "" if newest is None else newest.owner
        """Name of the last owner."""
        self._machine: Access = region.environment.components.topics.access(
            newest,
            reserved=self._patience_seconds > 0,
            queued_before=line_before,
            rules=_access_rules(chosen),
        )
        self.standing = OwnershipStatus(region.environment.wall_clock_ms())
        self._figures = region.resources.access_figures
        self._closed = False
        loop_us = int(asyncio.get_running_loop().time() * 1_000_000)
        # The wall clock may have been set back: new producers still queue behind those that waited before.
        began_us = max(self.standing.since_ms * 1_000, *(came_us + 1 for came_us in line_before.values()), 0)
        self._wall_minus_loop_us = began_us - loop_us
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        """Done when the write that is under way has its outcome."""
        self._waited: dict[Claimant, None] = {}
        self._keeper: DebouncedWriter | None = None
        """Writes the wait queue; most topics never need it."""
        self._line_changes = 0
        """Number of changes of the wait queue that were passed to the writer."""
        self._is_patient = self._machine.reserved_for is not None or bool(line_before)

    def look_after(self) -> None:
        """Begin to decide: the topic is loaded, and former owners and waiting producers may return. A topic that failed
        to load decides nothing."""
        if not self._is_patient:
            return
        if self._machine.reserved_for is not None:
            self._say(
                f"it is reserved for {self._machine.reserved_for!r}, the owner before the topic was loaded"
            )
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._patience_seconds, self._patience_over)

    def _patience_over(self) -> None:
        former = self._machine.reserved_for
        self._carry_out(self._machine.grace_period_over(), f"{former!r} did not reconnect in time")

    # Events.

    def enter(self, producer: ConnectedProducer) -> None:
        """A client requests a producer. Its connection receives the outcome, now or later."""
        waits = producer.access_mode is AccessMode.WAIT_FOR_EXCLUSIVE
        draw = self._topic.region.environment.random.getrandbits(32) if waits else 0
        now_us = int(asyncio.get_running_loop().time() * 1_000_000) + self._wall_minus_loop_us
        why = f"{producer.producer_name!r} requested it ({producer.access_mode.label})"
        self._carry_out(self._machine.enter(producer, now_us, draw), why)

    def left(self, producer: ConnectedProducer, why: str = "it left") -> None:
        """A producer that entered is gone: closed, or its connection was lost. No effect if it never entered."""
        if not self._closed:
            self._waited.pop(producer, None)
            self._carry_out(self._machine.left(producer), f"{producer.producer_name!r} closed: {why}")

    def hand_over(self, old: ConnectedProducer, new: ConnectedProducer) -> None:
        """The client of `old` has reconnected as `new`, which enters next, or leaves."""
        self._machine.hand_over(old, new)

    def move_home(self, home: str) -> None:
        """From now on clients publish in another region only; empty: here."""
        if home != self._machine.exclusive_region:
            self._carry_out(
                self._machine.set_exclusive_region(home),
                f"clients may now publish in {home or 'this region'}",
            )

    # Queries.

    @property
    def home(self) -> str:
        """The only region in which clients may publish, if it is another one."""
        return self._machine.exclusive_region

    @property
    def epoch(self) -> int | None:
        return self._machine.epoch

    @property
    def owner(self) -> ConnectedProducer | None:
        """The producer that owns the topic, or whose grant is being stored."""
        return cast("ConnectedProducer | None", self._machine.owner)

    @property
    def awaited(self) -> str | None:
        """Name of the former owner for which the topic is reserved."""
        return self._machine.reserved_for

    @property
    def line(self) -> list[ConnectedProducer]:
        """The waiting producers, in the order of promotion."""
        return cast("list[ConnectedProducer]", self._machine.waiting())

    @property
    def waiting_count(self) -> int:
        return len(self._machine.queue)

    @property
    def is_in_use(self) -> bool:
        return self._machine.is_in_use

    def named(self, name: str) -> ConnectedProducer | None:
        """Return the producer of this name that waits or is being admitted."""
        return cast("ConnectedProducer | None", self._machine.named(name))

    # Carrying out.

    def _carry_out(self, decisions: Sequence[Decision], why: str) -> None:
        for decision in decisions:
            if isinstance(decision, Admit):
                self._admit(cast("ConnectedProducer", decision.claimant), decision.epoch)
            elif isinstance(decision, Enqueue):
                producer = cast("ConnectedProducer", decision.claimant)
                self._waited[producer] = None
                producer.connection.producers.waits(producer)
            elif isinstance(decision, Refuse):
                self._refuse(decision)
            elif isinstance(decision, Evict):
                self.evict(cast("ConnectedProducer", decision.claimant), why)
            else:
                self._begin_writing(decision.change, why)
        self._keep_line()
        self._note_ownerless()

    def _admit(self, producer: ConnectedProducer, epoch: int | None) -> None:
        if self._waited.pop(producer, False) is None:
            self._figures.promotions += 1
        producer.connection.producers.admitted(producer, epoch)

    def _refuse(self, decision: Refuse) -> None:
        producer = cast("ConnectedProducer", decision.claimant)
        waited = self._waited.pop(producer, False) is None
        if waited and decision.code is ServerError.ProducerFenced:
            self._figures.fences += 1
        producer.connection.producers.refused(producer, ProtocolError(decision.code, decision.sentence))

    def evict(self, producer: ConnectedProducer, why: str) -> None:
        """Fence a producer: it publishes nothing any more."""
        self._figures.fences += 1
        logger.info("%s: producer %s is fenced: %s", self._topic.full_name, producer.producer_name, why)
        producer.connection.producers.close(producer)
        self._topic.transactions.owner_lost(producer.producer_name, "its producer was fenced")

    def _begin_writing(self, change: GrantChange, why: str) -> None:
        self._writing = asyncio.get_running_loop().create_future()
        self._topic.region.spawn(self._write(change, why, self._writing))

    async def _write(self, change: GrantChange, why: str, writing: asyncio.Future[None]) -> None:
        try:
            grant = await self._stored(change, why)
        except StorageError as failure:
            logger.error(
                "%s: the change of exclusive access could not be stored: %s", self._topic.full_name, failure
            )
            if not self._closed:
                self._carry_out(self._machine.not_written(str(failure)), "the new owner could not be stored")
            return
        finally:
            writing.set_result(None)
        if not self._closed:
            self._note_change(change, grant, why)
            self._carry_out(self._machine.written(grant), why)

    async def _stored(self, change: GrantChange, why: str) -> AccessGrant:
        """X1: store a grant after the former owner's sends have their outcome, and before the new owner receives a
        response. StorageError when it is not durable, or when that is unknown."""
        await self.everything_issued()
        if self._closed:
            raise StorageError("the topic was unloaded", definite=True)
        grant = change.at(self._topic.log.next_entry_id)
        await self.make_durable(grant, why)
        return grant

    async def everything_issued(self) -> None:
        """Wait until all sends that were issued have their outcome."""
        self._topic.flush()
        await self._topic.issued_so_far()

    async def make_durable(self, grant: AccessGrant, why: str) -> None:
        """Store a grant durably. StorageError when it is not durable, or when that is unknown."""
        await self.store(grant, why)

    def store(self, grant: AccessGrant, why: str) -> asyncio.Future[int]:
        """Issue the put of the grant."""
        key = GrantKey.of(self._topic.full_name, grant.epoch).text
        self._store.get(key)  # after a failed put the store rejects the key until it is read (S5)
        return self._store.put(key, _encoded(grant, why, self._topic.region.environment.wall_clock_ms()))

    def _note_change(self, change: GrantChange, grant: AccessGrant, why: str) -> None:
        owner, epoch = grant.owner, grant.epoch
        if change.step is GrantStep.GRANT:
            self._owner_changes(owner, epoch)
            self._say(f"{owner!r} became the owner in epoch {epoch}, because {why}")
        elif change.step is GrantStep.BAR:
            self._say(f"epoch {epoch} has no owner, because {why}")
        elif change.step is GrantStep.END:
            self._say(f"{owner!r} is no longer the owner, because {why}; no producer waits")
        else:
            self._say(f"{owner!r} reconnected and remains the owner in epoch {epoch}")

    def _owner_changes(self, owner: str, epoch: int) -> None:
        """Abort the former owner's open transactions: the new owner does not wait for them (decision 0027)."""
        former, self._granted_to = self._granted_to, owner
        if former and former != owner:
            self._topic.transactions.owner_lost(
                former, f"{owner!r} became the owner of {self._topic.full_name} in epoch {epoch}"
            )

    def _say(self, sentence: str) -> None:
        self.standing.since_ms = self._topic.region.environment.wall_clock_ms()
        self.standing.last_change = sentence
        logger.info("%s: %s", self._topic.full_name, sentence)

    def _note_ownerless(self) -> None:
        machine, standing = self._machine, self.standing
        granted = machine.owner is not None and machine.change is None
        now = asyncio.get_running_loop().time()
        if self._waited and not granted and not machine.shared:
            if standing.ownerless_since is None:
                standing.ownerless_since = now
        elif standing.ownerless_since is not None:
            self._figures.ownerless_seconds += now - standing.ownerless_since
            standing.ownerless_since = None

    # The wait queue over a restart.

    def _keep_line(self) -> None:
        if self._machine.queue.changes == self._line_changes:
            return
        self._line_changes = self._machine.queue.changes
        if self._keeper is None:
            key, keeper = (
                LineKey(self._topic.full_name).text,
                self._topic.region.environment.components.storage.debounced_writer,
            )
            self._keeper = keeper(self._store, key, one_key(key, self._line_bytes), _line_not_kept)
        self._keeper.soon(LINE_WRITE_DELAY_SECONDS)

    def _line_bytes(self) -> bytes:
        places = self._machine.queue.entries[:LINE_REMEMBERED_MAX]
        return json.dumps([[place.claimant.producer_name, place.arrived_us] for place in places]).encode()

    # Closing.

    def close(self) -> None:
        """The topic is unloaded. Producers that are disconnected now lose nothing: their grant stays stored."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._keeper is not None:
            self._keeper.close()

    async def flush(self) -> None:
        """Make the wait queue durable. StorageError when that fails."""
        pending = None if self._keeper is None else self._keeper.flush()
        if pending is not None:
            await pending

    async def settled(self) -> None:
        """After `close`: wait until nothing is being written any more."""
        if self._writing is not None:
            await self._writing
        if self._keeper is not None:
            await self._keeper.settled()


def newest_grant(store: Store, topic: str) -> AccessGrant | None:
    """Return the newest stored grant. StorageDamaged when it cannot be read."""
    rows = store.scan(GrantKey.prefix(topic))
    return _decoded(rows[-1][0], rows[-1][1].value) if rows else None


def _encoded(grant: AccessGrant, why: str, at_ms: int) -> bytes:
    return json.dumps({**asdict(grant), "why": why, "at_ms": at_ms}).encode()


def _decoded(key: str, value: bytes) -> AccessGrant:
    try:
        row = json.loads(value)
        end = row["end_entry"]
        grant = AccessGrant(
            int(row["epoch"]), str(row["owner"]), int(row["first_entry"]), None if end is None else int(end)
        )
        if not key.endswith(f"/{grant.epoch:020d}"):
            raise ValueError(f"epoch {grant.epoch} is not that of the key")
    except _UNREADABLE as problem:
        raise StorageDamaged(
            f"{key} is damaged ({type(problem).__name__}: {problem}): the owner of the topic is unknown"
        ) from None
    return grant


def _line_before(store: Store, topic: str) -> dict[str, int]:
    stored = store.get(LineKey(topic).text)
    if stored is None:
        return {}
    try:
        return {str(name): int(arrived_us) for name, arrived_us in json.loads(stored.value)}
    except _UNREADABLE:
        logger.warning(
            "%s: the stored wait queue cannot be read; producers are queued in the order in which they "
            "reconnect",
            topic,
        )
        return {}


def _line_not_kept(failure: BaseException) -> None:
    logger.warning("the wait queue for exclusive access could not be stored: %s", failure)


def _access_rules(chosen: Compatibility) -> AccessRules:
    return AccessRules(
        first_come_first_served=chosen.follows_upstream("queue_priority"),
        promotes_once=chosen.follows_upstream("failed_promotion"),
        forgets_fenced=chosen.follows_upstream("fenced_producers"),
    )
