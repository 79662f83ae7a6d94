"""Helpers of the dispatch tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from emulator.core.cursor.cursor import Cursor
from emulator.core.dispatch.dispatcher import Dispatcher
from emulator.core.dispatch.types import ConsumerState, DispatchLimits, Read, SubscriptionType
from emulator.model.values import MessageChunk

EXCLUSIVE, SHARED, FAILOVER = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED, SubscriptionType.FAILOVER
KEY_SHARED = SubscriptionType.KEY_SHARED
END = 1_000
FAILOVER_DELAY_MS = 100


def dispatcher(mark_delete: int = -1, unacked_messages_max: int = 1000) -> Dispatcher:
    return Dispatcher(Cursor(mark_delete), DispatchLimits(unacked_messages_max, FAILOVER_DELAY_MS))


class Candidate(NamedTuple):
    """An entry of a log."""

    entry_id: int
    messages: int
    hidden: bool
    key_hash: int = 0
    due_ms: int = 0
    chunk: MessageChunk | None = None


def log(*ids: int, hidden: tuple[int, ...] = ()) -> list[Candidate]:
    """Entries of one message each."""
    return [Candidate(entry_id, 1, entry_id in hidden) for entry_id in ids]


def joined(
    machine: Dispatcher, name: str, type_: SubscriptionType, permits: int = 100, priority: int = 0
) -> ConsumerState:
    consumer = ConsumerState(name, priority, permits)
    machine.joined(consumer, type_, now_ms=0)
    return consumer


def wanted(machine: Dispatcher, end_entry_id: int = END, now_ms: int = 0, wall_ms: int = 0) -> Read:
    """Return the read that the dispatcher requests."""
    read = machine.strategy.next(end_entry_id, now_ms, wall_ms)
    assert isinstance(read, Read)
    return read


def found(read: Read, entries: Sequence[Candidate]) -> list[Candidate]:
    """Return the result of a store that holds `entries`."""
    readable = (e for e in entries if read.from_entry_id <= e.entry_id < read.end_entry_id)
    return list(readable)[: read.entries_max]


def dispatched(machine: Dispatcher, entries: Sequence[Candidate], wall_ms: int = 0) -> list[tuple[str, int]]:
    """Dispatch from a log that ends with `entries` until no more is possible; return (consumer, entry id) in the order
    of the deliveries."""
    given, end_entry_id = [], entries[-1].entry_id + 1
    while isinstance(read := machine.strategy.next(end_entry_id, 10**9, wall_ms), Read):
        candidates = found(read, entries)
        given += [
            (delivery.consumer.name, candidates[delivery.candidate_index].entry_id)
            for delivery in machine.strategy.offer(read, candidates, wall_ms)
        ]
    return given
