"""Stored cursors are decoded by independent code with the meaning that the broker wrote."""

from __future__ import annotations

import json

import pytest

from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.stored_format import CursorParts, PartName
from emulator.model.stored_keys import CursorKey, CursorPartKey
from spark_jobs.evidence.cursors import consumed_ranges, cursors_of


def stored(cursor: Cursor) -> list[tuple[str, bytes]]:
    """Return the keys and values that a region stores for a cursor."""
    values: list[tuple[str, bytes]] = []
    for step in CursorParts(cursor).take_changes().puts:
        for part, value in step.items():
            key = CursorKey("t", "s") if part is None else CursorPartKey("t", "s", str(part))
            values.append((key.text, value))
    return values


def consumed(values: list[tuple[str, bytes]]) -> set[int]:
    ((_, head, parts),) = cursors_of(values)
    return {one for first, last in consumed_ranges(head, parts) for one in range(first, last + 1)}


@pytest.mark.parametrize(
    "ids",
    [[], [0, 1, 2], [0, 2, 4], [0, 4_095, 4_096, 9_000], [3, *range(5_000, 9_000, 2)]],
    ids=["nothing", "a beginning", "holes", "several parts", "a bitmap"],
)
def test_the_same_ids_are_consumed(ids: list[int]) -> None:
    cursor = Cursor(-1)
    for one in ids:
        cursor.ack_range(one, one)
    assert consumed(stored(cursor)) == set(ids)


def test_parts_of_another_generation_mean_nothing() -> None:
    cursor = Cursor(-1)
    cursor.ack_range(7, 9)
    values = [(text.replace(f"{PartName(0, 0)}", "5-0"), value) for text, value in stored(cursor)]
    assert consumed(values) == set()


def test_an_old_head_holds_everything() -> None:
    head = json.dumps({"format": 1, "mark_delete": 2, "ranges": [[5, 6]]}).encode()
    assert consumed_ranges(head, {}) == [(0, 2), (5, 6)]


@pytest.mark.parametrize("head", [b"", b"{}", b'{"format":9,"mark_delete":1}', b"[]"])
def test_what_is_no_cursor_is_a_value_error(head: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        consumed_ranges(head, {})
