"""The entries of a log that some readers never receive: markers, and messages whose producer named regions.

    hidden       markers, messages of aborted transactions, and ids that no entry has: no consumer ever receives one,
                 and none is backlog
    restricted   (origin, regions its producer named) -> entries that other regions never receive

Both are sets of ids in parts of 4,096 (`core.cursor.id_set`). A part is written when it changed, and dropped from
memory when every cursor is beyond it and it is durable (`forget_below`). Before a cursor moves below the parts in
memory the missing ones are loaded (`missing_parts`, `remember`), so memory always reaches down to the lowest cursor.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from emulator.core.cursor.id_set import PART_BITS, IdSet, runs_of
from emulator.errors import CheckpointDamaged

Audience = tuple[str, tuple[str, ...]]
"""(region where a message was first published, regions its sender named)."""


class Visibility:
    """Of one topic in one region."""

    def __init__(self) -> None:
        self.hidden = IdSet()
        self.restricted: dict[Audience, IdSet] = {}
        self.known_from = 0
        """Everything from this id on is remembered. Invariant: the first id of a part."""
        self.last_aborted = -1
        """The highest id of a message whose transaction was aborted; -1: there never was one. Entries beyond say
        themselves whether they are hidden."""
        self._changed: dict[int, int] = {}
        """Number of a part -> end of the log when it changed last. For parts that are remembered."""
        self._unwritten: set[int] = set()
        """Changed since they were taken for writing."""
        self._writing: set[int] = set()
        """Taken, and not known to be durable."""

    # Changing.

    def hide(self, entry_id: int) -> None:
        self.hidden.add(entry_id)
        self._touch(entry_id)

    def hide_range(self, first: int, last: int) -> None:
        """Ids of first..last, both included, that no entry has and none will have."""
        self.hidden.add_range(first, last)
        for number in range(first >> PART_BITS, (last >> PART_BITS) + 1):
            self._touch(min(last, (number + 1 << PART_BITS) - 1))

    def hide_aborted(self, first: int, last: int, marker_entry_id: int) -> None:
        """Messages of an aborted transaction, first..last, both included; the marker says so. Parts that do not know
        of the marker do not count for these ids (TS3)."""
        self.hidden.add_range(first, last)
        self.last_aborted = max(self.last_aborted, last)
        for number in range(first >> PART_BITS, (last >> PART_BITS) + 1):
            self._touch(min(last, (number + 1 << PART_BITS) - 1), marker_entry_id + 1)

    def vouch_from(self, entry_id: int) -> None:
        """Parts from this id on were written while a transaction was open there: then they vouched for less than they
        said. Have them written again."""
        first = entry_id >> PART_BITS
        self._unwritten.update(number for number in self._changed if number >= first)

    def restrict(self, entry_id: int, audience: Audience) -> None:
        ids = self.restricted.get(audience)
        if ids is None:
            ids = self.restricted[audience] = IdSet()
        ids.add(entry_id)
        self._touch(entry_id)

    def _touch(self, entry_id: int, end: int = 0) -> None:
        """`end`: of the log, when it lies beyond the entry."""
        number = entry_id >> PART_BITS
        self._changed[number] = end or entry_id + 1
        self._unwritten.add(number)

    def forget_below(self, lowest_needed: int) -> None:
        """No cursor is below `lowest_needed`. Only what is durable is let go."""
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

    # Asking.

    def restricted_to(self, audiences: Iterable[Audience], first: int, last: int) -> Iterator[int]:
        """Ids of first..last, both included, of entries for one of these audiences."""
        for audience in audiences:
            yield from self.restricted[audience].between(first, last)

    # Storing (TS2, TS3).

    @property
    def changed(self) -> dict[int, int]:
        """What the checkpoint's head says of parts: number -> end of the log when the part changed last."""
        return dict(self._changed)

    def take_unwritten(self, end: int) -> dict[int, bytes]:
        """Parts to be written, each true for everything below `end`; tell the `outcome` of each."""
        numbers, self._unwritten = sorted(self._unwritten), set()
        self._writing.update(numbers)
        return {number: self._part(number, end) for number in numbers}

    def outcome(self, number: int, is_durable: bool) -> None:
        """Of writing a part."""
        self._writing.discard(number)
        if not is_durable:
            self._unwritten.add(number)

    @property
    def is_writing(self) -> bool:
        """Whether the outcome of some part is awaited."""
        return bool(self._writing)

    def missing_parts(self, from_entry_id: int) -> range:
        """Numbers of the parts to load, in this order, before a cursor may stand at `from_entry_id`."""
        return range((self.known_from >> PART_BITS) - 1, (max(0, from_entry_id) >> PART_BITS) - 1, -1)

    def remember(self, number: int, part: bytes | None) -> None:
        """Bring a part back that was let go; None when nothing was ever stored of it."""
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
        """Put in what a part says; a union, so old and new forms may come in any order. Returns the end below which it
        is true. CheckpointDamaged when it cannot be read: a guess would skip messages."""
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
        """A part was loaded with the checkpoint whose head says this of it."""
        self._changed[number] = changed
