"""Individual acknowledgements of a replicated subscription: claims that a region sends, and claims that it applies
(docs/components/individual-acks.md).

    log of the sender      ─────┤base   ● ● ○ ● ◐ ● ├──▶      claim: all ● and ◐ beyond the base, by origin
    log of the receiver    ────────┤X    ● ○ ● ◐ ●  ├──▶      ● acknowledged instead of delivered, ○ delivered

The *base* is the position of the request of the snapshot whose positions were sent last. In the log of a receiver the
messages up to the base are at or before its position in that snapshot, so the position covers them. Messages of a third
region may be later in the receiver's log. The first claim after a position therefore still begins at the former base.

The receiver applies a claim to each entry that it read or stored for another reason, and to none that it stores after
the claim. Entries that were not in memory keep the claim (`Cursor.claims`) until the dispatcher reads them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import PART_BITS, IdSet, runs_of
from emulator.core.replication.ack_claims import AckClaim
from emulator.core.replication.origins import Origin, OriginLedger, OriginSet
from emulator.core.replication.subscription_updates import never_reaches
from emulator.model.markers import SubscriptionUpdate
from emulator.model.values import Position

REPLICATED_ENTRIES_MAX: Final = 10_000
"""Maximum number of replicated entries of a topic whose origins are remembered, 16 bytes each."""


class OriginFacts(Protocol):
    """The fields of an entry's metadata that determine its origin."""

    @property
    def marker_type(self) -> int | None: ...
    @property
    def replicated_from(self) -> str | None: ...
    @property
    def source_position(self) -> Position | None: ...
    @property
    def replicate_to(self) -> tuple[str, ...]: ...


class ClaimedEntry(Protocol):
    """An entry of a log, as claims apply to it."""

    @property
    def entry_id(self) -> int: ...
    @property
    def messages(self) -> int: ...
    @property
    def hidden(self) -> bool: ...
    @property
    def info(self) -> OriginFacts: ...


def origin_of(own: OriginLedger, entry_id: int, facts: OriginFacts) -> Origin | None:
    """Return the origin of an entry of the log `own`; None for a replicated one without its source position."""
    if facts.replicated_from is None:
        return Origin(*own, entry_id)
    position = facts.source_position
    return None if position is None else Origin.of(facts.replicated_from, position)


# The origins of replicated entries.


class _Column(NamedTuple):
    """The entries that originate in one ledger of another region, in log order."""

    ids: array[int]
    """Their ids in this log."""
    sources: array[int]
    """Their ids in the log of their origin."""


