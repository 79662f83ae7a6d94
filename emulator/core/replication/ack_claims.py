"""Individual acknowledgements of one region as a value: the entries that a subscription acknowledged there, by origin
(docs/components/individual-acks.md).

A claim says that consumers acknowledged these entries; it says nothing of any other entry. So a claim that is repeated,
late or incomplete does no harm, and the newest claim of a region replaces older ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, Self

from emulator.core.replication.origins import Origin, OriginLedger, OriginSet
from emulator.model.markers import AckedEntries

BATCH_BITS_MAX: Final = 1 << 20
"""Maximum number of messages of a batch that is claimed in part."""


class AckClaim:
    """Entries that a subscription has acknowledged in one region. Unchanged after its creation."""

    __slots__ = ("_size", "batches", "entries")

    def __init__(self, entries: OriginSet, batches: Mapping[Origin, int] | None = None) -> None:
        self.entries = entries
        self.batches: dict[Origin, int] = dict(batches or {})
        """Partly acknowledged batch -> its messages that are not acknowledged, one bit each; not 0."""
        self._size: int | None = None

    def __bool__(self) -> bool:
        return bool(self.entries or self.batches)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AckClaim):
            return NotImplemented
        return self.entries == other.entries and self.batches == other.batches

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"AckClaim({self.as_json()})"

    @property
    def size(self) -> int:
        """Number of ranges and batches; computed once."""
        if self._size is None:
            self._size = self.entries.ranges + len(self.batches)
        return self._size

    def open_bits(self, origin: Origin) -> int | None:
        """Return the messages of an entry that are not acknowledged, one bit each; 0: the whole entry is acknowledged;
        None: nothing is claimed of it."""
        return 0 if origin in self.entries else self.batches.get(origin)

    def is_within(self, others: Iterable[AckClaim]) -> bool:
        """Whether the union of other claims contains this one."""
        entries: OriginSet = OriginSet()
        batches: set[tuple[Origin, int]] = set()
        for other in others:
            entries = entries.union(other.entries)
            batches.update(other.batches.items())
        return _is_subset(self.entries, entries) and all(
            batch in batches or batch[0] in entries for batch in self.batches.items()
        )

    def limited(self, size_max: int) -> AckClaim:
        """Return the claim without what saves the fewest redeliveries, so that its `size` is at most `size_max`: first
        batches, which are redelivered in part, then the smallest ranges."""
        if self.size <= size_max:
            return self
        entries = self.entries.largest_ranges(size_max)
        batches = dict(islice(self.batches.items(), size_max - entries.ranges))
        return AckClaim(entries, batches)

    # Markers.

    def to_marker(self) -> tuple[AckedEntries, ...]:
        ledgers = {*self.entries.ids, *(OriginLedger(*origin[:2]) for origin in self.batches)}
        return tuple(self._of_ledger(ledger) for ledger in sorted(ledgers))

    def _of_ledger(self, ledger: OriginLedger) -> AckedEntries:
        ids = self.entries.ids.get(ledger)
        batches = sorted(
            (origin.entry, bits) for origin, bits in self.batches.items() if origin[:2] == ledger
        )
        return AckedEntries(*ledger, tuple(ids.runs()) if ids else (), tuple(batches))

    @classmethod
    def from_marker(
        cls, acked: Iterable[AckedEntries], newest: Callable[[str, int], int], size_max: int
    ) -> Self:
        """Return what a marker claims of entries that exist here.

        `newest`: (region, ledger) -> the highest entry id of that origin in this region's log, -1 if there is none.
        Later ids are dropped: a claim must not concern future messages. At most `size_max` ranges and batches
        remain, as in `limited`."""
        entries, batches = OriginSet(), {}
        for each in acked:
            end = newest(each.region, each.ledger)
            for first, last in each.ranges:
                entries.add_range(each.region, each.ledger, first, min(last, end))
            for entry_id, bits in each.batches:
                if entry_id <= end and 0 < bits.bit_length() <= BATCH_BITS_MAX:
                    batches[Origin(each.region, each.ledger, entry_id)] = bits
        claim = cls(entries, batches).limited(size_max)
        return cls(claim.entries, claim.batches)

    # JSON.

    def as_json(self) -> dict[str, Any]:
        """Return the stored form."""
        batches = [[*origin, f"{bits:x}"] for origin, bits in self.batches.items()]
        return {"entries": self.entries.as_json(), "batches": batches}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return a stored claim. Raises ValueError, KeyError or TypeError for any other value."""
        batches = {
            Origin(str(region), int(ledger), int(entry)): int(bits, 16)
            for region, ledger, entry, bits in value["batches"]
        }
        return cls(OriginSet.parse(value["entries"]), batches)


class StoredClaim(NamedTuple):
    """A claim of another region that was not applied to all entries of this region's log."""

    claim: AckClaim
    end: int
    """Exclusive end of this region's log when the claim arrived. The claim concerns no later entry."""


class StoredClaims(dict[str, StoredClaim]):
    """The stored claims of one cursor, by region. Its methods return whether something changed."""

    def __init__(self) -> None:
        super().__init__()
        self.first = 0
        """Smallest id that claims concern: after a seek, only entries that are stored later."""
        self.has_changes = False
        """Whether the claims differ from the stored ones."""

    def replace(self, region: str, stored: StoredClaim | None) -> bool:
        """Replace the claim of a region; None: there is none."""
        if self.get(region) == stored:
            return False
        if stored is None:
            del self[region]
        else:
            self[region] = stored
        self.has_changes = True
        return True

    def drop_passed(self, mark_delete: int) -> bool:
        """Remove the claims that concern only entries up to mark-delete."""
        passed = [region for region, stored in self.items() if stored.end <= mark_delete + 1]
        return sum([self.replace(region, None) for region in passed]) > 0

    def seek(self, end: int) -> None:
        """Remove all claims. Later ones do not concern entries below `end`."""
        self.clear()
        self.first, self.has_changes = max(self.first, end), False

    # JSON.

    def as_json(self) -> dict[str, Any]:
        """Return the stored form of the claims, without `first`."""
        return {region: {**claim.as_json(), "end": end} for region, (claim, end) in self.items()}

    def load(self, value: Mapping[str, Any]) -> None:
        """Add stored claims. Raises ValueError, KeyError or TypeError for another value."""
        for region, stored in value.items():
            self[region] = StoredClaim(AckClaim.from_json(stored), int(stored["end"]))


def _is_subset(entries: OriginSet, of: OriginSet) -> bool:
    for ledger, ids in entries.ids.items():
        others = of.ids.get(ledger)
        if others is None:
            return False
        for number, bits in ids.parts.items():
            if bits & ~others.parts.get(number, 0):
                return False
    return True
