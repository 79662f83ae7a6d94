"""Decisions of one coordinator, and its state after a restart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from emulator.config.broker_settings import BrokerSettings
from emulator.core.transactions.coordinator import (
    FENCED,
    PARTICIPANTS_BYTES_MAX,
    Coordinator,
    CoordinatorLimits,
)
from emulator.core.transactions.journal_format import (
    Holder,
    JournalEntry,
    PartitionsAdded,
    TransactionEnded,
    decode,
    encode,
)
from emulator.core.transactions.live import KeyTransaction
from emulator.errors import EXPIRED_TRANSACTION, ProtocolError, ServerError
from emulator.model.transaction_names import KEY_CHARACTERS_MAX, TransactionStatus, TxnId

BOUNDS = CoordinatorLimits(
    open_max=3, participants_max=2, timeout_ms_max=1_000, outcomes_max=2, outcome_ms=10_000
)
TOPIC = "persistent://public/default/orders"


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator(1, BOUNDS)


def begin(
    coordinator: Coordinator, timeout_ms: int = 100, holder: Holder | None = None, now_ms: float = 0
) -> int:
    return coordinator.begin(timeout_ms, 5, holder, now_ms).least


def commit(coordinator: Coordinator, least: int, now_ms: float = 0) -> None:
    assert coordinator.decide(least, commit=True, why="asked") is not None
    coordinator.end(least, now_ms)


def restarted(coordinator: Coordinator) -> Coordinator:
    """Rebuild it from its checkpoint in the log."""
    fresh = Coordinator(coordinator.number, coordinator.bounds)
    for entry in coordinator.checkpoint_entries():
        fresh.apply(decode(encode(entry)), 0)
        fresh.mark_durable(entry)
    return fresh


def refusal(code: ServerError, text: str) -> Any:
    return pytest.raises(ProtocolError, match=text, check=lambda problem: problem.code is code)


def test_numbers_are_given_once_also_after_a_restart(coordinator: Coordinator) -> None:
    first = begin(coordinator)
    commit(coordinator, first)
    coordinator.outcomes.clear()
    assert begin(restarted(coordinator)) == first + 1


def test_a_participant_counts_once_the_log_has_it(coordinator: Coordinator) -> None:
    least = begin(coordinator)
    entry = coordinator.add_partitions(least, [TOPIC, TOPIC])
    assert entry == PartitionsAdded(least, (TOPIC,))
    with refusal(ServerError.InvalidTxnStatus, "was not added"):
        coordinator.check_publish(least, TOPIC)
    coordinator.mark_durable(entry)
    coordinator.check_publish(least, TOPIC)
    assert coordinator.add_partitions(least, [TOPIC]) is None


def test_a_subscription_is_a_participant_of_its_own(coordinator: Coordinator) -> None:
    least = begin(coordinator)
    entry = coordinator.add_subscriptions(least, [(TOPIC, "s")])
    assert entry is not None
    coordinator.mark_durable(entry)
    coordinator.check_acknowledge(least, TOPIC, "s")
    with refusal(ServerError.InvalidTxnStatus, "was not added"):
        coordinator.check_acknowledge(least, TOPIC, "t")
    with refusal(ServerError.InvalidTxnStatus, "was not added"):
        coordinator.check_publish(least, TOPIC)


def test_nothing_is_added_to_a_decided_transaction(coordinator: Coordinator) -> None:
    least = begin(coordinator)
    coordinator.decide(least, commit=True, why="asked")
    with refusal(ServerError.InvalidTxnStatus, "COMMITTING"):
        coordinator.add_partitions(least, [TOPIC])


@pytest.mark.parametrize("commits", [True, False])
def test_a_decision_may_be_repeated_and_not_reversed(coordinator: Coordinator, commits: bool) -> None:
    least = begin(coordinator)
    coordinator.decide(least, commit=commits, why="asked")
    for _ in ("decided", "over"):
        assert coordinator.decide(least, commit=commits, why="asked") is None
        with refusal(ServerError.InvalidTxnStatus, "is (COMMIT|ABORT)"):
            coordinator.decide(least, commit=not commits, why="asked")
        if least in coordinator.live:
            coordinator.end(least, 0)


def test_an_outcome_is_forgotten_after_its_time_and_when_there_are_too_many(coordinator: Coordinator) -> None:
    first = begin(coordinator)
    commit(coordinator, first, now_ms=0)
    assert coordinator.status(first) is TransactionStatus.COMMITTED
    commit(coordinator, begin(coordinator), now_ms=10_001)
    assert coordinator.status(first) is None
    with refusal(ServerError.TransactionNotFound, "no longer stored"):
        coordinator.decide(first, commit=True, why="asked")
    for _ in range(3):
        commit(coordinator, begin(coordinator), now_ms=10_002)
    assert len(coordinator.outcomes) == BOUNDS.outcomes_max


def test_what_was_never_begun_is_not_found() -> None:
    with refusal(ServerError.TransactionNotFound, "never begun"):
        Coordinator(1, BOUNDS).decide(0, commit=True, why="asked")


def test_each_thing_that_a_client_can_make_grow_has_a_bound(coordinator: Coordinator) -> None:
    least = begin(coordinator)
    with refusal(ServerError.NotAllowedError, "2 topics and subscriptions"):
        coordinator.add_partitions(least, ["a", "b", "c"])
    with refusal(ServerError.NotAllowedError, "time-out of 1001 ms"):
        begin(coordinator, timeout_ms=1_001)
    begin(coordinator)
    begin(coordinator)
    with refusal(ServerError.TooManyRequests, "3 open transactions"):
        begin(coordinator)


def test_a_transaction_that_is_open_for_too_long_is_due_once(coordinator: Coordinator) -> None:
    long = begin(coordinator, timeout_ms=500)
    short = begin(coordinator, timeout_ms=100)
    assert coordinator.next_due_ms == 100
    assert coordinator.due(99) == []
    assert coordinator.due(100) == [short]
    assert coordinator.due(100) == []
    coordinator.decide(short, commit=False, why="timed out")
    coordinator.end(short, 100)
    assert coordinator.next_due_ms == 500
    commit(coordinator, long)
    assert coordinator.next_due_ms is None


def test_a_transaction_without_a_time_out_has_the_longest(coordinator: Coordinator) -> None:
    assert coordinator.live[begin(coordinator, timeout_ms=0)].timeout_ms == BOUNDS.timeout_ms_max


def test_the_low_watermark_is_below_the_oldest_that_is_not_over(coordinator: Coordinator) -> None:
    assert coordinator.low_watermark == -1
    first, second = begin(coordinator), begin(coordinator)
    assert coordinator.low_watermark == first - 1
    commit(coordinator, second)
    assert coordinator.low_watermark == first - 1
    commit(coordinator, first)
    assert coordinator.low_watermark == second


def test_a_fenced_transaction_fails_as_expired(coordinator: Coordinator) -> None:
    least = begin(coordinator, holder=Holder("", "task", 0))
    assert [each.txn.least for each in coordinator.of_key("", "task")] == [least]
    coordinator.decide(least, commit=False, why=f"{FENCED}: its key has a newer connection")
    for attempt in (
        lambda: coordinator.check_publish(least, TOPIC),
        lambda: coordinator.add_partitions(least, [TOPIC]),
        lambda: coordinator.decide(least, commit=True, why="asked"),
    ):
        with refusal(ServerError.NotAllowedError, EXPIRED_TRANSACTION):
            attempt()
    coordinator.end(least, 0)
    assert coordinator.of_key("", "task") == []
    with refusal(ServerError.NotAllowedError, EXPIRED_TRANSACTION):
        coordinator.check_acknowledge(least, TOPIC, "s")


def test_a_checkpoint_contains_the_full_state() -> None:
    coordinator = Coordinator(1, replace(BOUNDS, open_max=10))
    holder = Holder("", "task", 3)
    for commits in (True, False, None):
        least = begin(coordinator, holder=holder)
        for entry in (
            coordinator.add_partitions(least, [TOPIC]),
            coordinator.add_subscriptions(least, [(TOPIC, "s")]),
        ):
            assert entry is not None
            coordinator.mark_durable(entry)
        if commits is not None:
            coordinator.decide(least, commit=commits, why="asked")
    commit(coordinator, begin(coordinator))
    again = restarted(coordinator)
    assert list(again.checkpoint_entries()) == list(coordinator.checkpoint_entries())
    assert again.live == coordinator.live
    assert (again.next_least, again.low_watermark) == (coordinator.next_least, coordinator.low_watermark)


def test_what_was_read_before_a_checkpoint_is_forgotten(coordinator: Coordinator) -> None:
    """A backend may keep more than it was asked to keep."""
    before: list[JournalEntry] = [coordinator.begin(100, 5, None, 0)]
    commit(coordinator, 0)
    coordinator.outcomes.clear()
    fresh = Coordinator(1, BOUNDS)
    for entry in (*before, *coordinator.checkpoint_entries()):
        fresh.apply(entry, 0)
    assert not fresh.live
    assert fresh.next_least == coordinator.next_least


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'["began"]', b'["x",1]', b'["decided",1,"NO",""]', b"7"])
def test_what_is_no_entry_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an entry of a transaction log"):
        decode(data)


def test_an_old_open_transaction_keeps_no_deadlines_of_those_that_came_after_it(
    coordinator: Coordinator,
) -> None:
    begin(coordinator, timeout_ms=1_000)
    for _ in range(5_000):
        commit(coordinator, begin(coordinator, timeout_ms=1_000, now_ms=1), now_ms=1)
    last = begin(coordinator, timeout_ms=500, now_ms=2)
    assert len(coordinator._deadlines) < 1_100
    assert coordinator.due(502) == [last]
    assert coordinator.due(1_000) == [0]


def test_the_names_of_all_participants_have_a_bound_and_their_room_is_freed() -> None:
    coordinator = Coordinator(1, replace(BOUNDS, participants_max=1_000))
    first, second = begin(coordinator), begin(coordinator)
    long = "t" * (PARTICIPANTS_BYTES_MAX - 1_000)
    assert coordinator.add_partitions(first, [long]) is not None
    coordinator = restarted(coordinator)
    with refusal(ServerError.NotAllowedError, "the limit"):
        coordinator.add_partitions(second, ["u" * 1_000])
    with refusal(ServerError.NotAllowedError, "the limit"):
        coordinator.add_subscriptions(second, [(TOPIC, "s" * 1_000)])
    assert coordinator.add_partitions(first, [long]) is None
    commit(coordinator, first)
    assert coordinator.add_partitions(second, ["u" * 1_000]) is not None


@pytest.mark.parametrize("character", ["s", "\x01", '"', "\U0001f600"])
def test_a_checkpoint_is_no_larger_than_names_may_be_whatever_they_are_made_of(character: str) -> None:
    """A log accepts a checkpoint in one append, and on Kafka none beyond its maximum: the coordinator would fail for
    ever."""
    coordinator = Coordinator(1, replace(BOUNDS, participants_max=10_000))
    least = begin(coordinator)
    with refusal(ServerError.NotAllowedError, "the limit"):
        for number in range(80):
            coordinator.add_subscriptions(least, [(TOPIC, f"{number}{character * 1_000_000}")])
    assert sum(len(encode(entry)) for entry in coordinator.checkpoint_entries()) <= PARTICIPANTS_BYTES_MAX


def test_a_key_lists_each_transaction_that_is_not_forgotten_with_its_state() -> None:
    coordinator = Coordinator(1, replace(BOUNDS, open_max=10, outcomes_max=10))
    mine = Holder("", "task", 3)
    committed, aborted, deciding, other = (
        begin(coordinator, holder=mine),
        begin(coordinator, holder=mine._replace(epoch=4)),
        begin(coordinator, holder=mine._replace(epoch=5)),
        begin(coordinator, holder=mine._replace(owner="joe")),
    )
    begin(coordinator)
    commit(coordinator, committed)
    coordinator.decide(aborted, commit=False, why=FENCED)
    coordinator.end(aborted, 0)
    coordinator.decide(deciding, commit=True, why="asked")
    newest = begin(coordinator, holder=mine._replace(epoch=6))
    listed = [
        KeyTransaction(TxnId(1, committed), 3, TransactionStatus.COMMITTED, "asked"),
        KeyTransaction(TxnId(1, aborted), 4, TransactionStatus.ABORTED, FENCED),
        KeyTransaction(TxnId(1, deciding), 5, TransactionStatus.COMMITTING, "asked"),
        KeyTransaction(TxnId(1, newest), 6, TransactionStatus.OPEN, ""),
    ]
    assert coordinator.known_of_key("", "task") == listed
    assert restarted(coordinator).known_of_key("", "task") == listed
    assert [one.txn.least for one in coordinator.known_of_key("joe", "task")] == [other]
    assert coordinator.known_of_key("", "unused") == []


def test_a_key_does_not_list_a_transaction_whose_outcome_is_forgotten(coordinator: Coordinator) -> None:
    for now_ms in range(4):
        commit(coordinator, begin(coordinator, holder=Holder("", "task", 0)), now_ms)
    assert [one.txn.least for one in coordinator.known_of_key("", "task")] == [2, 3]


def test_an_outcome_of_an_older_version_without_a_key_is_read() -> None:
    assert decode(b'["ended",7,"COMMITTED","asked"]') == TransactionEnded(
        7, TransactionStatus.COMMITTED, "asked"
    )
    for data in (b'["ended",7,"COMMITTED","asked",["","task"]]', b'["ended",7,"COMMITTED","asked",null]'):
        with pytest.raises(ValueError, match="not an entry of a transaction log"):
            decode(data)


@pytest.mark.parametrize("character", ["k", '"', "\U0001f600"])
def test_the_keys_of_outcomes_leave_room_in_a_checkpoint_whatever_they_are_called(character: str) -> None:
    settings = BrokerSettings()
    bounds = replace(
        BOUNDS, open_max=settings.transactions_open_max, outcomes_max=settings.transaction_outcomes_max
    )
    coordinator = Coordinator(1, bounds)
    holder = Holder("", character * KEY_CHARACTERS_MAX, 2**62)
    for _ in range(bounds.outcomes_max):
        commit(coordinator, begin(coordinator, holder=holder))
    for _ in range(bounds.open_max):
        begin(coordinator, holder=holder)
    size_bytes = sum(len(encode(entry)) for entry in coordinator.checkpoint_entries())
    assert size_bytes + PARTICIPANTS_BYTES_MAX <= 64 * 1024 * 1024
