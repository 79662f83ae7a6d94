"""A topic's state: the same however it was built (T1), and right after a kill between any two puts (T3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.core.admission import ClientProducer, Peer
from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import PART_IDS
from emulator.core.replication.subscription_updates import Applied
from emulator.core.topic.state import TopicState
from emulator.errors import StorageError
from emulator.model.values import Position

patient = settings(deadline=None, max_examples=60)


@dataclass(frozen=True)
class Says:
    producer_name: str = "p"
    sequence_id: int = 0
    highest_sequence_id: int = 0
    num_messages: int = 1
    is_batch: bool = False
    is_chunk: bool = False
    chunk_id: int | None = None
    num_chunks: int = 0
    replicated_from: str | None = None
    replicate_to: tuple[str, ...] = ()
    source_position: Position | None = None
    marker_type: int | None = None
    publish_time_ms: int = 0
    txn: tuple[int, int] | None = None


def fresh() -> TopicState:
    return TopicState("us", deduplicates=True)


@pytest.fixture
def state() -> TopicState:
    return fresh()


def view(state: TopicState) -> dict[str, Any]:
    """Everything that outlives a restart, for comparison."""
    return {
        "end": state.stored_end,
        "readable": state.readable_end,
        "open": [(txn, list(one.runs)) for txn, one in state.buffer.open.items()],
        "aborted": state.visibility.last_aborted,
        "producers": state.deduplication.to_json(),
        "unfinished": state.chunk_tracker.to_json(),
        "sources": state.watermarks.to_json(),
        "last": state.last_data,
        "hidden": state.visibility.hidden.runs(),
        "restricted": {audience: ids.runs() for audience, ids in state.visibility.restricted.items()},
    }


txns = st.tuples(st.just(0), st.integers(0, 3))
entries = st.one_of(
    st.builds(Says, st.sampled_from("abc"), st.integers(0, 50)),
    st.builds(Says, st.sampled_from("abc"), st.integers(0, 50), replicate_to=st.just(("eu",))),
    st.builds(Says, st.just("m"), marker_type=st.integers(10, 13)),
    st.builds(Says, st.sampled_from("abc"), st.integers(0, 50), txn=txns),
    st.builds(Says, st.just("t"), marker_type=st.sampled_from([21, 22]), txn=txns),
    st.builds(
        Says,
        st.sampled_from("xy"),
        st.integers(0, 50),
        replicated_from=st.sampled_from(["eu", "ap"]),
        source_position=st.builds(Position, st.just(1), st.integers(0, 99)),
        replicate_to=st.sampled_from([(), ("us",)]),
    ),
)
logs = st.lists(st.tuples(st.integers(1, PART_IDS), entries), max_size=30).map(
    lambda steps: [(sum(gap for gap, _ in steps[: at + 1]) - 1, entry) for at, (_, entry) in enumerate(steps)]
)
"""(id, entry) with gaps, over several parts."""


class Store:
    """A key store; puts under way may or may not survive a kill, each independently (S1)."""

    def __init__(self) -> None:
        self.head: bytes | None = None
        self.parts: dict[int, bytes] = {}

    def checkpoint(self, state: TopicState, survives: list[bool]) -> None:
        """Write a checkpoint; `survives` decides which of its puts were stored before the kill."""
        puts: list[tuple[int | None, bytes]] = [*state.visibility.take_unwritten(state.readable_end).items()]
        puts.append((None, state.head(1)))
        for at, (number, data) in enumerate(puts):
            if not survives[at % len(survives)]:
                continue
            if number is None:
                self.head = data
            else:
                self.parts[number] = data

    def load(self, log: list[tuple[int, Says]]) -> TopicState:
        state = fresh()
        at = state.restore(self.head, 1, self.parts.get)
        for entry_id, entry in log:
            if entry_id >= at:
                state.fold(entry_id, entry)
        return state


@patient
@given(logs, st.lists(st.tuples(st.integers(0, 30), st.lists(st.booleans(), min_size=1)), max_size=3))
def test_a_kill_between_any_two_puts_changes_nothing(
    log: list[tuple[int, Says]], checkpoints: list[tuple[int, list[bool]]]
) -> None:
    """Whatever mix of old and new parts and heads the store holds, the log gives the same state."""
    live, store = fresh(), Store()
    for at, (entry_id, entry) in enumerate(log):
        live.fold(entry_id, entry)
        for when, survives in checkpoints:
            if when == at:
                store.checkpoint(live, survives)
    assert view(store.load(log)) == view(live)


@patient
@given(logs, st.integers(0, 30))
def test_folding_twice_changes_nothing(log: list[tuple[int, Says]], cut: int) -> None:
    once, twice = fresh(), fresh()
    for entry_id, entry in log:
        once.fold(entry_id, entry)
    for entry_id, entry in [*log[:cut], *log]:
        twice.fold(entry_id, entry)
    assert view(once) == view(twice)


def test_what_is_new_is_decided_by_what_was_admitted() -> None:
    """Whether durable or not."""
    state, client, eu = fresh(), ClientProducer("p", "here"), Peer("eu")
    assert state.admit(client, Says(sequence_id=1))
    assert not state.admit(client, Says(sequence_id=1))
    assert state.deduplication.last_sequence_id("p") == -1
    state.fold(0, Says(sequence_id=1))
    assert state.deduplication.last_sequence_id("p") == 1
    at = Says("x", replicated_from="eu", source_position=Position(1, 5))
    assert state.admit(eu, at)
    assert not state.admit(eu, at)
    assert state.admit(Peer("ap"), at)


def test_entries_that_every_cursor_has_passed_are_released_once_durable(state: TopicState) -> None:
    """And it is loaded again before a cursor goes back there."""
    for entry_id in range(3 * PART_IDS):
        marker = 10 if entry_id % 2 else None
        state.fold(entry_id, Says(marker_type=marker, replicate_to=() if marker else ("eu",)))
    visibility = state.visibility
    visibility.forget_below(2 * PART_IDS + 7)
    assert visibility.known_from == 0, "none of it is durable yet"
    parts = visibility.take_unwritten(state.stored_end)
    assert all(len(part) < 3_000 for part in parts.values())
    visibility.forget_below(2 * PART_IDS + 7)
    assert visibility.known_from == 0, "it is still being written"
    for number in parts:
        visibility.outcome(number, True)
    visibility.forget_below(2 * PART_IDS + 7)
    assert visibility.known_from == 2 * PART_IDS
    assert len(visibility.hidden) == PART_IDS // 2
    assert list(state.unseen_by("ap", 2 * PART_IDS + 3)) == [2 * PART_IDS, 2 * PART_IDS + 2]
    assert [*visibility.missing_parts(5)] == [1, 0]
    for number in visibility.missing_parts(5):
        visibility.remember(number, parts[number])
    assert len(visibility.hidden) == 3 * PART_IDS // 2
    assert [*visibility.missing_parts(5)] == []


def test_a_part_that_was_not_written_is_written_later(state: TopicState) -> None:
    state.fold(0, Says(marker_type=10))
    assert [*state.visibility.take_unwritten(1)] == [0]
    assert not state.visibility.take_unwritten(1)
    state.visibility.outcome(0, False)
    assert [*state.visibility.take_unwritten(1)] == [0]


@pytest.mark.parametrize(
    "part", [b"", b"{}", b'{"end":1,"hidden":"zz","restricted":[]}', b'{"end":1,"hidden":1}']
)
def test_a_part_that_cannot_be_read_is_an_error(part: bytes) -> None:
    with pytest.raises(StorageError, match="cannot be read"):
        fresh().visibility.load_part(0, part)


def test_a_checkpoint_of_another_log_or_format_means_nothing(state: TopicState) -> None:
    state.fold(0, Says())
    assert fresh().restore(state.head(1), 2, lambda number: None) == 0
    assert fresh().restore(b'{"format": 1}', 1, lambda number: None) == 0
    assert fresh().restore(None, 1, lambda number: None) == 0


def test_an_update_of_another_region_acknowledges_what_it_may(state):
    """INV-5: nothing that its sender never received, nothing beyond our log; the markers after it are passed."""
    for entry_id in range(4):
        state.fold(entry_id, Says(replicate_to=("eu",) if entry_id == 1 else ()))
    state.fold(4, Says(marker_type=10))
    of_eu, of_ap = Cursor(-1), Cursor(-1)
    assert state.follow(of_eu, "eu", 3) is Applied.MOVED
    assert of_eu.mark_delete == 4, "the marker behind it is passed too"
    assert state.follow(of_ap, "ap", 3) is Applied.MOVED
    assert (of_ap.mark_delete, of_ap.is_acked(1), of_ap.is_acked(3)) == (0, False, True)
    assert state.follow(of_ap, "eu", 5) is Applied.REFUSED
    assert not of_ap.is_acked(1)
    assert state.follow(of_ap, "eu", 2) is Applied.MOVED
    assert of_ap.mark_delete == 4
    assert state.follow(of_ap, "eu", 2) is Applied.BEHIND


def test_an_update_leaves_what_came_from_a_region_outside_the_snapshot(state):
    """INV-5: while a region is out of the namespace, a snapshot is made without it. Messages that it sent to us, and
    not to the sender of this update, were consumed nowhere. Later messages than its last one are covered."""
    for entry_id, source in enumerate((None, "sa", None, None)):
        state.fold(entry_id, Says(replicated_from=source))
    cursor, of_all = Cursor(-1), Cursor(-1)
    assert state.follow(cursor, "eu", 3, named=("us",)) is Applied.MOVED
    assert [cursor.is_acked(entry_id) for entry_id in range(4)] == [False, False, True, True]
    state.follow(of_all, "eu", 3, named=("us", "sa"))
    assert of_all.mark_delete == 3
    again = fresh()
    again.restore(state.head(1), 1, lambda number: None)
    restored = Cursor(-1)
    again.follow(restored, "eu", 3, named=("us",))
    assert [restored.is_acked(entry_id) for entry_id in range(4)] == [False, False, True, True]


def test_an_update_costs_what_lies_between_the_cursor_and_its_place(state):
    """It does not depend on how many messages for some regions the log has."""
    for entry_id in range(0, 20 * PART_IDS, 64):
        state.fold(entry_id, Says(replicate_to=("eu",)))
    given: list[list[int]] = []

    def apply(cursor: Cursor, entry_id: int, last_entry_id: int, unseen: Iterable[int]) -> Applied:
        given.append(list(unseen))
        return Applied.BEHIND

    state.follow(Cursor(9 * PART_IDS - 1), "ap", 9 * PART_IDS + 64, apply=apply)
    assert given == [[9 * PART_IDS, 9 * PART_IDS + 64]]


def test_ids_without_an_entry_are_no_backlog(state: TopicState) -> None:
    """A remote log uses some ids itself, between entries and after the last one."""
    for entry_id in (2, 3, 7):
        state.fold(entry_id, Says())
    state.ends_at(10)
    assert state.visibility.hidden.runs() == [(0, 1), (4, 6), (8, 9)]
    assert Cursor(-1).unacked_count(state.readable_end, state.visibility.hidden) == 3


def test_nothing_is_remembered_of_what_was_trimmed(state: TopicState) -> None:
    state.begins_at(1_000_000)
    state.fold(1_000_000, Says())
    assert not state.visibility.hidden
    assert state.stored_end == 1_000_001


@pytest.mark.parametrize("deduplicates", [True, False])
def test_a_chunk_is_not_admitted_again_also_after_a_restart_from_a_checkpoint(deduplicates: bool) -> None:
    state = TopicState("us", deduplicates=deduplicates)
    chunks = [Says(sequence_id=3, chunk_id=number, num_chunks=4, publish_time_ms=9) for number in range(4)]
    for number in range(2):
        assert state.admit(ClientProducer("p", "here"), chunks[number])
        state.fold(number, chunks[number])
    again = TopicState("us", deduplicates=deduplicates)
    assert again.restore(state.head(1), 1, lambda _: None) == 2
    assert [again.admit(ClientProducer("p", "here"), chunk) for chunk in chunks] == [False, False, True, True]


def test_a_chunk_without_a_number_is_not_tracked(state: TopicState) -> None:
    for number in (None, -1, 4):
        forged = Says(sequence_id=3, chunk_id=number, num_chunks=4)
        assert state.admit(ClientProducer("p", "here"), forged)
        assert state.chunk_tracker.to_json() == {}


# Origins of entries (partial snapshots).


def test_an_update_acknowledges_everything_but_messages_of_unnamed_regions_once_origins_are_known(state):
    """INV-5: before the log was read, every entry up to the newest message of sa may be one of sa."""
    sources = ("sa", None, "eu", "sa", "eu", None)
    for entry_id, source in enumerate(sources):
        state.fold(entry_id, Says(replicated_from=source))
    cursor = Cursor(-1)
    state.follow(cursor, "eu", 5, named=("us",))
    assert [one for one in range(6) if not cursor.is_acked(one)] == [0, 1, 2, 3]
    [unread] = state.unread_origins(0, 5, {"us", "eu"})
    assert unread == ("sa", 0, 3)
    state.origins.learn(unread, list(enumerate(sources)))
    assert state.unread_origins(0, 5, {"us", "eu"}) == []
    state.follow(cursor, "eu", 5, named=("us",))
    assert [one for one in range(6) if not cursor.is_acked(one)] == [0, 3]


def test_new_messages_of_an_unnamed_region_are_unread(state):
    for entry_id, source in enumerate(("sa", "eu")):
        state.fold(entry_id, Says(replicated_from=source))
    [unread] = state.unread_origins(0, 1, {"us", "eu"})
    state.origins.learn(unread, [(0, "sa")])
    for entry_id, source in enumerate(("eu", "sa"), start=2):
        state.fold(entry_id, Says(replicated_from=source))
    assert state.unread_origins(0, 3, {"us", "eu"}) == [("sa", 1, 3)]
    assert list(state.possibly_unseen(0, 3, {"us", "eu"})) == [0, 1, 2, 3]


def test_origins_are_known_per_region(state):
    """Two regions are unnamed: what was read for one says nothing about messages of the other."""
    for entry_id, source in enumerate(("sa", "ap", "eu")):
        state.fold(entry_id, Says(replicated_from=source))
    unread = state.unread_origins(0, 2, {"us", "eu"})
    assert unread == [("sa", 0, 0), ("ap", 0, 1)]
    state.origins.learn(unread[0], [(0, "sa")])
    assert list(state.possibly_unseen(0, 2, {"us", "eu"})) == [0, 1]
    state.origins.learn(unread[1], [(0, "sa"), (1, "ap")])
    assert list(state.possibly_unseen(0, 2, {"us", "eu"})) == [0, 1]
    assert list(state.possibly_unseen(0, 2, {"us", "eu", "sa"})) == [1]


def test_known_origins_take_a_bit_per_entry_and_are_forgotten_with_the_cursors(state):
    last = 5 * PART_IDS - 1
    for entry_id in range(last + 1):
        state.fold(entry_id, Says(replicated_from="sa" if entry_id % 2 else "eu"))
    [unread] = state.unread_origins(0, last, {"us", "eu"})
    state.origins.learn(unread, [(one, "sa" if one % 2 else "eu") for one in range(last + 1)])
    cursor = Cursor(-1)
    state.follow(cursor, "eu", last, named=("us",))
    assert cursor.unacked_count(last + 1) == len(range(1, last + 1, 2))
    state.origins.forget_below(3 * PART_IDS)
    assert state.unread_origins(3 * PART_IDS, last, {"us", "eu"}) == []
    assert state.unread_origins(0, last, {"us", "eu"}) == [("sa", 0, 3 * PART_IDS - 1)]
