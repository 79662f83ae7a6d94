"""What one region would deliver to the consumers of a subscription: its part of a fail-over plan.

The target of a fail-over states it of itself (docs/components/explain.md), and the source compares it with its own log
(`failover_plan`). A peer's statement is a claim: `DeliveryState.parse` checks its form, and a wrong claim changes only
the figures of the plan.

    log of the target   ──mark-delete──●──○──●──○──○──┤ stored end        ○ unacknowledged, named by its origin

All sets are bounded. Beyond a bound the state becomes less exact, never too small: neighbouring ranges are merged, and
batches count as wholly unacknowledged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from emulator.core.replication.origins import Origin, OriginLedger, OriginSet
from emulator.model.values import Position, is_valid_name

SCAN_ENTRIES_MAX: Final = 200_000
"""Maximum number of entries that one region reads for a plan."""
RANGES_MAX: Final = 15_000
"""Maximum number of ranges of unacknowledged entries in a state: about 300 KB of JSON."""
SIZED_RANGES_MAX: Final = 10_000
"""Maximum number of ranges of batches in a state."""
PARTIAL_MAX: Final = 1_000
"""Maximum number of batches in a state that are acknowledged in part."""
PARTIAL_BITS_MAX: Final = 1_000_000
"""Maximum number of messages of these batches: about 250 KB of JSON."""
REGIONS_MAX: Final = 1_000


class PartialBatch(NamedTuple):
    """A batch that is acknowledged in part."""

    size: int
    """Number of messages, >= 1."""
    open: int
    """Messages that are not acknowledged, one bit each."""


class ScannedEntry(NamedTuple):
    """One entry of a log, as far as a plan needs it."""

    entry_id: int
    origin: Origin | None
    """None: its origin is unknown."""
    messages: int
    """Number of messages that a consumer receives: 0 for markers, aborted messages and all chunks but the last."""
    publish_ms: int
    replicate_to: tuple[str, ...] = ()


@dataclass(slots=True)
class DeliveryState:
    """What one region would deliver to a subscription's consumers at one moment."""

    region: str
    exists: bool = True
    """Whether the region has the topic and the subscription. If it does not have the subscription, all stored messages
    count as unacknowledged."""
    replicated: bool = False
    """Whether the region applies updates of other regions to the subscription."""
    mark_delete: Position | None = None
    resume: Position | None = None
    """First position that a consumer would receive; None: there is none."""
    last: Position | None = None
    """Position of the newest readable entry; entry -1: there is none. None: the region does not have the topic."""
    stored: Mapping[str, Position] = field(default_factory=dict)
    """Origin region -> highest position in its log that is stored here, or was."""
    unacknowledged: OriginSet = field(default_factory=OriginSet)
    """Entries with messages that are not acknowledged here, or only in part."""
    partial: Mapping[Origin, PartialBatch] = field(default_factory=dict)
    batch_sizes: Mapping[int, OriginSet] = field(default_factory=dict)
    """Number of messages -> unacknowledged entries with that number, for numbers other than 1."""
    messages: int = 0
    """Number of messages that consumers would receive, as far as the log was read."""
    without_origin: int = 0
    """Those of them whose origin is unknown."""
    oldest_publish_ms: int | None = None
    """Earliest publish time of these messages, by the clocks of their producers."""
    complete: bool = True
    """Whether the log was read to its end and `batch_sizes` is whole; otherwise `unacknowledged` contains all entries
    after the last one read."""
    exact: bool = True
    """Whether `unacknowledged`, `partial` and `batch_sizes` name exactly what is unacknowledged, not more."""

    def messages_in(self, entries: OriginSet) -> int:
        """Return the number of unacknowledged messages of a subset of `unacknowledged`."""
        count = len(entries)
        for size, sized in self.batch_sizes.items():
            count += (size - 1) * entries.count_in(sized)
        for origin, batch in self.partial.items():
            if origin in entries:
                count -= batch.size - batch.open.bit_count()
        return count

    def as_json(self) -> dict[str, Any]:
        """Return the state as `parse` accepts it."""
        return {
            "region": self.region,
            "exists": self.exists,
            "replicated": self.replicated,
            "mark_delete": _text(self.mark_delete),
            "resume": _text(self.resume),
            "last": _text(self.last),
            "stored": {region: str(position) for region, position in sorted(self.stored.items())},
            "unacknowledged": self.unacknowledged.as_json(),
            "partial": [[str(one), batch.size, f"{batch.open:x}"] for one, batch in self.partial.items()],
            "batch_sizes": {str(size): one.as_json() for size, one in sorted(self.batch_sizes.items())},
            "messages": self.messages,
            "without_origin": self.without_origin,
            "oldest_publish_ms": self.oldest_publish_ms,
            "complete": self.complete,
            "exact": self.exact,
        }

    @classmethod
    def parse(cls, raw: object) -> DeliveryState:
        """Parse a claim of the form of `as_json`. Unknown fields are ignored. Raises ValueError, naming the place, the
        value and the rule."""
        if not isinstance(raw, Mapping):
            raise ValueError(f"{repr(raw)[:100]} must be an object: the delivery state of a region")
        claim = _Claim(raw)
        return cls(
            region=claim.name("region"),
            exists=claim.flag("exists"),
            replicated=claim.flag("replicated"),
            mark_delete=claim.position("mark_delete"),
            resume=claim.position("resume"),
            last=claim.position("last"),
            stored=claim.stored(),
            unacknowledged=claim.origins("unacknowledged", raw.get("unacknowledged"), RANGES_MAX),
            partial=claim.partial(),
            batch_sizes=claim.batch_sizes(),
            messages=claim.number("messages"),
            without_origin=claim.number("without_origin"),
            oldest_publish_ms=claim.optional_number("oldest_publish_ms"),
            complete=claim.flag("complete"),
            exact=claim.flag("exact"),
        )


