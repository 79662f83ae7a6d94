"""Store a cursor in its region's store: the keys of its head and parts (core/cursor/stored_format.py)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from emulator.broker.debounced_writer import KeyChanges
from emulator.core.cursor.stored_format import CursorParts, PartName
from emulator.errors import StorageDamaged
from emulator.model.stored_keys import CursorKey, CursorPartKey, StoredKey, parse_key
from emulator.storage.contract import Store


class StoredCursor:
    """Converts the changed parts of a cursor to keys and values."""

    def __init__(self, key: CursorKey, parts: CursorParts) -> None:
        self.key = key
        self.cursor = parts.cursor
        self._parts = parts

    def take_changes(self) -> KeyChanges:
        puts, deletes = self._parts.take_changes()
        return KeyChanges(
            [{self._text(part): value for part, value in step.items()} for step in puts],
            [self._text(part) for part in deletes],
        )

    def _text(self, part: PartName | None) -> str:
        key = self.key
        return key.text if part is None else CursorPartKey(key.topic, key.subscription, str(part)).text

    async def delete(self, store: Store) -> None:
        """Delete it for good. The head goes first: parts without a head are ignored, but a head without its parts would
        have lost acknowledgements."""
        for key in (self.key.text, *map(self._text, self._parts.stored_parts)):
            store.get(key)  # after a failed write the store rejects the key until it is read (S5)
            await store.delete(key)


def stored_cursors(
    values: Iterable[tuple[StoredKey | None, bytes]], parts_type: type[CursorParts] = CursorParts
) -> dict[CursorKey, StoredCursor]:
    """Return the cursors among these keys and values. StorageDamaged, with its key, for one that cannot be read."""
    heads: dict[CursorKey, bytes] = {}
    parts: defaultdict[CursorKey, dict[PartName, bytes]] = defaultdict(dict)
    for key, value in values:
        match key:
            case CursorKey():
                heads[key] = value
            case CursorPartKey(topic, subscription, part):
                with _telling(key):
                    parts[CursorKey(topic, subscription)][PartName.parse(part)] = value
    found: dict[CursorKey, StoredCursor] = {}
    for cursor_key, head in heads.items():
        with _telling(cursor_key):
            found[cursor_key] = StoredCursor(cursor_key, parts_type.load(head, parts.get(cursor_key, {})))
    return found


@contextmanager
def _telling(key: StoredKey) -> Iterator[None]:
    """Add the key to StorageDamaged: the operator who repairs the record has to find it."""
    try:
        yield
    except StorageDamaged as damage:
        raise StorageDamaged(
            f"{key.text} is damaged ({damage}): repair it, or delete it and its parts to recreate the subscription"
        ) from None


def cursors_of_topic(store: Store, topic: str, parts_type: type[CursorParts]) -> list[StoredCursor]:
    """Return the stored durable subscriptions of a topic, by name. Finishes interrupted deletions."""
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
