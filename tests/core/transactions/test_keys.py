"""Which connection may use a transaction key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.core.transactions.journal_format import Granted, decode_key_entry, encode_key_entry, name_bytes
from emulator.core.transactions.keys import (
    CLIENT_BYTES_MAX,
    DELETED_MAX,
    NO_EPOCH,
    PROCESSES_MAX,
    KeyBook,
    client_text,
)
from emulator.errors import EXPIRED_TRANSACTION, ProtocolError, ServerError
from emulator.model.transaction_names import check_key, coordinator_of


def connect(book: KeyBook, epoch: int, process: str = "", key: str = "task") -> int:
    return book.connect("", key, epoch, process, 7).epoch


def refused(book: KeyBook, epoch: int, process: str = "") -> str:
    with pytest.raises(ProtocolError) as problem:
        connect(book, epoch, process)
    assert problem.value.code is ServerError.NotAllowedError
    return str(problem.value)


def restarted(book: KeyBook) -> KeyBook:
    fresh = KeyBook(book.number, 100)
    for entry in book.checkpoint_entries():
        fresh.apply(decode_key_entry(encode_key_entry(entry)))
    return fresh


@pytest.fixture
def book() -> KeyBook:
    return KeyBook(0, 100)


def test_the_first_epoch_is_0_and_each_connection_gets_the_next(book: KeyBook) -> None:
    assert [connect(book, NO_EPOCH), connect(book, 0), connect(book, 1), connect(book, NO_EPOCH)] == [
        0,
        1,
        2,
        3,
    ]


def test_a_stale_epoch_is_refused_and_changes_nothing(book: KeyBook) -> None:
    connect(book, NO_EPOCH, "a")
    connect(book, NO_EPOCH, "b")
    assert "stale" in refused(book, 0, "a")
    assert book.last_epoch("", "task") == 1


@pytest.mark.parametrize("epoch", [1, 2**63 - 1])
def test_an_epoch_that_no_client_was_granted_is_refused(book: KeyBook, epoch: int) -> None:
    connect(book, NO_EPOCH)
    assert "never granted" in refused(book, epoch)


def test_epochs_are_compared_signed(book: KeyBook) -> None:
    assert "stale" in refused(book, -2)


def test_a_lost_response_does_not_let_a_process_fence_itself(book: KeyBook) -> None:
    assert connect(book, NO_EPOCH, "a") == 0
    assert connect(book, 0, "a") == 1  # this answer is lost
    assert connect(book, 0, "a") == 2


def test_a_process_whose_first_response_was_lost_does_not_fence_its_successor(book: KeyBook) -> None:
    assert connect(book, NO_EPOCH, "a") == 0  # this answer is lost
    assert connect(book, NO_EPOCH, "b") == 1
    assert "stale" in refused(book, NO_EPOCH, "a")
    book = restarted(book)
    assert "stale" in refused(book, NO_EPOCH, "a")
    assert connect(book, 1, "b") == 2


def test_not_even_over_a_deletion_of_the_key(book: KeyBook) -> None:
    assert connect(book, NO_EPOCH, "a") == 0  # this answer is lost
    book.delete("", "task")
    assert "stale" in refused(book, NO_EPOCH, "a"), "the former holder of a deleted key is fenced"
    book = restarted(book)
    assert connect(book, NO_EPOCH, "b") == 2
    assert "stale" in refused(book, NO_EPOCH, "a")
    book = restarted(restarted(book))
    assert "stale" in refused(book, NO_EPOCH, "a")
    assert connect(book, 2, "b") == 3
    book.delete("", "task")
    book = restarted(book)
    assert "stale" in refused(book, NO_EPOCH, "a")
    assert "stale" in refused(book, NO_EPOCH, "b")
    assert connect(book, NO_EPOCH, "c") == 5


def fill(book: KeyBook, character: str) -> None:
    for number in range(100_000):
        connect(book, NO_EPOCH, f"{number}".rjust(64, "p"), key=f"{number}".rjust(255, character))


@pytest.mark.long
@pytest.mark.parametrize("character", ["k", '"', "\U0001f600"])
def test_a_checkpoint_of_keys_fits_into_one_append_whatever_they_are_called(character: str) -> None:
    """Kafka accepts no larger one: the coordinator would fail for ever."""
    book = KeyBook(0, 100_000)
    for number in range(DELETED_MAX):
        book.apply(Granted("", f"{number}".ljust(255, character), number, "p" * 64, 0))
        for process in range(PROCESSES_MAX):
            book.apply(Granted("", f"{number}".ljust(255, character), number, f"{process}".ljust(64, "p"), 0))
        book.delete("", f"{number}".ljust(255, character))
    too_long = "which need"
    with pytest.raises(ProtocolError, match=too_long):
        fill(book, character)
    for state in book.keys.values():
        for process in range(PROCESSES_MAX):
            state.processes[f"{process}".rjust(64, "q")] = 2**62
    size_bytes = sum(len(encode_key_entry(entry)) for entry in book.checkpoint_entries())
    assert size_bytes <= 64 * 1024 * 1024
    assert restarted(book).keys.keys() == book.keys.keys()


def test_only_the_newest_connection_begins_transactions(book: KeyBook) -> None:
    connect(book, NO_EPOCH)
    holder = book.holder("", "task", 0)
    connect(book, NO_EPOCH)
    assert not book.is_current(holder)
    with pytest.raises(ProtocolError, match=EXPIRED_TRANSACTION):
        book.holder("", "task", 0)


def test_a_deleted_key_keeps_its_epoch_and_fences_its_holder(book: KeyBook) -> None:
    connect(book, NO_EPOCH, "a")
    deleted = book.delete("", "task")
    with pytest.raises(ProtocolError, match="was deleted"):
        book.holder("", "task", 0)
    book = restarted(book)
    assert "stale" in refused(book, 0, "a")
    assert connect(book, NO_EPOCH) > deleted.epoch > 0


def test_epochs_of_many_deleted_keys_are_kept_as_one_number() -> None:
    book = KeyBook(0, 2)
    for _ in range(3):
        connect(book, NO_EPOCH, key="old")
    book.delete("", "old")
    for number in range(DELETED_MAX):
        connect(book, NO_EPOCH, key=f"key-{number}")
        book.delete("", f"key-{number}")
    assert len(book.deleted) == DELETED_MAX
    assert connect(restarted(book), NO_EPOCH, key="old") > 3


def test_a_deleted_key_continues_above_the_floor() -> None:
    """INV-55: another coordinator may have granted the key higher epochs in between, while their number was changed."""
    book = KeyBook(0, 100)
    connect(book, NO_EPOCH, "a")
    book.delete("", "task")
    book.raise_floor(5, 4)
    assert "stale" in refused(book, 0, "a")
    book = restarted(book)
    assert connect(book, NO_EPOCH, "b") == 6
    book.delete("", "task")
    assert connect(restarted(book), NO_EPOCH) == 8


def test_there_is_a_limit_of_keys() -> None:
    book = KeyBook(0, 1)
    connect(book, NO_EPOCH)
    with pytest.raises(ProtocolError, match="1 transaction keys, the limit"):
        connect(book, NO_EPOCH, key="other")
    assert connect(book, NO_EPOCH) == 1


@pytest.mark.parametrize("key", ["", "a&b", "x" * 256, "a\nb"])
def test_what_is_no_key_is_refused_with_the_rule(key: str) -> None:
    with pytest.raises(ValueError, match="must"):
        check_key(key)


def test_a_key_has_one_coordinator() -> None:
    """Clients also compute it, so it must not change."""
    assert [coordinator_of(key, 4) for key in ("task", "task-1", "ä")] == [
        coordinator_of(key, 4) for key in ("task", "task-1", "ä")
    ]
    assert {coordinator_of(str(number), 4) for number in range(100)} == {0, 1, 2, 3}


ACTS = st.lists(
    st.tuples(st.sampled_from(["connect", "delete", "restart"]), st.integers(-2, 6), st.sampled_from("ab ")),
    max_size=30,
)


@given(ACTS)
def test_epochs_only_grow(acts: list[tuple[str, int, str]]) -> None:
    """INV-55: with any requests, and over restarts and deletions."""
    book, granted = KeyBook(0, 100), [-1]
    for act, epoch, process in acts:
        try:
            if act == "connect":
                granted.append(connect(book, epoch, process.strip()))
            elif act == "delete":
                book.delete("", "task")
            else:
                book = restarted(book)
        except ProtocolError:
            pass
    assert granted == sorted(set(granted))


def test_a_key_s_age_and_number_of_epochs_survive_checkpoints_and_begin_anew_after_deletion() -> None:
    """Also for clients that send no process name."""
    book = KeyBook(0, 10)
    book.connect("", "k", -1, "", 1)
    book.delete("", "k")
    for at_ms in (10, 20, 30):
        book.connect("", "k", -1, "", at_ms)
    again = KeyBook(0, 10)
    for entry in book.checkpoint_entries():
        again.apply(decode_key_entry(encode_key_entry(entry)))
    for state in (book.keys["", "k"], again.keys["", "k"]):
        assert (state.created_ms, state.since_ms) == (10, 30)
        assert (state.first_epoch, state.epoch) == (2, 4)


@pytest.mark.parametrize(
    "data",
    [
        b'["granted","","k","0","p",1]',
        b'["granted","",7,0,"p",1]',
        b'["granted","","k",0,null,1]',
        b'["begun","","k",1.5]',
        b'["deleted","","k",null]',
        b'["floor",1]',
        b'["floor",[],4]',
        b"[]",
        b"{}",
        b"",
    ],
)
def test_what_is_no_entry_of_a_log_of_keys_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an entry of a log of transaction keys"):
        decode_key_entry(data)


def test_the_last_client_of_a_key_is_kept_for_information_and_survives_a_checkpoint(book: KeyBook) -> None:
    book.connect("", "task", NO_EPOCH, "a", 1, "Pulsar-Java-v4.0.7 at 10.0.0.1:50000")
    book.connect("", "task", NO_EPOCH, "b", 2, "pulsar-go at 10.0.0.2:50001")
    assert restarted(book).keys["", "task"].client == "pulsar-go at 10.0.0.2:50001"
    book.connect("", "task", 1, "b", 3)
    assert restarted(book).keys["", "task"].client == ""


def test_the_client_is_no_part_of_what_identifies_a_key(book: KeyBook) -> None:
    first = book.connect("", "task", NO_EPOCH, "", 1, "one client")
    assert book.connect("", "task", first.epoch, "", 2, "another client").epoch == first.epoch + 1
    assert len(book.keys) == 1


@pytest.mark.parametrize("version", ["", "\0\n\x1b[2J", '"' * 1_000, "\U0001f600" * 1_000])
def test_the_text_of_a_client_is_printable_and_bounded_whatever_it_sent(version: str) -> None:
    text = client_text(version, "10.0.0.1:50000")
    assert text.isprintable()
    assert text.endswith(" at 10.0.0.1:50000")
    assert name_bytes(text) <= CLIENT_BYTES_MAX


def test_a_grant_of_an_older_version_without_a_client_is_read() -> None:
    assert decode_key_entry(b'["granted","","task",3,"p",7]') == Granted("", "task", 3, "p", 7)
    with_client = Granted("", "task", 3, "p", 7, "c")
    assert decode_key_entry(encode_key_entry(with_client)) == with_client
    with pytest.raises(ValueError, match="granted"):
        decode_key_entry(b'["granted","","task",3,"p",7,8]')
