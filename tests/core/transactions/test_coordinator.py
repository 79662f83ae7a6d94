"""Decisions of one coordinator, and its state after a restart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from emulator.config.region import BrokerSettings
from emulator.core.transactions.coordinator import (
    FENCED,
    PARTICIPANTS_BYTES_MAX,
    Bounds,
    Coordinator,
    OfKey,
)
from emulator.core.transactions.journal_format import (
    Holder,
    JournalEntry,
    PartitionsAdded,
    TransactionEnded,
    decode,
    encode,
)
from emulator.core.transactions.names import TransactionStatus, TxnId
from emulator.errors import EXPIRED_TRANSACTION, ProtocolError, ServerError
from emulator.model.transaction_names import KEY_CHARACTERS_MAX

BOUNDS = Bounds(open_max=3, participants_max=2, timeout_ms_max=1_000, outcomes_max=2, outcome_ms=10_000)
TOPIC = "persistent://public/default/orders"


def coordinator() -> Coordinator:
    return Coordinator(1, BOUNDS)


def begin(made: Coordinator, timeout_ms: int = 100, holder: Holder | None = None, now_ms: float = 0) -> int:
    return made.begin(timeout_ms, 5, holder, now_ms).least


def commit(made: Coordinator, least: int, now_ms: float = 0) -> None:
    assert made.decide(least, commit=True, why="asked") is not None
    made.ended(least, now_ms)


def restarted(made: Coordinator) -> Coordinator:
    """Rebuild it from its checkpoint in the log."""
    fresh = Coordinator(made.number, made.bounds)
    for entry in made.everything():
        fresh.apply(decode(encode(entry)), 0)
        fresh.durable(entry)
    return fresh


def refusal(code: ServerError, text: str) -> Any:
    return pytest.raises(ProtocolError, match=text, check=lambda problem: problem.code is code)


def test_numbers_are_given_once_also_after_a_restart() -> None:
    made = coordinator()
    first = begin(made)
    commit(made, first)
    made.outcomes.clear()
    assert begin(restarted(made)) == first + 1


def test_a_participant_counts_once_the_log_has_it() -> None:
    made = coordinator()
    least = begin(made)
    entry = made.add_partitions(least, [TOPIC, TOPIC])
    assert entry == PartitionsAdded(least, (TOPIC,))
    with refusal(ServerError.InvalidTxnStatus, "was not added"):
        made.check_publish(least, TOPIC)
    made.durable(entry)
    made.check_publish(least, TOPIC)
    assert made.add_partitions(least, [TOPIC]) is None


def test_a_subscription_is_a_participant_of_its_own() -> None:
    made = coordinator()
    least = begin(made)
    entry = made.add_subscriptions(least, [(TOPIC, "s")])
    assert entry is not None
    made.durable(entry)
    made.check_acknowledge(least, TOPIC, "s")
    with refusal(ServerError.InvalidTxnStatus, "was not added"):
        made.check_acknowledge(least, TOPIC, "t")
    with refusal(ServerError.InvalidTxnStatus, "was not added"):
        made.check_publish(least, TOPIC)


def test_nothing_is_added_to_a_decided_transaction() -> None:
    made = coordinator()
    least = begin(made)
    made.decide(least, commit=True, why="asked")
    with refusal(ServerError.InvalidTxnStatus, "COMMITTING"):
        made.add_partitions(least, [TOPIC])


@pytest.mark.parametrize("commits", [True, False])
def test_a_decision_may_be_asked_for_again_and_not_turned_round(commits: bool) -> None:
    made = coordinator()
    least = begin(made)
    made.decide(least, commit=commits, why="asked")
    for _ in ("decided", "over"):
        assert made.decide(least, commit=commits, why="asked") is None
        with refusal(ServerError.InvalidTxnStatus, "is (COMMIT|ABORT)"):
            made.decide(least, commit=not commits, why="asked")
        if least in made.live:
            made.ended(least, 0)


def test_an_outcome_is_forgotten_after_its_time_and_when_there_are_too_many() -> None:
    made = coordinator()
    first = begin(made)
    commit(made, first, now_ms=0)
    assert made.status(first) is TransactionStatus.COMMITTED
    commit(made, begin(made), now_ms=10_001)
    assert made.status(first) is None
    with refusal(ServerError.TransactionNotFound, "no longer stored"):
        made.decide(first, commit=True, why="asked")
    for _ in range(3):
        commit(made, begin(made), now_ms=10_002)
    assert len(made.outcomes) == BOUNDS.outcomes_max


def test_what_was_never_begun_is_not_found() -> None:
    with refusal(ServerError.TransactionNotFound, "never begun"):
        coordinator().decide(0, commit=True, why="asked")


def test_each_thing_that_a_client_can_make_grow_has_a_bound() -> None:
    made = coordinator()
    least = begin(made)
    with refusal(ServerError.NotAllowedError, "2 topics and subscriptions"):
        made.add_partitions(least, ["a", "b", "c"])
    with refusal(ServerError.NotAllowedError, "time-out of 1001 ms"):
        begin(made, timeout_ms=1_001)
    begin(made)
    begin(made)
    with refusal(ServerError.TooManyRequests, "3 open transactions"):
        begin(made)


def test_a_transaction_that_is_open_for_too_long_is_due_once() -> None:
    made = coordinator()
    long = begin(made, timeout_ms=500)
    short = begin(made, timeout_ms=100)
    assert made.next_due_ms == 100
    assert made.due(99) == []
    assert made.due(100) == [short]
    assert made.due(100) == []
    made.decide(short, commit=False, why="timed out")
    made.ended(short, 100)
    assert made.next_due_ms == 500
    commit(made, long)
    assert made.next_due_ms is None


def test_who_says_no_time_out_has_the_longest() -> None:
    made = coordinator()
    assert made.live[begin(made, timeout_ms=0)].timeout_ms == BOUNDS.timeout_ms_max


def test_the_low_watermark_is_below_the_oldest_that_is_not_over() -> None:
    made = coordinator()
    assert made.low_watermark == -1
    first, second = begin(made), begin(made)
    assert made.low_watermark == first - 1
    commit(made, second)
    assert made.low_watermark == first - 1
    commit(made, first)
    assert made.low_watermark == second


def test_a_fenced_transaction_fails_as_expired() -> None:
    made = coordinator()
    least = begin(made, holder=Holder("", "task", 0))
    assert [each.txn.least for each in made.of_key("", "task")] == [least]
    made.decide(least, commit=False, why=f"{FENCED}: its key has a newer connection")
    for attempt in (
        lambda: made.check_publish(least, TOPIC),
        lambda: made.add_partitions(least, [TOPIC]),
        lambda: made.decide(least, commit=True, why="asked"),
    ):
        with refusal(ServerError.NotAllowedError, EXPIRED_TRANSACTION):
            attempt()
    made.ended(least, 0)
    assert made.of_key("", "task") == []
    with refusal(ServerError.NotAllowedError, EXPIRED_TRANSACTION):
        made.check_acknowledge(least, TOPIC, "s")


def test_a_checkpoint_tells_everything() -> None:
    made = Coordinator(1, replace(BOUNDS, open_max=10))
    holder = Holder("", "task", 3)
    for commits in (True, False, None):
        least = begin(made, holder=holder)
        for entry in (made.add_partitions(least, [TOPIC]), made.add_subscriptions(least, [(TOPIC, "s")])):
            assert entry is not None
            made.durable(entry)
        if commits is not None:
            made.decide(least, commit=commits, why="asked")
    commit(made, begin(made))
    again = restarted(made)
    assert list(again.everything()) == list(made.everything())
    assert again.live == made.live
    assert (again.next_least, again.low_watermark) == (made.next_least, made.low_watermark)


def test_what_was_read_before_a_checkpoint_is_forgotten() -> None:
    """A backend may keep more than it was asked to keep."""
    made = coordinator()
    before: list[JournalEntry] = [made.begin(100, 5, None, 0)]
    commit(made, 0)
    made.outcomes.clear()
    fresh = coordinator()
    for entry in (*before, *made.everything()):
        fresh.apply(entry, 0)
    assert not fresh.live
    assert fresh.next_least == made.next_least


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'["began"]', b'["x",1]', b'["decided",1,"NO",""]', b"7"])
def test_what_is_no_entry_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an entry of a transaction log"):
        decode(data)


def test_an_old_open_transaction_keeps_no_deadlines_of_those_that_came_after_it() -> None:
    made = coordinator()
    begin(made, timeout_ms=1_000)
    for _ in range(5_000):
        commit(made, begin(made, timeout_ms=1_000, now_ms=1), now_ms=1)
    last = begin(made, timeout_ms=500, now_ms=2)
    assert len(made._deadlines) < 1_100
    assert made.due(502) == [last]
    assert made.due(1_000) == [0]


def test_the_names_of_all_participants_have_a_bound_and_their_room_is_given_back() -> None:
    made = Coordinator(1, replace(BOUNDS, participants_max=1_000))
    first, second = begin(made), begin(made)
    long = "t" * (PARTICIPANTS_BYTES_MAX - 1_000)
    assert made.add_partitions(first, [long]) is not None
    made = restarted(made)
    with refusal(ServerError.NotAllowedError, "the limit"):
        made.add_partitions(second, ["u" * 1_000])
    with refusal(ServerError.NotAllowedError, "the limit"):
        made.add_subscriptions(second, [(TOPIC, "s" * 1_000)])
    assert made.add_partitions(first, [long]) is None
    commit(made, first)
    assert made.add_partitions(second, ["u" * 1_000]) is not None


@pytest.mark.parametrize("character", ["s", "\x01", '"', "\U0001f600"])
def test_a_checkpoint_is_no_larger_than_names_may_be_whatever_they_are_made_of(character: str) -> None:
    """A log accepts a checkpoint in one append, and on Kafka none beyond its maximum: the coordinator would fail for
    ever."""
    made = Coordinator(1, replace(BOUNDS, participants_max=10_000))
    least = begin(made)
    with refusal(ServerError.NotAllowedError, "the limit"):
        for number in range(80):
            made.add_subscriptions(least, [(TOPIC, f"{number}{character * 1_000_000}")])
    assert sum(len(encode(entry)) for entry in made.everything()) <= PARTICIPANTS_BYTES_MAX


def test_a_key_lists_each_transaction_that_is_not_forgotten_with_its_state() -> None:
    made = Coordinator(1, replace(BOUNDS, open_max=10, outcomes_max=10))
    mine = Holder("", "task", 3)
    committed, aborted, deciding, other = (
        begin(made, holder=mine),
        begin(made, holder=mine._replace(epoch=4)),
        begin(made, holder=mine._replace(epoch=5)),
        begin(made, holder=mine._replace(owner="joe")),
    )
    begin(made)
    commit(made, committed)
    made.decide(aborted, commit=False, why=FENCED)
    made.ended(aborted, 0)
    made.decide(deciding, commit=True, why="asked")
    newest = begin(made, holder=mine._replace(epoch=6))
    listed = [
        OfKey(TxnId(1, committed), 3, TransactionStatus.COMMITTED, "asked"),
        OfKey(TxnId(1, aborted), 4, TransactionStatus.ABORTED, FENCED),
        OfKey(TxnId(1, deciding), 5, TransactionStatus.COMMITTING, "asked"),
        OfKey(TxnId(1, newest), 6, TransactionStatus.OPEN, ""),
    ]
    assert made.known_of_key("", "task") == listed
    assert restarted(made).known_of_key("", "task") == listed
    assert [one.txn.least for one in made.known_of_key("joe", "task")] == [other]
    assert made.known_of_key("", "nobody") == []


def test_a_key_does_not_list_a_transaction_whose_outcome_is_forgotten() -> None:
    made = coordinator()
    for now_ms in range(4):
        commit(made, begin(made, holder=Holder("", "task", 0)), now_ms)
    assert [one.txn.least for one in made.known_of_key("", "task")] == [2, 3]


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
    made = Coordinator(1, bounds)
    holder = Holder("", character * KEY_CHARACTERS_MAX, 2**62)
    for _ in range(bounds.outcomes_max):
        commit(made, begin(made, holder=holder))
    for _ in range(bounds.open_max):
        begin(made, holder=holder)
    size_bytes = sum(len(encode(entry)) for entry in made.everything())
    assert size_bytes + PARTICIPANTS_BYTES_MAX <= 64 * 1024 * 1024