class DeliveryScan:
    """Collects the delivery state of a region from its unacknowledged entries, in log order."""

    def __init__(self, state: DeliveryState, source: str | None, ledger_id: int) -> None:
        """`state`: all that is known without reading the log. `source`: the region from which the fail-over starts;
        messages that never reach it are not in the state."""
        self.state = state
        self.source = source
        self._ledger_id = ledger_id
        self._partial: dict[Origin, PartialBatch] = {}
        self._sizes: dict[int, OriginSet] = {}

    def add(self, entry: ScannedEntry, open_bits: int | None, *, reaches_source: bool) -> None:
        """Add an entry that is not acknowledged. `open_bits`: its unacknowledged messages, if it is acknowledged in
        part; None: all."""
        if not entry.messages:
            return
        count = entry.messages if open_bits is None else open_bits.bit_count()
        state = self.state
        if state.resume is None:
            state.resume = Position(self._ledger_id, entry.entry_id)
        if not reaches_source:
            return
        state.messages += count
        known = state.oldest_publish_ms
        state.oldest_publish_ms = entry.publish_ms if known is None else min(known, entry.publish_ms)
        if entry.origin is None:
            state.without_origin += count
            return
        state.unacknowledged.add(entry.origin)
        if open_bits is not None:
            self._partial[entry.origin] = PartialBatch(entry.messages, open_bits)
        if entry.messages != 1:
            self._sizes.setdefault(entry.messages, OriginSet()).add(entry.origin)

    def stopped(self, reached: Mapping[str, Position]) -> None:
        """Note that the log was not read to its end. `reached`: origin region -> highest position that was read."""
        self.state.complete = self.state.exact = False
        for region, last in self.state.stored.items():
            first = reached.get(region)
            begin = first.entry + 1 if first is not None and first.ledger == last.ledger else 0
            self.state.unacknowledged.add_range(region, last.ledger, begin, last.entry)

    def result(self) -> DeliveryState:
        """Return the state, within the bounds."""
        state = self.state
        if state.unacknowledged.ranges > RANGES_MAX:
            state.unacknowledged, state.exact = merged(state.unacknowledged, RANGES_MAX), False
        sized = sum(entries.ranges for entries in self._sizes.values())
        if sized <= SIZED_RANGES_MAX:
            state.batch_sizes = self._sizes
        else:
            state.exact = state.complete = False
        bits = sum(batch.size for batch in self._partial.values())
        if len(self._partial) <= PARTIAL_MAX and bits <= PARTIAL_BITS_MAX:
            state.partial = self._partial
        else:
            state.exact = False
        return state


def merged(origins: OriginSet, ranges_max: int) -> OriginSet:
    """Return a superset with at most `ranges_max` ranges, or one per ledger if these are more: the smallest gaps are
    filled."""
    gaps: list[tuple[int, OriginLedger, int, int]] = []
    for ledger, ids in origins.ids.items():
        runs = ids.runs()
        gaps += [
            (next_first - last - 1, ledger, last + 1, next_first - 1)
            for (_, last), (next_first, _) in pairwise(runs)
        ]
    gaps.sort()
    found = origins.union(OriginSet())
    for _, ledger, first, last in gaps[: max(0, origins.ranges - ranges_max)]:
        found.add_range(*ledger, first, last)
    return found


def _text(position: Position | None) -> str | None:
    return None if position is None else str(position)


