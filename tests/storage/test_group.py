"""The group codec: decoding returns what was encoded, and damage is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import StorageError
from emulator.storage.group import decode_group, encode_group, entry_lengths, slice_group

groups = st.lists(st.binary(max_size=60), min_size=1, max_size=20)


def test_a_record_is_count_lengths_entries_and_checksum_in_big_endian():
    """The format is stable: other programs read it."""
    expected = "00000003 00000002 00000000 00000001 616263 4fe291bb"
    assert encode_group([b"ab", b"", b"c"]) == bytes.fromhex(expected)


@given(groups)
def test_decoding_gives_back_what_was_encoded(entries: list[bytes]):
    assert decode_group(encode_group(entries)) == entries
    assert entry_lengths(encode_group(entries)) == tuple(map(len, entries))


@given(groups, st.integers(0, 25), st.none() | st.integers(0, 25), st.none() | st.integers(0, 500))
def test_a_slice_is_what_reading_entry_by_entry_gives(
    entries: list[bytes], skip: int, max_entries: int | None, max_bytes: int | None
):
    """Stop after `max_entries`, or with the entry that reaches `max_bytes`."""
    expected: list[bytes] = []
    for entry in entries[skip:]:
        if max_entries is not None and len(expected) == max_entries:
            break
        expected.append(entry)
        if max_bytes is not None and sum(map(len, expected)) >= max_bytes:
            break
    assert slice_group(encode_group(entries), skip, max_entries, max_bytes) == expected


@given(groups, st.data())
def test_a_changed_byte_is_noticed(entries: list[bytes], data: st.DataObject):
    record = bytearray(encode_group(entries))
    record[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(StorageError, match=r"^row 7 is damaged"):
        decode_group(bytes(record), "row 7")


@given(groups, st.data())
def test_a_shortened_or_lengthened_record_is_noticed(entries: list[bytes], data: st.DataObject):
    """A record has an exact length."""
    record = encode_group(entries)
    for wrong in (record[: data.draw(st.integers(0, len(record) - 1))], record + b"\0", b"\0" + record):
        with pytest.raises(StorageError):
            decode_group(wrong)


@given(st.binary(max_size=100))
def test_garbage_is_refused(garbage: bytes):
    with pytest.raises(StorageError):
        decode_group(garbage)
