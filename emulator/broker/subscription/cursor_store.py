"""Stores cursors in their region's store: a key for the head, and one for each part (core/cursor/stored_format.py)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from emulator.broker.debounced_writer import KeyChanges
from emulator.core.cursor.stored_format import CursorParts, PartName
from emulator.errors import StorageDamaged
from emulator.model.stored_keys import CursorKey, CursorPartKey, StoredKey, parse_key
from emulator.storage.contract import Store

if TYPE_CHECKING:
    from emulator.broker.topic.view import TopicView

CURSOR_WRITE_DELAY_SECONDS = 0.02
"""Delay for which acknowledgements are collected before they are written, unless a caller waits for them."""


class StoredCursor:
    """Converts the changed parts of a cursor to keys and values."""

    def __init__(self, key: CursorKey, parts: CursorParts) -> None:
        self.key = key
        self.cursor = parts.cursor
        self._parts = parts

    def take_changes(self) -> KeyChanges:
        puts, deletes = self._parts.take_changes()
        return KeyChanges(
            [{self._key_text(part): value for part, value in step.items()} for step in puts],
            [self._key_text(part) for part in deletes],
        )

    def _key_text(self, part: PartName | None) -> str:
        key = self.key
        return key.text if part is None else CursorPartKey(key.topic, key.subscription, str(part)).text

    async def delete(self, store: Store) -> None:
        """Delete the stored cursor. The head is deleted first: parts without a head are ignored, but a head without its
        parts would have lost acknowledgements."""
        for key in (self.key.text, *map(self._key_text, self._parts.stored_parts)):
            store.get(key)  # after a failed write the store rejects the key until it is read (S5)
            await store.delete(key)


class DurableCursor:
    """Writes the cursor of one subscription, unless it is not durable, and reports moves of mark-delete by its
    consumers."""

    def __init__(self, topic: TopicView, stored: StoredCursor, *, durable: bool) -> None:
        name = stored.key.subscription
        self._topic = topic
        self._stored = stored
        self._cursor = stored.cursor
        self._durable = durable
        self._writer = topic.region.environment.components.storage.debounced_writer(
            topic.region.store, f"cursor {name}", stored.take_changes, topic.failed
        )
        self.on_change: Callable[[], None] | None = None
        """Called after each change of the cursor; None: not needed."""
        self.mark_delete_ms = 0
        """Time of the last reported move of mark-delete, by the region's clock; 0: none since the topic was loaded."""
        self._mark_delete_reported = stored.cursor.mark_delete
        self._version_written = stored.cursor.version

    @property
    def is_changed(self) -> bool:
        return self._cursor.version != self._version_written

    @property
    def is_writing(self) -> bool:
        """Whether a change of the cursor is not durable yet."""
        return self._durable and self._writer.is_pending

    def changed(self, now_ms: int | None = None) -> None:
        """Schedule a write of the cursor if it changed since the last call, and report a move of mark-delete."""
        if self._cursor.version == self._version_written:
            return
        self._version_written = self._cursor.version
        if self._durable:
            self._writer.soon(CURSOR_WRITE_DELAY_SECONDS)
        if self.on_change is not None:
            self.on_change()
        if self._cursor.mark_delete != self._mark_delete_reported:
            self._mark_delete_reported = self._cursor.mark_delete
            self.mark_delete_ms = self._topic.region.environment.wall_clock_ms() if now_ms is None else now_ms
            self._topic.subscriptions.mark_delete_moved(self._stored.key.subscription)

    def ignore_move(self) -> None:
        """Do not report the last move of mark-delete: consumers did not cause it."""
        self._mark_delete_reported = self._cursor.mark_delete

    async def persisted(self) -> None:
        """Wait until the cursor, as it is now, is durable. Return at once if the subscription is not durable.
        StorageError."""
        if self._durable:
            await self._writer.now()

    async def flush(self) -> None:
        """Write pending changes and wait until they are durable. StorageError."""
        pending = self._writer.flush()
        if pending is not None:
            await pending

    async def settled(self) -> None:
        """After `close`: wait until the pending write is durable or has failed."""
        await self._writer.settled()

    async def delete(self) -> None:
        """Delete the stored cursor for good."""
        await self._stored.delete(self._topic.region.store)

    def close(self) -> None:
        self._writer.close()


def stored_cursors(
    values: Iterable[tuple[StoredKey | None, bytes]], parts_type: type[CursorParts] = CursorParts
) -> dict[CursorKey, StoredCursor]:
    """Return the cursors among these keys and values; parts without a head are ignored. StorageDamaged, which names the
    key, when one cannot be read."""
    heads: dict[CursorKey, bytes] = {}
    parts: defaultdict[CursorKey, dict[PartName, bytes]] = defaultdict(dict)
    for key, value in values:
        match key:
            case CursorKey():
                heads[key] = value
            case CursorPartKey(topic, subscription, part):
                with _add_key_to_damage(key):
                    parts[CursorKey(topic, subscription)][PartName.parse(part)] = value
    found: dict[CursorKey, StoredCursor] = {}
    for cursor_key, head in heads.items():
        with _add_key_to_damage(cursor_key):
            found[cursor_key] = StoredCursor(cursor_key, parts_type.load(head, parts.get(cursor_key, {})))
    return found


@contextmanager
def _add_key_to_damage(key: StoredKey) -> Iterator[None]:
    """Add the key to StorageDamaged: the operator who repairs the record has to find it."""
    try:
        yield
    except StorageDamaged as damage:
        raise StorageDamaged(
            f"{key.text} is damaged ({damage}): repair it, or delete it and its parts to recreate the subscription"
        ) from None


def cursors_of_topic(store: Store, topic: str, parts_type: type[CursorParts]) -> list[StoredCursor]:
    """Return the stored cursors of a topic, sorted by subscription. Also issues the rest of interrupted deletions.
    StorageDamaged when a cursor cannot be read."""
    rows = [
        (parse_key(text), versioned.value)
        for kind in (CursorKey, CursorPartKey)
        for text, versioned in store.scan(kind.prefix(topic))
    ]
    found = stored_cursors(rows, parts_type)
    for key, _ in rows:
        if isinstance(key, CursorPartKey) and CursorKey(key.topic, key.subscription) not in found:
            # If the deletion fails, the next load finds the key again.
            store.delete(key.text).add_done_callback(lambda done: done.exception())
    return [found[key] for key in sorted(found, key=lambda key: key.subscription)]
