"""The MESSAGE frames of a run are those of its entries one by one."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from emulator.wire.codec_hot.consuming import message_frames, message_header
from tests.wire.strategies import patient

BORDERS = [128, 16_384, 2 * 16_384, 128**3, 128**4]


class Entry(NamedTuple):
    entry_id: int
    data: bytes


def one_by_one(
    consumer_id: int, ledger_id: int, partition: int, epoch: int | None, entries: list[Entry]
) -> bytes:
    owner = consumer_id, ledger_id
    return b"".join(
        [
            message_header(*owner, entry.entry_id, partition, 0, None, epoch, len(entry.data)) + entry.data
            for entry in entries
        ]
    )


ids = st.builds(
    lambda border, offset: max(0, border + offset), st.sampled_from([0, *BORDERS]), st.integers(-3, 3)
) | st.integers(0, 2**63 - 1)
id_runs = st.builds(lambda first, size: [first + one for one in range(size)], ids, st.integers(1, 9))
payloads = st.integers(0, 3).map(lambda size: b"x" * size) | st.sampled_from([b"y" * 90, b"z" * 20_000])


@patient
@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.sampled_from([-1, 0, 5, 300]),
    st.sampled_from([None, 0, 400]),
    st.lists(id_runs, max_size=4).map(lambda runs: [entry_id for run in runs for entry_id in run]),
    st.lists(payloads, min_size=1, max_size=5),
)
@example(1, 2, -1, None, [*range(40_000)], [b"", b"x"])
def test_a_run_has_the_frames_of_single_messages(
    consumer_id: int,
    ledger_id: int,
    partition: int,
    epoch: int | None,
    entry_ids: list[int],
    data: list[bytes],
) -> None:
    entries = [Entry(entry_id, data[index % len(data)]) for index, entry_id in enumerate(entry_ids)]
    arguments = consumer_id, ledger_id, partition, epoch, entries
    assert b"".join(message_frames(*arguments)) == one_by_one(*arguments)


@pytest.mark.parametrize("border", BORDERS)
def test_ids_across_a_border_have_the_frames_of_single_messages(border: int) -> None:
    entries = [Entry(entry_id, b"x") for entry_id in range(border - 3, border + 4)]
    for begin in range(7):
        assert b"".join(message_frames(1, 2, 3, 4, entries[begin:])) == one_by_one(
            1, 2, 3, 4, entries[begin:]
        )


def test_ids_of_another_size_amid_a_run_have_frames_of_their_own() -> None:
    entries = [Entry(entry_id, b"x") for entry_id in (5, 6, 200, 7, 8, 20_000, 9, 2**40, 2**40 + 1, 10)]
    assert b"".join(message_frames(1, 2, -1, None, entries)) == one_by_one(1, 2, -1, None, entries)
