"""The visibility of entries: hidden entries, and messages whose producer named the regions that receive them.

    hidden       markers, messages of aborted transactions, and ids without an entry: no consumer receives them, and
                 they do not count as backlog
    restricted   (origin, regions that the producer named) -> ids of the entries that no other region receives

Both are sets of ids in parts of 4,096 (`core.cursor.id_set`). A changed part is written, and removed from memory when
it is durable and every cursor is beyond it (`forget_below`). Before a cursor moves below the parts in memory the
missing parts are loaded (`missing_parts`, `remember`), so all parts from the lowest cursor on are in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from emulator.core.cursor.id_set import PART_BITS, IdSet, runs_of
from emulator.errors import CheckpointDamaged

Audience = tuple[str, tuple[str, ...]]
"""(region in which a message was published, regions that its producer named)."""


class Visibility:
    """The visibility of the entries of one topic in one region."""

    def __init__(self) -> None:
        self.hidden = IdSet()
        self.restricted: dict[Audience, IdSet] = {}
        self.known_from = 0
        """Id from which on all parts are in memory. Invariant: the first id of a part."""
        self.last_aborted = -1
        """Highest id of a message whose transaction was aborted; -1: none was. The metadata of a later entry alone
        shows whether it is hidden."""
        self._changed: dict[int, int] = {}
        """Number of a part in memory -> end of the log when the part last changed."""
        self._highest_changed = -1
        """Highest number that `_changed` ever had."""
        self._unwritten: dict[int, None] = {}
        """Numbers of parts that changed since they were last taken for writing."""
        self._writing: dict[int, None] = {}
        """Numbers of parts that were taken for writing and are not known to be durable. Both are dictionaries, because
        an empty set uses three times as much memory, in each loaded topic."""

    # Updates.

    def hide(self, entry_id: int) -> None:
        self.hidden.add(entry_id)
        self._touch(entry_id)

    def hide_range(self, first: int, last: int) -> None:
        """Hide the ids first..last, both included, which never have an entry."""
        self.hidden.add_range(first, last)
        for number in range(first >> PART_BITS, (last >> PART_BITS) + 1):
            self._touch(min(last, (number + 1 << PART_BITS) - 1))

    def hide_aborted(self, first: int, last: int, marker_entry_id: int) -> None:
        """Hide the messages first..last, both included, that a marker aborted. Stored parts from before the marker do
        not cover these ids (TS3)."""
        self.hidden.add_range(first, last)
        self.last_aborted = max(self.last_aborted, last)
        for number in range(first >> PART_BITS, (last >> PART_BITS) + 1):
            self._touch(min(last, (number + 1 << PART_BITS) - 1), marker_entry_id + 1)

    def mark_unwritten_from(self, entry_id: int) -> None:
        """Mark the changed parts from the part of this id on as unwritten. They may have been written while a
        transaction was open, and then cover fewer ids than the log has."""
        for number in range(entry_id >> PART_BITS, self._highest_changed + 1):
            if number in self._changed:
                self._unwritten[number] = None

    def restrict(self, entry_id: int, audience: Audience) -> None:
        """Record that only the regions of an audience receive an entry."""
        ids = self.restricted.get(audience)
        if ids is None:
            ids = self.restricted[audience] = IdSet()
        ids.add(entry_id)
        self._touch(entry_id)

    def _touch(self, entry_id: int, end: int = 0) -> None:
        """Mark the part of an entry as changed. `end`: end of the log if not directly after the entry."""
        number = entry_id >> PART_BITS
        self._changed[number] = end or entry_id + 1
        if number > self._highest_changed:
            self._highest_changed = number
        self._unwritten[number] = None

    def forget_below(self, lowest_needed: int) -> None:
        """Remove durable parts from memory that lie below `lowest_needed`, the lowest cursor."""
        number = self.known_from >> PART_BITS
        while (number + 1) << PART_BITS <= lowest_needed and number not in self._unwritten | self._writing:
            number += 1
        self.known_from = number << PART_BITS
        for number in [one for one in self._changed if one << PART_BITS < self.known_from]:
            del self._changed[number]
        self.hidden.drop_parts_below(self.known_from)
        for audience, ids in list(self.restricted.items()):
            ids.drop_parts_below(self.known_from)
            if not ids:
                del self.restricted[audience]

    # Queries.

    def restricted_to(self, audiences: Iterable[Audience], first: int, last: int) -> Iterator[int]:
        """Yield the ids in first..last, both included, of entries for one of these audiences."""
        for audience in audiences:
            yield from self.restricted[audience].between(first, last)

    # Storing (TS2, TS3).

    @property
    def changed(self) -> dict[int, int]:
        """Number of a part -> end of the log when the part last changed, for the checkpoint's head."""
        return dict(self._changed)

    def take_unwritten(self, end: int) -> dict[int, bytes]:
        """Return the changed parts, complete for all ids below `end`, and mark them as being written. The caller
        reports the `outcome` of each."""
        numbers, self._unwritten = sorted(self._unwritten), {}
        self._writing.update(dict.fromkeys(numbers))
        return {number: self._part(number, end) for number in numbers}

    def outcome(self, number: int, is_durable: bool) -> None:
        """Note the outcome of writing a part."""
        self._writing.pop(number, None)
        if not is_durable:
            self._unwritten[number] = None

    @property
    def is_writing(self) -> bool:
        """Whether a part is being written."""
        return bool(self._writing)

    def missing_parts(self, from_entry_id: int) -> range:
        """Return the numbers of the parts to load, in this order, before a cursor may move to `from_entry_id`."""
        return range((self.known_from >> PART_BITS) - 1, (max(0, from_entry_id) >> PART_BITS) - 1, -1)

    def remember(self, number: int, part: bytes | None) -> None:
        """Load a dropped part into memory. `part`: its stored bytes; None: it was never stored."""
        if part is not None:
            self.load_part(number, part)
        self.known_from = number << PART_BITS

    def _part(self, number: int, end: int) -> bytes:
        state = {
            "end": end,
            "hidden": f"{self.hidden.parts.get(number, 0):x}",
            "restricted": [
                [origin, regions, f"{ids.parts[number]:x}"]
                for (origin, regions), ids in self.restricted.items()
                if number in ids.parts
            ],
        }
        return json.dumps(state, separators=(",", ":")).encode()

    def load_part(self, number: int, part: bytes) -> int:
        """Add the ids of a stored part; a union, so older and newer values may be loaded in any order. Returns the id
        below which the part is complete. Raises CheckpointDamaged when it cannot be decoded: a guess would skip
        messages."""
        base = number << PART_BITS
        try:
            state = json.loads(part)
            found = [(self.hidden, state["hidden"])]
            for origin, regions, bits in state["restricted"]:
                audience = (str(origin), tuple(map(str, regions)))
                found.append((self.restricted.setdefault(audience, IdSet()), bits))
            for ids, bits in found:
                for first, last in runs_of(int(bits, 16)):
                    ids.add_range(base + first, base + last)
            return int(state["end"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            raise CheckpointDamaged(
                f"part {number} of a checkpoint cannot be read: {type(problem).__name__}: {problem}"
            ) from None

    def restored(self, number: int, changed: int) -> None:
        """Note that a part was loaded. `changed`: end of the log when it last changed, from the checkpoint's head."""
        self._changed[number] = changed
        self._highest_changed = max(self._highest_changed, number)
