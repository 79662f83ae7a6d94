"""The state and progress of one replicator: one topic, one remote region.

A replicator reads the local log in order and sends the entries that originated here. The remote region sends receipts
in order and drops entries that it already has, by source position, so sending again after any failure is harmless
(INV-2).

        confirmed            in flight               next to read
    ────────────────┤●────●────●────●────├──────────────────────────▶ log
    stored remotely,     sent, receipt
    or not for it        outstanding

    DOWN ──link up──▶ OPENING ──▶ STREAMING ◀──▶ READING, HELD ──▶ PARKED
     ▲                 ▲   ▼          │
     │                REFUSED ◀───────┤
     └──── wake ──── RESTING ◀────────┘

The table `NEXT_STATES` lists every legal transition. A lost link leads from each state to DOWN, except from RESTING,
which only the use of the topic ends, and from CLOSED. Every state may lead to CLOSED, which is final.

A lost link, a refusal and a receipt out of order all end the stream: the replicator discards the entries in flight and
the result of the running read, and begins again at `confirmed`. No permit can leak and no two reads can race (both
stall replication upstream).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import accumulate, islice

from emulator.model.reasons import NO_REASON, Cause, Reason


class Forwarding(Enum):
    """Whether an entry is sent to a remote region, and why (PIP-33 and the protocol's replication rules)."""

    SEND = "originated here and is meant for that region"
    FROM_OTHER_REGION = "came from another region: only its origin forwards a message (no loops)"
    NOT_ADDRESSED = "its sender named other regions"
    LOCAL_MARKER = "a marker that is valid in this log only"


LOCAL_MARKER_TYPES = frozenset({12, 21, 22})
"""Marker types that are not replicated: snapshots, and ends of transactions."""


def forwarding(
    remote: str, replicated_from: str | None, replicate_to: tuple[str, ...], marker_type: int | None
) -> Forwarding:
    """Decide whether an entry is sent to `remote`, from three fields of its metadata."""
    if marker_type in LOCAL_MARKER_TYPES:
        return Forwarding.LOCAL_MARKER
    if replicated_from is not None:
        return Forwarding.FROM_OTHER_REGION
    if replicate_to and remote not in replicate_to:
        return Forwarding.NOT_ADDRESSED
    return Forwarding.SEND


class ReplicatorState(Enum):
    """The state of a replicator. It alone decides what an event or a timer may start."""

    DOWN = "the link is down; the replicator opens its producer when the link is up"
    OPENING = "the remote region was asked to open the producer; the request is repeated after a timeout"
    REFUSED = "the remote region refused the producer or the stream; the replicator opens it again after the back-off"
    STREAMING = "entries that are in memory are sent"
    READING = "the store reads entries; nothing is sent before they arrive"
    HELD = "the next entry waits for the number that its schema has in the remote region"
    PARKED = "the remote region does not take an entry; nothing is sent before the link or the topic is opened again"
    RESTING = "the topic is inactive and the producer is closed; only the use of the topic opens it again"
    CLOSED = "the topic does not need the replicator any more"


_ENDS = frozenset({ReplicatorState.DOWN, ReplicatorState.CLOSED})
_STREAM_ENDS = _ENDS | {ReplicatorState.REFUSED}
NEXT_STATES = {
    ReplicatorState.DOWN: _ENDS | {ReplicatorState.OPENING},
    ReplicatorState.OPENING: _STREAM_ENDS | {ReplicatorState.STREAMING},
    ReplicatorState.REFUSED: _ENDS | {ReplicatorState.OPENING},
    ReplicatorState.STREAMING: _STREAM_ENDS
    | {ReplicatorState.READING, ReplicatorState.HELD, ReplicatorState.PARKED, ReplicatorState.RESTING},
    ReplicatorState.READING: _STREAM_ENDS | {ReplicatorState.STREAMING, ReplicatorState.PARKED},
    ReplicatorState.HELD: _STREAM_ENDS | {ReplicatorState.STREAMING, ReplicatorState.PARKED},
    ReplicatorState.PARKED: _STREAM_ENDS,
    ReplicatorState.RESTING: _ENDS,
    ReplicatorState.CLOSED: frozenset({ReplicatorState.CLOSED}),
}
"""State -> legal next states."""


class ReplicatorLifecycle:
    """The state of one replicator, and why it is not sending."""

    def __init__(self) -> None:
        self.state = ReplicatorState.DOWN
        self.why_not = NO_REASON
        """Why the replicator is not connected, is parked or holds an entry back; empty while it sends or reads."""
        self._holds = 0
        """Number of the newest hold."""
        self._reads = 0
        """Number of the newest read: results of older reads are discarded."""

    @property
    def is_connected(self) -> bool:
        """Whether the stream is open, so that receipts count: the remote region has the producer open and did not
        reject an entry."""
        return self.state in (ReplicatorState.STREAMING, ReplicatorState.READING, ReplicatorState.HELD)

    def begin_opening(self, why: Reason) -> bool:
        """Begin to open the producer; return whether the caller must request it from the remote region now. False while
        a request is in progress, while the producer is open, and while the replicator rests or is closed. After a
        refusal `why_not` stays the refusal's reason."""
        return self._try(ReplicatorState.OPENING, why if self.state is ReplicatorState.DOWN else self.why_not)

    def begin_stream(self) -> bool:
        """Begin the stream: the remote region opened the producer. Returns False for an obsolete response."""
        if self.state is not ReplicatorState.OPENING:
            return False
        return self._try(ReplicatorState.STREAMING)

    def begin_read(self) -> int:
        """Begin a read of the store, while streaming. Returns the number that `end_read` requires."""
        self._become(ReplicatorState.READING)
        self._reads += 1
        return self._reads

    def end_read(self, read: int) -> bool:
        """End a read of the store. Returns False when the stream has ended since the read began."""
        if self.state is not ReplicatorState.READING or read != self._reads:
            return False
        return self._try(ReplicatorState.STREAMING)

    def begin_hold(self, why: Reason) -> int:
        """Hold the next entry back, while streaming. Returns the number that `is_held` and `end_hold` require."""
        self._become(ReplicatorState.HELD, why)
        self._holds += 1
        return self._holds

    def is_held(self, hold: int) -> bool:
        """Whether the entry is still held back; False when the stream has ended since."""
        return self.state is ReplicatorState.HELD and hold == self._holds

    def end_hold(self, hold: int) -> bool:
        """Stop holding the entry back. Returns False when the stream has ended since."""
        return self.is_held(hold) and self._try(ReplicatorState.STREAMING)

    def park(self, why: Reason) -> bool:
        """Stop sending because the remote region does not accept an entry. Returns False when the stream has ended."""
        return self.is_connected and self._try(ReplicatorState.PARKED, why)

    def refuse(self, why: Reason) -> bool:
        """End the stream, or the request for a producer, because of a refusal. Returns False when the replicator has no
        producer and requested none."""
        return self._try(ReplicatorState.REFUSED, why)

    def link_lost(self, why: Reason) -> bool:
        """End the stream: the link is down. Returns False when the replicator rests or is closed."""
        return self.state is not ReplicatorState.RESTING and self._try(ReplicatorState.DOWN, why)

    def rest(self, why: Reason) -> bool:
        """Rest because the topic is inactive. Returns False unless the state is STREAMING."""
        return self._try(ReplicatorState.RESTING, why)

    def wake(self, why: Reason) -> bool:
        """End the rest because the topic is used again. Returns False when the replicator does not rest. `why`: the
        reason until a producer is requested."""
        return self.state is ReplicatorState.RESTING and self._try(ReplicatorState.DOWN, why)

    def close(self) -> None:
        self._become(ReplicatorState.CLOSED, Cause.REPLICATOR_CLOSED())

    def _try(self, state: ReplicatorState, why_not: Reason = NO_REASON) -> bool:
        """Enter a state if the transition is legal; otherwise return False."""
        if state not in NEXT_STATES[self.state]:
            return False
        self._become(state, why_not)
        return True

    def _become(self, state: ReplicatorState, why_not: Reason = NO_REASON) -> None:
        assert state in NEXT_STATES[self.state], f"{self.state.name} -> {state.name}"
        self.state, self.why_not = state, why_not


class _SentRun:
    """Entries in flight whose ids follow each other."""

    __slots__ = ("dropped", "first_entry_id", "sizes")

    def __init__(self, first_entry_id: int, sizes: Sequence[int]) -> None:
        self.first_entry_id = first_entry_id
        self.sizes = sizes
        self.dropped = 0
        """Number of confirmed entries. A real Pulsar confirms each alone, so a run is not copied for each receipt."""

    def __len__(self) -> int:
        return len(self.sizes) - self.dropped

    def drop(self, entries: int) -> int:
        """Drop the oldest entries, and return their size in bytes."""
        end = self.dropped + entries
        size_bytes = sum(self.sizes[self.dropped : end])
        self.first_entry_id += entries
        self.dropped = end
        return size_bytes


class ReplicationProgress:
    """The progress of one replicator and its window of entries in flight. Entry ids may have gaps."""

    def __init__(self, confirmed: int, *, entries_max: int, bytes_max: int) -> None:
        self.confirmed = confirmed
        """Id up to which every entry is stored in the remote region or not meant for it. Invariant: only grows."""
        self.next_entry_id = confirmed + 1
        """Id of the next entry to read. Invariant: > every id in flight."""
        self.last_sent = -1
        """Id of the newest entry that was sent in this stream; -1: none was."""
        self.in_flight = 0
        """Number of entries in flight. Invariant: the sum of the lengths of `_runs`."""
        self._runs: deque[_SentRun] = deque()
        """The entries in flight, oldest first. Invariant: none is empty."""
        self._bytes_in_flight = 0
        self._entries_max = entries_max
        self._bytes_max = bytes_max

    @property
    def room(self) -> int:
        """Number of entries that may be sent before a receipt arrives."""
        if self._bytes_in_flight >= self._bytes_max:
            return 0
        return self._entries_max - self.in_flight

    def fitting(self, sizes: Sequence[int]) -> int:
        """Return how many of the next entries, of these sizes, may be sent: the last one is the one that fills the
        window."""
        sizes = sizes[: max(self.room, 0)]
        if self._bytes_in_flight + sum(sizes) < self._bytes_max:
            return len(sizes)
        totals = accumulate(sizes, initial=self._bytes_in_flight)
        return sum([total < self._bytes_max for total in islice(totals, len(sizes))])

    def sent(self, entry_id: int, sizes: Sequence[int]) -> int:
        """Add entries that were sent, with ids from this one on, to those in flight. Return their size in bytes."""
        assert entry_id >= self.next_entry_id, "entries are sent in log order"
        if sizes:
            self._runs.append(_SentRun(entry_id, sizes))
        self.in_flight += len(sizes)
        size_bytes = sum(sizes)
        self._bytes_in_flight += size_bytes
        self.last_sent = entry_id + len(sizes) - 1
        self.next_entry_id = self.last_sent + 1
        return size_bytes

    def skipped(self, entry_id: int) -> None:
        """Pass over an entry that is not sent to the remote region."""
        assert entry_id >= self.next_entry_id, "entries are skipped in log order"
        self.next_entry_id = entry_id + 1
        if not self.in_flight:
            self.confirmed = entry_id

    def received(self, ledger_id: int, receipts: Iterable[tuple[int, int, int]]) -> bool:
        """Process receipts, in order of arrival: (ledger, entry, number of entries), each for the oldest entries in
        flight, of which it names the last. Returns False at the first that names another entry: both sides disagree
        about the stream, and the caller must end it."""
        in_flight_before = self.in_flight
        in_turn = True
        for ledger, entry, entries in receipts:
            in_turn = (
                0 < entries <= self.in_flight and ledger == ledger_id and entry == self._id_of(entries - 1)
            )
            if not in_turn:
                break
            self._drop(entries)
        if self.in_flight != in_flight_before:
            self.confirmed = (self._runs[0].first_entry_id if self._runs else self.next_entry_id) - 1
        return in_turn

    def _id_of(self, index: int) -> int:
        """Return the id of an entry in flight; 0: the oldest one."""
        for run in self._runs:
            if index < len(run):
                return run.first_entry_id + index
            index -= len(run)
        raise AssertionError("fewer entries are in flight")

    def _drop(self, entries: int) -> None:
        """Drop the oldest entries in flight."""
        self.in_flight -= entries
        while entries:
            run = self._runs[0]
            of_run = min(entries, len(run))
            self._bytes_in_flight -= run.drop(of_run)
            if not len(run):
                self._runs.popleft()
            entries -= of_run

    def reset(self) -> None:
        """Continue after `confirmed`: entries in flight are read and sent again, since some may not have arrived."""
        self._runs.clear()
        self.in_flight = 0
        self._bytes_in_flight = 0
        self.last_sent = -1
        self.next_entry_id = self.confirmed + 1
