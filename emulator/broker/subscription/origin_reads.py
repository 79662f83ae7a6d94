"""Reads the origins of entries that an update of another region may not acknowledge.

An update that does not name a region is applied twice: at once, so that every entry which may be a message of that
region stays unacknowledged, and again after the origins of those entries were read from the log. The second time only
messages of that region stay unacknowledged (`core.topic.entry_origins`). Both are safe, and moving forward only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from emulator.broker.topic.view import SubscriptionsView, TopicView
from emulator.core.topic.entry_origins import OriginRange
from emulator.errors import StorageError
from emulator.model.markers import SubscriptionUpdate

if TYPE_CHECKING:
    from emulator.broker.subscription.subscription import Subscription

READ_ENTRIES = 1_000
READ_BYTES = 1_048_576


class Cursors(SubscriptionsView, Protocol):
    """The subscriptions of a topic, as this module needs them."""

    def items(self) -> Iterable[tuple[str, Subscription]]: ...


class TopicWithCursors(TopicView, Protocol):
    """The topic, as this module needs it."""

    @property
    def subscriptions(self) -> Cursors: ...


Answer = Callable[["Subscription", SubscriptionUpdate, str, int], None]
"""(subscription, update, source region, own entry id)."""


class WaitingUpdate(NamedTuple):
    """An update that is applied again when the origins are known."""

    subscription: Subscription
    update: SubscriptionUpdate
    source: str
    own_entry_id: int
    generation: int
    """Generation of the cursor when the update was applied first: a seek makes the update obsolete."""

    @property
    def named(self) -> set[str]:
        """The sender and all regions that the update names."""
        return {self.source, *(region for region, _ in self.update.positions)}


class OriginReads:
    """The reads of one topic: one at a time."""

    def __init__(self, topic: TopicWithCursors, answer: Answer, *, applies_always: bool) -> None:
        """`answer`: sends the position in turn after an update moved it. `applies_always`: whether updates also move
        subscriptions that are not replicated here."""
        self._topic = topic
        self._components = topic.region.environment.components.replication
        self._answer = answer
        self._applies_always = applies_always
        self._waiting: dict[tuple[str, str], WaitingUpdate] = {}
        """(subscription, source region) -> newest update that waits for origins."""
        self._reading = False
        self._closed = False

    def applied(
        self, subscription: Subscription, update: SubscriptionUpdate, source: str, own_id: int
    ) -> None:
        """Apply an update again after its origins were read, if any of them is unknown. It was applied just now."""
        waiting = WaitingUpdate(subscription, update, source, own_id, subscription.cursor.generation)
        if self._unread(waiting):
            self._waiting[subscription.name, source] = waiting
            if not self._reading:
                self._reading = True
                self._topic.region.spawn(self._read_waiting())

    @property
    def is_reading(self) -> bool:
        """Whether an update waits for the origins of entries."""
        return self._reading

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()

    def _unread(self, waiting: WaitingUpdate) -> list[OriginRange]:
        state = self._topic.state
        if waiting.own_entry_id >= state.readable_end:
            return []
        first = waiting.subscription.cursor.mark_delete + 1
        return state.unread_origins(first, waiting.own_entry_id, waiting.named)

    async def _read_waiting(self) -> None:
        try:
            while self._waiting:
                waiting = self._waiting.pop(next(iter(self._waiting)))
                for one in self._unread(waiting):
                    await self._read(one)
                if self._is_valid(waiting):
                    self._apply_again(waiting)
        except StorageError:
            self._waiting.clear()  # the next update reads again
        finally:
            self._reading = False

    def _is_valid(self, waiting: WaitingUpdate) -> bool:
        subscription, cursor = waiting.subscription, waiting.subscription.cursor
        if self._closed or subscription.closed or cursor.generation != waiting.generation:
            return False
        return self._components.takes_updates(cursor, subscription.durable, self._applies_always)

    def _apply_again(self, waiting: WaitingUpdate) -> None:
        subscription, update, source, entry_id, _ = waiting
        subscription.move(
            lambda cursor: self._topic.state.follow(
                cursor,
                source,
                entry_id,
                named=waiting.named,
                never=self._components.never_reaches,
                apply=self._components.apply_update,
            )
        )
        self._answer(subscription, update, source, entry_id)

    async def _read(self, unread: OriginRange) -> None:
        """Read the origins of a range in chunks, so that other work continues."""
        state, at = self._topic.state, unread.first
        cursors = [one.cursor for _, one in self._topic.subscriptions.items()]
        state.origins.forget_below(min((one.mark_delete for one in cursors), default=-1))
        while at <= unread.last and not self._closed:
            entries = await self._topic.reading.read(at, READ_ENTRIES, READ_BYTES)
            last = min(entries[-1].entry_id, unread.last) if entries else unread.last
            state.origins.learn(
                OriginRange(unread.region, at, last),
                [(one.entry_id, one.info.replicated_from) for one in entries if one.entry_id <= last],
            )
            at = last + 1
            await asyncio.sleep(0)
