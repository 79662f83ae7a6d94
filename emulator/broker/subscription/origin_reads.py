"""Reads the origins of entries that an update of another region may not acknowledge.

An update that does not name a region is applied twice: at once, so that every entry which may be a message of that
region stays unacknowledged, and again after the origins of those entries were read from the log. The second time only
messages of that region stay unacknowledged (`core.topic.entry_origins`). Both are safe, and moving forward only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from emulator.broker.topic.view import TopicView
from emulator.core.topic.entry_origins import OriginRange
from emulator.errors import StorageError
from emulator.model.markers import SubscriptionUpdate

if TYPE_CHECKING:
    from emulator.broker.subscription.subscription import Subscription

READ_ENTRIES = 1_000
READ_BYTES = 1_048_576


class WaitingUpdate(NamedTuple):
    """An update that is applied again when the origins are known."""

    subscription: Subscription
    source: str
    update: SubscriptionUpdate
    own_entry_id: int
    seeks: int
    """Number of seeks of the subscription when the update was applied first: a seek makes it obsolete."""

    @property
    def named(self) -> set[str]:
        """The sender and all regions that the update names."""
        return {self.source, *(region for region, _ in self.update.positions)}


class OriginReads:
    """The reads of one topic: one at a time."""

    def __init__(self, topic: TopicView, apply_again: Callable[[WaitingUpdate], None]) -> None:
        self._topic = topic
        self._apply_again = apply_again
        self._waiting: dict[tuple[str, str], WaitingUpdate] = {}
        """(subscription, source region) -> newest update that waits for origins."""
        self._reading = False
        self._closed = False

    def applied(self, subscription: Subscription, source: str, update: SubscriptionUpdate, own_id: int) -> None:
        """Apply an update again after its origins were read, if any of them is unknown. It was applied just now."""
        waiting = WaitingUpdate(subscription, source, update, own_id, subscription.seeks)
        if self._unread(waiting):
            self._waiting[subscription.name, source] = waiting
            if not self._reading:
                self._reading = True
                self._topic.region.spawn(self._read_waiting())

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
        subscription = waiting.subscription
        return not (self._closed or subscription.closed) and subscription.seeks == waiting.seeks

    async def _read(self, unread: OriginRange) -> None:
        """Read the origins of a range in chunks, so that other work continues."""
        state, at = self._topic.state, unread.first
        state.origins.forget_below(min(one.cursor.mark_delete for one in self._topic.subscriptions.values()))
        while at <= unread.last and not self._closed:
            entries = await self._topic.reading.read(at, READ_ENTRIES, READ_BYTES)
            last = min(entries[-1].entry_id, unread.last) if entries else unread.last
            state.origins.learn(
                OriginRange(unread.region, at, last),
                [(one.entry_id, one.info.replicated_from) for one in entries if one.entry_id <= last],
            )
            at = last + 1
            await asyncio.sleep(0)
