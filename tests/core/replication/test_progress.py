"""Replication progress of a topic: window, confirmed position, and what is forwarded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.core.replication.progress import (
    NEXT_STATES,
    Forwarding,
    ReplicationProgress,
    ReplicatorLifecycle,
    ReplicatorState,
    forwarding,
)
from emulator.model.reasons import Cause

LINK_DOWN = Cause.LINK_DOWN(here="us", region="eu")
ASKED = Cause.PRODUCER_ASKED(region="eu")
RESTS = Cause.REPLICATOR_RESTS(region="eu")
TOO_LARGE = Cause.ENTRY_REFUSED(region="eu", message="too large")

FORWARDING = [
    # replicated_from, replicate_to, marker_type -> decision
    (None, (), None, Forwarding.SEND),
    ("eu", (), None, Forwarding.FROM_OTHER_REGION),
    ("ap", (), None, Forwarding.FROM_OTHER_REGION),
    (None, ("eu",), None, Forwarding.SEND),
    (None, ("ap",), None, Forwarding.NOT_ADDRESSED),
    (None, ("__local__",), None, Forwarding.NOT_ADDRESSED),
    (None, (), 10, Forwarding.SEND),
    (None, ("ap",), 11, Forwarding.NOT_ADDRESSED),
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
    """What is sent to which region, as a table."""
    assert forwarding("eu", replicated_from, replicate_to, marker_type) is decision


def progress(confirmed: int = -1, entries_max: int = 3) -> ReplicationProgress:
    return ReplicationProgress(confirmed, entries_max=entries_max, bytes_max=100)


@pytest.fixture
def machine() -> ReplicationProgress:
    return progress()


def test_a_receipt_confirms_everything_up_to_the_next_in_flight(machine: ReplicationProgress) -> None:
    """Entries that were skipped in between need no receipt."""
    machine.sent(0, (10,))
    machine.skipped(1)
    machine.sent(2, (10,))
    machine.skipped(3)
    assert machine.received(7, [(7, 0, 1)])
    assert machine.confirmed == 1
    assert machine.received(7, [(7, 2, 1)])
    assert machine.confirmed == 3


def test_skipping_confirms_at_once_only_when_nothing_is_in_flight(machine: ReplicationProgress) -> None:
    """Otherwise progress would include entries that the remote region has not confirmed."""
    machine.skipped(0)
    assert machine.confirmed == 0
    machine.sent(1, (10,))
    machine.skipped(2)
    assert machine.confirmed == 0


def test_one_receipt_confirms_several_entries(machine: ReplicationProgress) -> None:
    for entry_id in (0, 2, 5):
        machine.sent(entry_id, (10,))
    assert machine.received(7, [(7, 2, 2)])
    assert (machine.confirmed, machine.in_flight, machine.room) == (4, 1, 2)
    assert machine.received(7, [(7, 5, 1)])
    assert (machine.confirmed, machine.in_flight, machine.room) == (5, 0, 3)


@pytest.mark.parametrize(
    "receipt",
    [
        *((7, 1, 1), (8, 0, 1), (-1, -1, 1)),
        *((7, 0, 2), (7, 1, 3), (7, 0, 0), (7, 1, 2**32 - 1), (8, 1, 2)),
    ],
)
def test_a_receipt_out_of_turn_is_refused(
    machine: ReplicationProgress, receipt: tuple[int, int, int]
) -> None:
    """The two sides disagree about the stream; only a reconnect helps."""
    machine.sent(0, (10,))
    machine.sent(1, (10,))
    assert not machine.received(7, [receipt])
    assert machine.confirmed == -1


def test_receipts_of_a_batch_count_up_to_the_first_out_of_turn(machine: ReplicationProgress) -> None:
    for entry_id in range(3):
        machine.sent(entry_id, (10,))
    assert not machine.received(7, [(7, 0, 1), (7, 2, 1), (7, 1, 1)])
    assert (machine.confirmed, machine.in_flight) == (0, 2)


def test_more_receipts_than_sends_are_out_of_turn(machine: ReplicationProgress) -> None:
    machine.sent(0, (10,))
    assert not machine.received(7, [(7, 0, 1), (7, 1, 1)])
    assert machine.confirmed == 0


def test_reset_sends_again_from_what_is_confirmed(machine: ReplicationProgress) -> None:
    """Entries in flight may or may not have arrived."""
    machine.sent(0, (10,))
    machine.sent(1, (10,))
    machine.received(7, [(7, 0, 1)])
    machine.reset()
    assert (machine.next_entry_id, machine.in_flight, machine.room) == (1, 0, 3)


def test_the_window_is_bounded_by_entries_and_by_bytes(machine: ReplicationProgress) -> None:
    """Whichever comes first."""
    for entry_id in range(3):
        machine.sent(entry_id, (1,))
    assert machine.room == 0
    machine.reset()
    machine.sent(0, (100,))
    assert machine.room == 0


class _EntryByEntry:
    """The window, with an object for each entry in flight."""

    def __init__(self) -> None:
        self.confirmed, self.next_id = -1, 0
        self.entries: list[tuple[int, int]] = []

    def received(self, receipts: list[tuple[int, int, int]]) -> bool:
        for ledger, entry, entries in receipts:
            if ledger != 7 or not 0 < entries <= len(self.entries) or self.entries[entries - 1][0] != entry:
                return False
            del self.entries[:entries]
            self.confirmed = self.entries[0][0] - 1 if self.entries else self.next_id - 1
        return True


@given(st.data())
def test_runs_of_entries_have_the_window_of_single_ones(data: st.DataObject) -> None:
    """For any receipts: those of a part of a run, of several runs, and out of turn."""
    machine, model = progress(entries_max=50), _EntryByEntry()
    for _ in range(data.draw(st.integers(1, 12))):
        match data.draw(st.sampled_from(["send", "send", "skip", "receive", "receive", "reset"])):
            case "send":
                first = machine.next_entry_id + data.draw(st.integers(0, 2))
                sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=9))
                assert machine.sent(first, sizes) == sum(sizes)
                model.entries += enumerate(sizes, first)
                model.next_id = first + len(sizes)
            case "skip":
                machine.skipped(machine.next_entry_id)
                model.next_id += 1
                if not model.entries:
                    model.confirmed = model.next_id - 1
            case "receive":
                number = data.draw(st.integers(0, len(model.entries) + 1))
                known = model.entries[number - 1][0] if 0 < number <= len(model.entries) else 0
                receipt = (7, known + data.draw(st.sampled_from([0, 0, 0, 1])), number)
                assert machine.received(7, [receipt]) == model.received([receipt])
            case "reset":
                machine.reset()
                model.entries, model.next_id = [], model.confirmed + 1
        assert (machine.confirmed, machine.next_entry_id) == (model.confirmed, model.next_id)
        assert machine.in_flight == len(model.entries)
        size_bytes = sum(size for _, size in model.entries)
        assert machine.room == (0 if size_bytes >= 100 else 50 - len(model.entries))


# The state machine of a replicator.


@pytest.fixture
def replicator() -> ReplicatorLifecycle:
    return sending()


def sending() -> ReplicatorLifecycle:
    replicator = ReplicatorLifecycle()
    assert replicator.begin_opening(ASKED)
    assert replicator.begin_stream()
    return replicator


def test_one_request_to_the_remote_is_under_way_at_a_time() -> None:
    """A link that comes up while a retry is due would open the producer twice."""
    replicator = ReplicatorLifecycle()
    assert replicator.begin_opening(ASKED)
    assert not replicator.begin_opening(ASKED)
    assert replicator.begin_stream()
    assert not replicator.begin_opening(ASKED)


def test_a_response_to_a_request_of_before_the_loss_opens_nothing() -> None:
    replicator = ReplicatorLifecycle()
    replicator.begin_opening(ASKED)
    replicator.link_lost(LINK_DOWN)
    assert not replicator.begin_stream()
    assert (replicator.state, replicator.why_not) == (ReplicatorState.DOWN, "the link is down")


def test_a_read_begun_before_a_loss_is_worth_nothing_even_if_another_is_under_way(
    replicator: ReplicatorLifecycle,
) -> None:
    first = replicator.begin_read()
    replicator.link_lost(LINK_DOWN)
    assert not replicator.end_read(first)
    replicator.begin_opening(ASKED)
    replicator.begin_stream()
    second = replicator.begin_read()
    assert not replicator.end_read(first)
    assert replicator.end_read(second)
    assert replicator.state is ReplicatorState.STREAMING


def test_nothing_is_read_twice_at_once(replicator: ReplicatorLifecycle) -> None:
    replicator.begin_read()
    with pytest.raises(AssertionError, match="READING -> READING"):
        replicator.begin_read()


def test_a_closed_replicator_stays_closed_after_a_lost_link(replicator: ReplicatorLifecycle) -> None:
    replicator.close()
    replicator.link_lost(LINK_DOWN)
    assert (replicator.state, replicator.why_not) == (ReplicatorState.CLOSED, "closed")
    assert not replicator.begin_opening(ASKED)
    assert not replicator.begin_stream()


def test_a_parked_one_is_not_opened_again_before_its_link_was_lost(replicator: ReplicatorLifecycle) -> None:
    assert replicator.park(TOO_LARGE)
    assert not replicator.begin_opening(ASKED)
    assert not replicator.is_connected
    replicator.link_lost(LINK_DOWN)
    assert replicator.begin_opening(ASKED)


def resting() -> ReplicatorLifecycle:
    replicator = sending()
    assert replicator.rest(RESTS)
    return replicator


def test_a_resting_one_is_opened_by_nothing_but_its_use() -> None:
    """Neither a timer, nor a link that comes up, nor a late response opens it."""
    replicator = resting()
    assert not replicator.begin_opening(ASKED)
    assert not replicator.begin_stream()
    assert not replicator.refuse("closed by the peer")
    assert not replicator.link_lost(LINK_DOWN)
    assert (replicator.state, replicator.why_not) == (ReplicatorState.RESTING, RESTS)
    assert replicator.wake(LINK_DOWN)
    assert replicator.begin_opening(ASKED)


def test_only_a_stream_without_work_rests() -> None:
    """A replicator that reads or waits has something to send."""
    reading, held, down = sending(), sending(), ReplicatorLifecycle()
    reading.begin_read()
    held.begin_hold(ASKED)
    assert not any(replicator.rest(RESTS) for replicator in (reading, held, down))


def test_a_refusal_counts_once(replicator: ReplicatorLifecycle) -> None:
    """A peer rejects each entry in flight: one back-off follows, not one for each."""
    assert replicator.refuse("no room")
    assert not replicator.refuse("no room")
    assert replicator.begin_opening(ASKED)
    assert replicator.refuse("no room")


def test_every_state_ends_in_closed_and_every_other_one_leads_back_to_streaming() -> None:
    """No state is a dead end: from each a chain of moves leads to one in which entries are sent."""
    for state in ReplicatorState:
        reached = {state}
        for _ in ReplicatorState:
            reached |= {after for before in reached for after in NEXT_STATES[before]}
        assert ReplicatorState.CLOSED in reached
        assert (ReplicatorState.STREAMING in reached) is (state is not ReplicatorState.CLOSED)


def test_an_entry_refused_before_the_link_was_lost_parks_nothing_after_it(
    replicator: ReplicatorLifecycle,
) -> None:
    replicator.link_lost(LINK_DOWN)
    assert not replicator.park(TOO_LARGE)
    assert replicator.state is ReplicatorState.DOWN


def window_of(progress: ReplicationProgress) -> tuple[int, int, int, list[tuple[int, int]], int]:
    """Return the state of a progress. A compiled one has no `vars`."""
    in_flight = [
        (run.first_entry_id + index, size)
        for run in progress._runs
        for index, size in enumerate(run.sizes[run.dropped :])
    ]
    return (
        progress.confirmed,
        progress.next_entry_id,
        progress.last_sent,
        in_flight,
        progress._bytes_in_flight,
    )


@given(st.lists(st.integers(1, 60)), st.integers(1, 8), st.lists(st.integers(1, 60), max_size=5))
def test_entries_that_are_sent_together_have_the_effect_of_single_ones(
    sizes: list[int], entries_max: int, before: list[int]
) -> None:
    together, alone = (ReplicationProgress(-1, entries_max=entries_max, bytes_max=100) for _ in range(2))
    for machine in (together, alone):
        for entry_id, size in enumerate(before):
            machine.sent(entry_id, (size,))
    fitting = together.fitting(sizes)
    together.sent(len(before), sizes[:fitting])
    sent = 0
    while alone.room > 0 and sent < len(sizes):
        alone.sent(len(before) + sent, (sizes[sent],))
        sent += 1
    assert fitting == sent
    if sent:
        assert window_of(together) == window_of(alone)