class _Claim:
    """The fields of a claimed state. Each method raises ValueError for an invalid one."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw

    def _refused(self, name: str, rule: str) -> ValueError:
        return ValueError(f"{name}: {repr(self._raw.get(name))[:100]} must be {rule}")

    def name(self, name: str) -> str:
        value = self._raw.get(name)
        if not isinstance(value, str) or not is_valid_name(value):
            raise self._refused(name, "the name of a region")
        return value

    def flag(self, name: str) -> bool:
        value = self._raw.get(name)
        if not isinstance(value, bool):
            raise self._refused(name, "true or false")
        return value

    def number(self, name: str) -> int:
        value = self.optional_number(name)
        if value is None:
            raise self._refused(name, "a number from 0")
        return value

    def optional_number(self, name: str) -> int | None:
        value = self._raw.get(name)
        if value is None:
            return None
        if type(value) is not int or not 0 <= value < 2**63:
            raise self._refused(name, "a number from 0")
        return value

    def position(self, name: str) -> Position | None:
        value = self._raw.get(name)
        if value is None:
            return None
        found = parse_position(value)
        if found is None:
            raise self._refused(name, "a position, like 5:17")
        return found

    def stored(self) -> dict[str, Position]:
        value = self._raw.get("stored")
        if not isinstance(value, Mapping) or len(value) > REGIONS_MAX:
            raise self._refused("stored", f"an object of up to {REGIONS_MAX} positions by region")
        found = {str(region): parse_position(text) for region, text in value.items()}
        known = {region: position for region, position in found.items() if position is not None}
        if len(known) != len(found) or not all(map(is_valid_name, known)):
            raise self._refused("stored", "an object of positions by region")
        return known

    def origins(self, name: str, value: object, ranges_max: int) -> OriginSet:
        try:
            return OriginSet.parse(value, ranges_max=ranges_max)
        except ValueError as problem:
            raise ValueError(f"{name}: {problem}") from None

    def partial(self) -> dict[Origin, PartialBatch]:
        value = self._raw.get("partial")
        rule = f"a list of up to {PARTIAL_MAX} batches [origin, size, open messages]"
        if not isinstance(value, list) or len(value) > PARTIAL_MAX:
            raise self._refused("partial", rule)
        return dict(_partial_batch(one) for one in value)

    def batch_sizes(self) -> dict[int, OriginSet]:
        value = self._raw.get("batch_sizes")
        if not isinstance(value, Mapping) or len(value) > SIZED_RANGES_MAX:
            raise self._refused("batch_sizes", "an object of entries by number of messages")
        found, ranges_left = dict[int, OriginSet](), SIZED_RANGES_MAX
        for text, entries in value.items():
            if not (str(text).isascii() and str(text).isdecimal() and 0 < len(text) <= 10):
                raise ValueError(f"batch_sizes: {str(text)[:100]!r} must be a number of messages")
            one = self.origins(f"batch_sizes: {text}", entries, ranges_left)
            found[int(text)], ranges_left = one, ranges_left - one.ranges
        return found


def parse_position(value: object) -> Position | None:
    """Return the position of a claim, `"ledger:entry"` with ledger >= 0 and entry >= -1; None: it is none."""
    ledger, separator, entry = value.partition(":") if isinstance(value, str) else ("", "", "")
    digits = entry.removeprefix("-") if entry == "-1" else entry
    for text in (ledger, digits):
        if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) < 2**63):
            return None
    return Position(int(ledger), int(entry)) if separator else None


_HEXADECIMAL: Final = re.compile(r"[0-9a-f]+")


def _partial_batch(value: object) -> tuple[Origin, PartialBatch]:
    """Parse a batch that is acknowledged in part. Raises ValueError."""
    match value:
        case [str(text), int(size), str(bits)] if 1 <= size <= PARTIAL_BITS_MAX:
            origin, open_bits = parse_origin(text), int(bits, 16) if _is_hexadecimal(bits) else 0
            if origin is not None and 0 < open_bits < 1 << size:
                return origin, PartialBatch(size, open_bits)
    raise ValueError(f"partial: {repr(value)[:100]} must be [origin, size, open messages in hexadecimal]")


def _is_hexadecimal(bits: str) -> bool:
    return len(bits) <= PARTIAL_BITS_MAX and _HEXADECIMAL.fullmatch(bits) is not None


def parse_origin(text: str) -> Origin | None:
    """Return the origin `region:ledger:entry`; None: the text is none."""
    ledger, _, entry = text.rpartition(":")
    position = parse_position(f"0:{entry}")
    try:
        parsed = OriginLedger.parse(ledger)
    except ValueError:
        return None
    return None if position is None or position.entry < 0 else Origin(*parsed, position.entry)
