"""How far a topic has been replicated: window, progress, and what is forwarded."""

from __future__ import annotations

import pytest

from emulator.core.replication import Forwarding, ReplicationProgress, forwarding
from emulator.model import Position

FORWARDING = [
    # replicated_from, replicate_to, marker_type -> decision
    (None, (), None, Forwarding.SEND),
    ("eu", (), None, Forwarding.NOT_OURS),
    ("ap", (), None, Forwarding.NOT_OURS),
    (None, ("eu",), None, Forwarding.SEND),
    (None, ("ap",), None, Forwarding.NOT_FOR_THEM),
    (None, ("__local__",), None, Forwarding.NOT_FOR_THEM),
    (None, (), 10, Forwarding.SEND),
    (None, ("ap",), 11, Forwarding.NOT_FOR_THEM),
    (None, (), 12, Forwarding.LOCAL_MARKER),
    (None, (), 13, Forwarding.SEND),
    (None, (), 21, Forwarding.LOCAL_MARKER),
]


@pytest.mark.parametrize(("replicated_from", "replicate_to", "marker_type", "decision"), FORWARDING)
def test_what_goes_to_eu(
    replicated_from: str | None,
    replicate_to: tuple[str, ...],
    marker_type: int | None,
    decision: Forwarding,
) -> None:
    """Facts 5.2 and 5.3 as a table."""
    assert forwarding("eu", replicated_from, replicate_to, marker_type) is decision


def progress(confirmed: int = -1, entries_max: int = 3) -> ReplicationProgress:
    return ReplicationProgress(confirmed, entries_max=entries_max, bytes_max=100)


def test_a_receipt_confirms_everything_up_to_the_next_in_flight() -> None:
    """Entries that were skipped in between need no receipt."""
    machine = progress()
    machine.sent(0, 10)
    machine.skipped(1)
    machine.sent(2, 10)
    machine.skipped(3)
    assert machine.received(7, Position(7, 0))
    assert machine.confirmed == 1
    assert machine.received(7, Position(7, 2))
    assert machine.confirmed == 3


def test_skipping_confirms_at_once_only_when_nothing_is_in_flight() -> None:
    """Otherwise progress would claim what the remote has not said."""
    machine = progress()
    machine.skipped(0)
    assert machine.confirmed == 0
    machine.sent(1, 10)
    machine.skipped(2)
    assert machine.confirmed == 0


@pytest.mark.parametrize("position", [Position(7, 1), Position(8, 0), Position(-1, -1)])
def test_a_receipt_out_of_turn_is_refused(position: Position) -> None:
    """The two sides disagree about the stream; only a reconnect helps."""
    machine = progress()
    machine.sent(0, 10)
    machine.sent(1, 10)
    assert not machine.received(7, position)
    assert machine.confirmed == -1


def test_reset_sends_again_from_what_is_confirmed() -> None:
    """Whatever was in flight may or may not have arrived."""
    machine = progress()
    machine.sent(0, 10)
    machine.sent(1, 10)
    machine.received(7, Position(7, 0))
    machine.reset()
    assert (machine.next_entry_id, machine.in_flight, machine.room) == (1, 0, 3)


def test_the_window_is_bounded_by_entries_and_by_bytes() -> None:
    """Whichever comes first."""
    machine = progress()
    for entry_id in range(3):
        machine.sent(entry_id, 1)
    assert machine.room == 0
    machine.reset()
    machine.sent(0, 100)
    assert machine.room == 0
