"""What compaction keeps, against a model: the newest value of each key is the same as before."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.core.topic.compaction import LatestOfKeys, TooManyKeys
from emulator.model.values import KeyedEntry, KeyedMessage, MessageChunk

Log = list[tuple[int, KeyedEntry]]


def compacted(log: Log) -> Log:
    latest = LatestOfKeys()
    for entry_id, entry in log:
        latest.note(entry_id, entry)
    result: Log = []
    for entry_id, entry in log:
        stay = latest.staying(entry_id, entry)
        if stay is None:
            result.append((entry_id, entry))
        elif stay:
            assert entry.messages is not None
            left = [
                one if at in stay else one._replace(is_gone=True) for at, one in enumerate(entry.messages)
            ]
            result.append((entry_id, KeyedEntry(tuple(left), entry.chunk)))
    return result


def newest(log: Log) -> dict[str, tuple[int, int]]:
    """Return, by key, the position of the newest message, unless it deletes the key."""
    found: dict[str, tuple[int, int]] = {}
    for entry_id, entry in log:
        for at, message in enumerate(entry.messages or ()):
            if message.is_gone or message.key is None:
                continue
            if message.deletes:
                found.pop(message.key, None)
            else:
                found[message.key] = entry_id, at
    return found


messages = st.builds(KeyedMessage, st.sampled_from(["a", "b", "c", None]), st.booleans(), st.just(False))
entries = st.builds(KeyedEntry, st.none() | st.lists(messages, min_size=1, max_size=3).map(tuple), st.none())
logs = st.lists(entries, max_size=30).map(lambda some: [(at * 2, one) for at, one in enumerate(some)])


@settings(deadline=None)
@given(logs, st.integers(0, 30), st.integers(0, 30))
def test_the_newest_value_of_each_key_is_the_same_however_often_it_was_compacted(
    log: Log, first: int, second: int
) -> None:
    cuts = sorted((first, second))
    state: Log = []
    for before, upto in zip([0, *cuts], [*cuts, len(log)], strict=True):
        state = compacted(state + log[before:upto])
    assert newest(state) == newest(log)


@settings(deadline=None)
@given(logs)
def test_a_key_is_left_once_and_what_has_no_key_stays(log: Log) -> None:
    def there(some: Log) -> list[KeyedMessage]:
        return [one for _, entry in some for one in entry.messages or () if not one.is_gone]

    left = there(compacted(log))
    keys = [one.key for one in left if one.key is not None]
    assert len(keys) == len(set(keys))
    assert [one for one in left if one.key is None] == [one for one in there(log) if one.key is None]
    if all(entry.messages is not None for _, entry in log):
        assert not any(one.deletes for one in left if one.key is not None)


@settings(deadline=None)
@given(logs)
def test_compacting_again_changes_nothing(log: Log) -> None:
    once = compacted(log)
    assert compacted(once) == once


def value(key: str | None) -> KeyedEntry:
    return KeyedEntry((KeyedMessage(key, deletes=False),))


def chunk(key: str | None, of: str, *, is_last: bool) -> KeyedEntry:
    return KeyedEntry((KeyedMessage(key, deletes=False),), MessageChunk(of, is_last))


def deletion(key: str) -> KeyedEntry:
    return KeyedEntry((KeyedMessage(key, deletes=True),))


def ids(log: Log) -> list[int]:
    return [entry_id for entry_id, _ in log]


def test_a_deletion_stays_behind_an_entry_that_cannot_be_parsed() -> None:
    """The encrypted batch may contain a value of the key, which must not come back."""
    sealed = KeyedEntry(None)
    assert ids(compacted([(0, sealed), (1, value("a")), (2, deletion("a"))])) == [0, 2]
    assert ids(compacted([(0, value("a")), (1, deletion("a")), (2, sealed)])) == [2]


def test_the_chunks_of_a_message_stay_together() -> None:
    log = [
        (0, chunk("a", "one", is_last=False)),
        (1, chunk("a", "two", is_last=False)),
        (2, chunk("a", "one", is_last=True)),
        (3, chunk("a", "two", is_last=True)),
    ]
    assert ids(compacted(log)) == [1, 3]
    assert ids(compacted([*log, (4, value("a"))])) == [4]
    assert ids(compacted([(0, value("a")), *[(at + 1, one) for at, one in log]])) == [2, 4]


def test_what_is_not_complete_stays_and_supersedes_nothing() -> None:
    log = [(0, value("a")), (1, chunk("a", "one", is_last=False))]
    assert ids(compacted(log)) == [0, 1]
    assert ids(compacted([*compacted(log), (2, chunk("a", "one", is_last=True))])) == [1, 2]


def test_more_keys_than_it_may_remember_are_an_error_with_figures() -> None:
    latest = LatestOfKeys(keys_bytes_max=1_000)
    for number in range(3):
        latest.note(number, value(f"key-{number}"))
    latest.note(3, value("key-0"))
    with pytest.raises(TooManyKeys, match="1,000 bytes"):
        latest.note(4, value("key-3"))
