"""How far one topic has been replicated to one other region, and what its replicator may do now.

A replicator reads the local log in order and sends what originated here. The remote answers in order, and drops by
source position what it already has, so that sending again after any failure is harmless (INV-2).

        confirmed            in flight               next to read
    ────────────────┤●────●────●────●────├──────────────────────────▶ log
    remote has it, or    sent, receipt
    need not have it     outstanding

    DOWN ──ask──▶ OPENING ──opened──▶ SENDING ──begin_read──▶ READING
     ▲                                 │ ▲ ▲──────end_read───────┘
     │                            hold │ │ go_on
     │                                 ▼ │
     │                                 HELD
     ├──────────────── lost, from all of them ───────────────────┤        CLOSED, from anywhere, is the end
     └───────────────────────── PARKED ◀──park───────────────────┘

Losing the link, a refusal and a receipt out of turn all have one answer (`lost`, then `reset`): forget what is in
flight, and what is being read, and begin again at `confirmed`. There is no permit that could leak and no second read
that could race (both stall replication upstream).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum


class Forwarding(Enum):
    """What to do with one entry, and why (proposal PIP-33 and the protocol's replication rules)."""

    SEND = "originated here and is meant for that region"
    NOT_OURS = "came from another region: only its origin forwards a message (no loops)"
    NOT_FOR_THEM = "its sender named other regions"
    LOCAL_MARKER = "a marker that means something only in this log"


LOCAL_MARKER_TYPES = frozenset({12, 21, 22})
"""Snapshots, and the ends of transactions."""


def forwarding(
    remote: str, replicated_from: str | None, replicate_to: tuple[str, ...], marker_type: int | None
) -> Forwarding:
    """Decide for one entry, from four fields of its metadata."""
    if marker_type in LOCAL_MARKER_TYPES:
        return Forwarding.LOCAL_MARKER
    if replicated_from is not None:
        return Forwarding.NOT_OURS
    if replicate_to and remote not in replicate_to:
        return Forwarding.NOT_FOR_THEM
    return Forwarding.SEND


class ReplicatorState(Enum):
    """What a replicator is about."""

    DOWN = "no link, or the remote does not have our producer open"
    OPENING = "the remote was asked to open our producer"
    SENDING = "what is in memory is sent"
    READING = "the store was asked for entries; nothing is sent before they are here"
    HELD = "the next entry waits for the number that its schema has there"
    PARKED = "the remote does not take an entry; nothing is sent before the link or the topic is opened again"
    CLOSED = "the topic does not need it any more"


_ENDS = frozenset({ReplicatorState.DOWN, ReplicatorState.CLOSED})
"""May come at any time, but for what is closed."""
_NEXT_STATES = {
    ReplicatorState.DOWN: _ENDS | {ReplicatorState.OPENING},
    ReplicatorState.OPENING: _ENDS | {ReplicatorState.SENDING},
    ReplicatorState.SENDING: _ENDS | {ReplicatorState.READING, ReplicatorState.HELD, ReplicatorState.PARKED},
    ReplicatorState.READING: _ENDS | {ReplicatorState.SENDING, ReplicatorState.PARKED},
    ReplicatorState.HELD: _ENDS | {ReplicatorState.SENDING, ReplicatorState.PARKED},
    ReplicatorState.PARKED: _ENDS,
    ReplicatorState.CLOSED: frozenset({ReplicatorState.CLOSED}),
}


class ReplicatorLife:
    """The state of one replicator, and why it is not sending."""

    def __init__(self) -> None:
        self.state = ReplicatorState.DOWN
        self.why_not = "no link yet"
        """A sentence; empty while it sends."""
        self._holds = 0
        self._reads = 0
        """The number of the newest read: the result of an older one is worth nothing."""

    @property
    def is_connected(self) -> bool:
        """The remote has our producer open: receipts mean something."""
        return self.state in (ReplicatorState.SENDING, ReplicatorState.READING, ReplicatorState.HELD)

    def ask(self) -> bool:
        """Whether the remote is to be asked for a producer now: not while it is being asked, nor when it has one."""
        if self.state is not ReplicatorState.DOWN:
            return False
        self._become(ReplicatorState.OPENING)
        return True

    def opened(self) -> bool:
        """The remote has opened a producer; False when it was not asked, or nobody waits for it any more."""
        if self.state is not ReplicatorState.OPENING:
            return False
        self.why_not = ""
        self._become(ReplicatorState.SENDING)
        return True

    def begin_read(self) -> int:
        """The store is asked; gives what `end_read` wants to be told."""
        self._become(ReplicatorState.READING)
        self._reads += 1
        return self._reads

    def end_read(self, read: int) -> bool:
        """The store has answered; False when the replicator has begun again since it was asked."""
        if self.state is not ReplicatorState.READING or read != self._reads:
            return False
        self._become(ReplicatorState.SENDING)
        return True

    def hold(self) -> int:
        """The next entry has to wait; gives what `is_held` and `go_on` want to be told."""
        self._become(ReplicatorState.HELD)
        self._holds += 1
        return self._holds

    def is_held(self, hold: int) -> bool:
        """False when the replicator has begun again since."""
        return self.state is ReplicatorState.HELD and hold == self._holds

    def go_on(self, hold: int) -> bool:
        """The entry need not wait any more; False as above."""
        if not self.is_held(hold):
            return False
        self.why_not = ""
        self._become(ReplicatorState.SENDING)
        return True

    def park(self, why: str) -> bool:
        """The remote would refuse the same entry for ever; False when that was said of a stream that has ended."""
        if not self.is_connected:
            return False
        self.why_not = why
        self._become(ReplicatorState.PARKED)
        return True

    def lost(self, why: str) -> None:
        """The link is gone, or the remote refused."""
        if self.state is not ReplicatorState.CLOSED:
            self.why_not = why
            self._become(ReplicatorState.DOWN)

    def close(self) -> None:
        self.why_not = "closed"
        self._become(ReplicatorState.CLOSED)

    def _become(self, state: ReplicatorState) -> None:
        assert state in _NEXT_STATES[self.state], f"{self.state.name} -> {state.name}"
        self.state = state


class ReplicationProgress:
    """Window and progress of one replicator. Entry ids may have gaps."""

    def __init__(self, confirmed: int, *, entries_max: int, bytes_max: int) -> None:
        self.confirmed = confirmed
        """The remote has, or need not have, everything with an id <= this. Invariant: only grows."""
        self.next_entry_id = confirmed + 1
        """Next to read. Invariant: > every id in flight."""
        self._in_flight: deque[tuple[int, int]] = deque()
        self._bytes_in_flight = 0
        self._entries_max = entries_max
        self._bytes_max = bytes_max

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def room(self) -> int:
        """How many entries may still be sent before a receipt arrives."""
        if self._bytes_in_flight >= self._bytes_max:
            return 0
        return self._entries_max - len(self._in_flight)

    def sent(self, entry_id: int, size_bytes: int) -> int:
        """An entry is on its way; gives the room that is left."""
        assert entry_id >= self.next_entry_id, "entries are sent in log order"
        self.next_entry_id = entry_id + 1
        in_flight = self._in_flight
        in_flight.append((entry_id, size_bytes))
        self._bytes_in_flight += size_bytes
        return 0 if self._bytes_in_flight >= self._bytes_max else self._entries_max - len(in_flight)

    def skipped(self, entry_id: int) -> None:
        """This entry is not for the remote."""
        assert entry_id >= self.next_entry_id, "entries are passed in log order"
        self.next_entry_id = entry_id + 1
        if not self._in_flight:
            self.confirmed = entry_id

    def received(self, ledger_id: int, positions: Iterable[tuple[int, int]]) -> bool:
        """The remote has the entries at these (ledger, entry), in the order in which it said so. False when one is not
        the entry whose turn it is: then both sides disagree about the stream and the shell must begin again."""
        in_flight = self._in_flight
        bytes_before = self._bytes_in_flight
        in_turn = True
        for ledger, entry in positions:
            in_turn = bool(in_flight) and ledger == ledger_id and entry == in_flight[0][0]
            if not in_turn:
                break
            self._bytes_in_flight -= in_flight.popleft()[1]
        if self._bytes_in_flight != bytes_before:
            self.confirmed = in_flight[0][0] - 1 if in_flight else self.next_entry_id - 1
        return in_turn

    def reset(self) -> None:
        """Whatever is in flight may or may not have arrived: send it again."""
        self._in_flight.clear()
        self._bytes_in_flight = 0
        self.next_entry_id = self.confirmed + 1