class ReplicatedOrigins:
    """The origins of the newest replicated entries of one log, from `first` on."""

    def __init__(self, first: int, entries_max: int = REPLICATED_ENTRIES_MAX) -> None:
        self.first = first
        """Id from which on all replicated entries are known."""
        self.ids = IdSet()
        """Ids of all known replicated entries, also of markers and of those without an origin."""
        self._entries_max = entries_max
        self._columns: dict[OriginLedger, _Column] = {}

    def stored(self, entry_id: int, facts: OriginFacts) -> None:
        """Note an entry that became durable. Called in log order. Own entries have no effect. A marker has no origin
        here: a region that claimed the markers of another one, which has just claimed its own, would never end."""
        if facts.replicated_from is None:
            return
        self.ids.add(entry_id)
        position = facts.source_position
        if position is not None and facts.marker_type is None:
            column = self._column(OriginLedger(facts.replicated_from, position.ledger))
            column.ids.append(entry_id)
            column.sources.append(position.entry)
            if len(self) > self._entries_max:
                longest = max((column.ids for column in self._columns.values()), key=len)
                self.forget_below(longest[len(longest) // 2])

    def _column(self, ledger: OriginLedger) -> _Column:
        found = self._columns.get(ledger)
        if found is None:
            found = self._columns[ledger] = _Column(array("q"), array("q"))
        return found

    def prepend(self, first: int, entries: Iterable[tuple[int, OriginFacts]]) -> None:
        """Add all entries from `first` to the known ones, which were read from the log: (id, metadata), in log
        order."""
        older = ReplicatedOrigins(first, self._entries_max)
        for entry_id, facts in entries:
            older.stored(entry_id, facts)
        for ledger, column in self._columns.items():
            known = older._column(ledger)
            known.ids.extend(column.ids)
            known.sources.extend(column.sources)
        older.ids.unite(self.ids)
        self.first, self.ids, self._columns = older.first, older.ids, older._columns

    def forget_below(self, entry_id: int) -> None:
        """Forget entries below an id."""
        if entry_id <= self.first:
            return
        self.first = entry_id
        self.ids.drop_parts_below(entry_id)
        for ledger, (ids, sources) in list(self._columns.items()):
            below = bisect_left(ids, entry_id)
            del ids[:below], sources[:below]
            if not ids:
                del self._columns[ledger]

    def __len__(self) -> int:
        return sum(len(column.ids) for column in self._columns.values())

    def items(self, first: int, last: int) -> Iterator[tuple[OriginLedger, int, int]]:
        """Yield (ledger of the origin, id in this log, id in the log of the origin) of the entries within first..last,
        both included."""
        for ledger, (ids, sources) in self._columns.items():
            start, end = bisect_left(ids, first), bisect_right(ids, last)
            yield from ((ledger, ids[at], sources[at]) for at in range(start, end))

    def among(self, chosen: IdSet, first: int, last: int) -> Iterator[tuple[OriginLedger, IdSet]]:
        """Yield (ledger of the origin, ids in its log) of those entries within first..last whose ids in this log are in
        `chosen`."""
        parts, offset = chosen.parts, (1 << PART_BITS) - 1
        for ledger, (ids, sources) in self._columns.items():
            start, end = bisect_left(ids, first), bisect_right(ids, last)
            found = IdSet()
            found.update(
                source
                for entry_id, source in zip(ids[start:end], sources[start:end], strict=True)
                if parts.get(entry_id >> PART_BITS, 0) >> (entry_id & offset) & 1
            )
            if found:
                yield ledger, found

    def of(self, entry_id: int) -> Origin | None:
        """Return the origin of a replicated entry; None: unknown."""
        return next((Origin(*ledger, source) for ledger, _, source in self.items(entry_id, entry_id)), None)


# Sending.


class SenderLog(NamedTuple):
    """The log of the sender, as its claims need it."""

    own: OriginLedger
    first: int
    """Id of its first entry."""
    hidden: IdSet
    """Ids that are no message: markers, messages of aborted transactions."""
    replicated: ReplicatedOrigins


def claim_beyond(base: int, cursor: Cursor, log: SenderLog) -> AckClaim:
    """Return what the cursor has acknowledged beyond entry id `base`."""
    acked = _acked_beyond(base, cursor)
    entries, own = OriginSet(), IdSet()
    own.parts = {
        number: messages
        for number, bits in acked.parts.items()
        if (messages := bits & ~_fillers(log, number))
    }
    if own:
        entries.ids[log.own] = own
    end = max(acked.parts, default=-1) + 1 << PART_BITS
    for ledger, ids in log.replicated.among(acked, base + 1, end):
        entries.ids.setdefault(ledger, IdSet()).unite(ids)
    return AckClaim(entries, _batches_beyond(base, cursor, log))


def _acked_beyond(base: int, cursor: Cursor) -> IdSet:
    acked = IdSet()
    for first, last in [(base + 1, cursor.mark_delete), *cursor.acked_ranges]:
        if max(first, base + 1) <= last:
            acked.add_range(max(first, base + 1), last)
    return acked


def _fillers(log: SenderLog, part: int) -> int:
    """Return the ids of a part at which the log has no own message, one bit each."""
    return log.hidden.parts.get(part, 0) | log.replicated.ids.parts.get(part, 0)


def joined(claim: AckClaim, log: SenderLog) -> AckClaim:
    """Return the same claim with fewer ranges: those of own entries also contain ids at which this log has no own
    message. Ranges of other origins contain only entries that were stored here: a message between two of them may have
    gone to other regions only."""
    own = claim.entries.ids.get(log.own)
    if own is None:
        return claim
    entries = claim.entries.union(OriginSet())
    for number, bits in own.parts.items():
        base = number << PART_BITS
        for first, last in runs_of(bits | _fillers(log, number)):
            if bits >> first & ((2 << (last - first)) - 1):
                entries.add_range(*log.own, base + first, base + last)
    return AckClaim(entries, claim.batches)


def _batches_beyond(base: int, cursor: Cursor, log: SenderLog) -> dict[Origin, int]:
    found = {}
    for entry_id, bits in sorted(cursor.open_bits.items()):
        is_replicated = entry_id in log.replicated.ids
        origin = log.replicated.of(entry_id) if is_replicated else Origin(*log.own, entry_id)
        if entry_id > base and origin is not None:
            found[origin] = bits
    return found


class IndividualAcks:
    """Decides when one subscription of this region sends a claim, and which."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.base = -1
        """Entry id beyond which acknowledgements are claimed. A low one makes claims larger, never wrong."""
        self._next_base = -1
        """Base of the claim after the next one."""
        self._positions: tuple[tuple[str, Position], ...] = ()
        """Positions that were sent last; none since the topic was loaded: empty."""
        self._sent = AckClaim(OriginSet())
        """All that was acknowledged when the last claim was sent, also what was left out."""
        self._heard: dict[str, AckClaim] = {}
        """Newest claim of each other region."""
        self._is_repeat_due = False
        self.updates = 0
        """Number of updates with a claim that were returned."""
        self.evicted = 0
        """Number of ranges and batches that were left out of claims, because these were too large."""

    def positions_sent(self, positions: tuple[tuple[str, Position], ...], base: int | None) -> None:
        """Note an update with positions of a snapshot; `base`: None if it is unknown."""
        self._positions = positions
        if base is not None:
            self._next_base = max(base, self._next_base)

    def heard(self, source: str, claim: AckClaim) -> None:
        """Note a claim of another region, which this region need not repeat."""
        self._heard[source] = claim

    def repeat(self) -> None:
        """Send the next claim even if it contains nothing new: other regions may have stored its entries later."""
        self._is_repeat_due = True

    def cursor_reset(self, mark_delete: int) -> None:
        """Claim only what is acknowledged beyond the new position of a seek."""
        self._start_again(mark_delete)

    def skipped_to(self, mark_delete: int) -> None:
        """Claim nothing up to an entry: the broker acknowledged it, not consumers."""
        if mark_delete > self.base:
            self._start_again(mark_delete)

    def _start_again(self, base: int) -> None:
        self.base = self._next_base = base
        self._sent = AckClaim(OriginSet())

    def next_update(self, cursor: Cursor, log: SenderLog, size_max: int) -> SubscriptionUpdate | None:
        """Return the update with all that is acknowledged beyond the base; None: other regions know all of it. A cursor
        that is not ahead of its peers has only batches to claim: messages of them do not make it so.

        The first update of a subscription creates it in other regions, from their first entry on. So an update without
        positions is sent only if it contains everything that is acknowledged."""
        if not (self._positions or self._is_complete(log)):
            return None
        acked = claim_beyond(self.base, cursor, log)
        if not cursor.ahead_of_peers:
            acked = AckClaim(OriginSet(), acked.batches)
        is_known = acked.is_within((self._sent, *self._heard.values()))
        if not acked or (is_known and not self._is_repeat_due):
            return None
        whole = joined(acked, log)
        claim = whole.limited(size_max)
        self.evicted += whole.size - claim.size
        self._sent, self._is_repeat_due = acked, False
        self.base = self._next_base
        self.updates += 1
        return SubscriptionUpdate(self.name, self._positions, claim.to_marker())

    def _is_complete(self, log: SenderLog) -> bool:
        return max(self.base + 1, log.replicated.first) <= log.first


# Receiving.


def apply_claims(
    cursor: Cursor,
    entries: Iterable[ClaimedEntry],
    claims: Mapping[str, AckClaim],
    own: OriginLedger,
    never: Callable[..., bool] = never_reaches,
) -> bool:
    """Acknowledge what other regions claim of these entries of this region's log. Returns whether that changed the
    cursor.

    `claims`: by region. `never`: whether an entry never reaches a region, which therefore cannot have consumed it."""
    version = cursor.version
    for entry in entries:
        entry_id = entry.entry_id
        if entry.hidden or entry_id < cursor.claims.first or cursor.is_acked_or_held(entry_id):
            continue
        origin = origin_of(own, entry_id, entry.info)
        if origin is None:
            continue
        for source, claim in claims.items():
            open_bits = claim.open_bits(origin)
            if open_bits is None:
                continue
            if not never(source, origin=origin.region, replicate_to=entry.info.replicate_to):
                cursor.keep_open(entry_id, open_bits, entry.messages, by_consumer=False)
    return cursor.version != version


def apply_stored_claims(
    cursor: Cursor,
    entries: Sequence[ClaimedEntry],
    own: OriginLedger,
    never: Callable[..., bool] = never_reaches,
) -> None:
    """Apply the stored claims of a cursor to entries that its dispatcher read. Each claim concerns only entries before
    its end."""
    for source, (claim, end) in cursor.claims.items():
        concerned = [entry for entry in entries if entry.entry_id < end]
        apply_claims(cursor, concerned, {source: claim}, own, never)
    cursor.version += cursor.claims.drop_passed(cursor.mark_delete)
