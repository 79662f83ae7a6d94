"""Sets of entries by their origin, which all regions name alike.

The origin of an entry is its position in the log of the region where it was published: its own position there, the
source position that the replicator appended elsewhere. Every region forwards only entries that originate there, in
order and without gaps. So in every log the entries of one origin region ascend, and a set of messages is a set of entry
ids per region and ledger. An entry without a known origin (a real Pulsar region may send some) is in no set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Self

from emulator.core.cursor.id_set import IdSet
from emulator.model.values import AFTER_EVERYTHING, Position, is_valid_name

RANGES_MAX: Final = 100_000
"""Default maximum number of ranges of a parsed set."""
IDS_MAX: Final = 1 << 26
"""Maximum number of ids of a parsed set. A full set of this size takes about 9 MB."""


class Origin(NamedTuple):
    """The place where an entry was published. Origins of one region are ordered as its log."""

    region: str
    ledger: int
    entry: int

    @property
    def position(self) -> Position:
        """Position in the log of the origin region."""
        return Position(self.ledger, self.entry)

    def __str__(self) -> str:
        return f"{self.region}:{self.ledger}:{self.entry}"

    @classmethod
    def of(cls, region: str, position: Position) -> Origin:
        return cls(region, *position)


class OriginLedger(NamedTuple):
    """One ledger of one region. A topic that is deleted and created again has another ledger."""

    region: str
    ledger: int

    def __str__(self) -> str:
        return f"{self.region}:{self.ledger}"

    @classmethod
    def parse(cls, text: str) -> OriginLedger:
        """Parse the result of `str`. Raises ValueError for any other text."""
        region, separator, ledger = text.rpartition(":")
        if not (separator and is_valid_name(region) and ledger.isascii() and ledger.isdecimal()):
            raise ValueError(f"{text[:100]!r} must be a region and a ledger, like us-east:5")
        if len(ledger) > 19 or int(ledger) > AFTER_EVERYTHING.ledger:
            raise ValueError(f"{text[:100]!r} must have a ledger of at most {AFTER_EVERYTHING.ledger}")
        return cls(region, int(ledger))


OriginSetJson = dict[str, list[list[int]]]
"""`{"us-east:5": [[first, last], …]}`: maximal ranges, both ends included, in ascending order."""


class OriginSet:
    """A set of entries by origin. `union` and `of` return new sets; only the owner of a set adds to it."""

    __slots__ = ("ids",)

    def __init__(self) -> None:
        self.ids: dict[OriginLedger, IdSet] = {}
        """Invariant: no empty set of ids."""

    @classmethod
    def of(cls, origins: Iterable[Origin]) -> Self:
        found = cls()
        for origin in origins:
            found.add(origin)
        return found

    # Updates by the owner.

    def add(self, origin: Origin) -> bool:
        """Add an entry. Returns False when it was in the set."""
        return self._ids(OriginLedger(origin.region, origin.ledger)).add(origin.entry)

    def discard(self, origin: Origin) -> bool:
        """Remove an entry. Returns False when it was not in the set."""
        ledger = OriginLedger(origin.region, origin.ledger)
        ids = self.ids.get(ledger)
        if ids is None or not ids.discard(origin.entry):
            return False
        if not ids:
            del self.ids[ledger]
        return True

    def add_range(self, region: str, ledger: int, first: int, last: int) -> None:
        """Add the entries first..last of one ledger, both included. Nothing is added if last < first."""
        if first <= last:
            self._ids(OriginLedger(region, ledger)).add_range(first, last)

    def _ids(self, ledger: OriginLedger) -> IdSet:
        return self.ids.setdefault(ledger, IdSet())

    # Queries.

    def __contains__(self, origin: Origin) -> bool:
        ids = self.ids.get(OriginLedger(origin.region, origin.ledger))
        return ids is not None and origin.entry in ids

    def __bool__(self) -> bool:
        return bool(self.ids)

    def __len__(self) -> int:
        return sum(map(len, self.ids.values()))

    def __iter__(self) -> Iterator[Origin]:
        for ledger, ids in sorted(self.ids.items(), key=lambda item: item[0]):
            for entry in ids:
                yield Origin(*ledger, entry)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OriginSet):
            return NotImplemented
        return _parts(self) == _parts(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"OriginSet({self.as_json()})"

    @property
    def regions(self) -> set[str]:
        """Regions where the entries originate."""
        return {ledger.region for ledger in self.ids}

    def lowest(self, region: str) -> Position | None:
        """Return the lowest position in the log of a region; None: no entry of the set originates there."""
        ledgers = [ledger.ledger for ledger in self.ids if ledger.region == region]
        if not ledgers:
            return None
        ledger = min(ledgers)
        return Position(ledger, self.ids[OriginLedger(region, ledger)].first)

    def count_in(self, other: OriginSet) -> int:
        """Return the number of entries that are also in another set."""
        return sum(
            ids.count(0, AFTER_EVERYTHING.entry, among=other.ids[ledger])
            for ledger, ids in self.ids.items()
            if ledger in other.ids
        )

    @property
    def ranges(self) -> int:
        """Number of maximal ranges."""
        return sum(len(ids.runs()) for ids in self.ids.values())

    # New sets.

    def union(self, other: OriginSet) -> OriginSet:
        """Return the entries of both sets."""
        both = OriginSet()
        for one in (self, other):
            for ledger, ids in one.ids.items():
                both._ids(ledger).unite(ids)
        return both

    def largest_ranges(self, ranges_max: int) -> OriginSet:
        """Return the set without its smallest ranges, so that `ranges_max` remain, >= 0. Of equally large ones the
        first ones remain, by region, ledger and id. The set itself if it has no more ranges."""
        found = [(ledger, *run) for ledger in sorted(self.ids) for run in self.ids[ledger].runs()]
        if len(found) <= ranges_max:
            return self
        found.sort(key=lambda run: run[1] - run[2])
        kept = OriginSet()
        for ledger, first, last in found[:ranges_max]:
            kept.add_range(*ledger, first, last)
        return kept

    # JSON.

    def as_json(self) -> OriginSetJson:
        return {str(ledger): [list(run) for run in self.ids[ledger].runs()] for ledger in sorted(self.ids)}

    @classmethod
    def parse(cls, value: object, *, ranges_max: int = RANGES_MAX, ids_max: int = IDS_MAX) -> Self:
        """Parse a claim of the form of `as_json`. Ranges of a ledger may have gaps, not overlap.

        Raises ValueError, naming the place, the value and the rule: also for more than `ranges_max` ranges or `ids_max`
        ids."""
        if not isinstance(value, Mapping):
            raise ValueError(f"{_short(value)} must be an object of ranges by region and ledger")
        found, ranges, ids = cls(), 0, 0
        for key, runs in value.items():
            ledger = OriginLedger.parse(str(key))
            if ledger in found.ids:
                raise ValueError(f"{key!r} must occur once")
            if not isinstance(runs, list) or not runs:
                raise ValueError(f"{key}: {_short(runs)} must be a list of ranges [first, last]")
            ranges += len(runs)
            if ranges > ranges_max:
                raise ValueError(f"{key}: must have at most {ranges_max:,} ranges in total")
            for first, last in _checked(str(key), runs):
                ids += last - first + 1
                if ids > ids_max:
                    raise ValueError(f"{key}: [{first}, {last}]: must have at most {ids_max:,} ids in total")
                found.add_range(*ledger, first, last)
        return found


def _parts(origins: OriginSet) -> dict[OriginLedger, dict[int, int]]:
    return {ledger: ids.parts for ledger, ids in origins.ids.items()}


def _checked(place: str, runs: list[object]) -> Iterator[tuple[int, int]]:
    """Yield ranges. Raises ValueError for one that is no range, or not beyond the one before."""
    beyond = -1
    for run in runs:
        match run:
            case [int(first), int(last)] if not isinstance(first, bool) and not isinstance(last, bool):
                if not beyond < first <= last <= AFTER_EVERYTHING.entry:
                    raise ValueError(f"{place}: {_short(run)} must ascend, and follow the range before it")
                yield first, last
                beyond = last
            case _:
                raise ValueError(f"{place}: {_short(run)} must be a range [first, last] of entry ids >= 0")


def _short(value: object) -> str:
    return repr(value)[:100]
