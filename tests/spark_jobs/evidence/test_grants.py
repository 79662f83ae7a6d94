"""Stored grants that cannot be decoded."""

from __future__ import annotations

import json

import pytest

from spark_jobs.evidence.grants import UNREADABLE, read_grant


@pytest.mark.parametrize(
    "value",
    [
        json.dumps({"epoch": 0, "owner": "\ud800", "first_entry": 0, "end_entry": None}).encode(),
        b'{"epoch":0,"owner":"\xff","first_entry":0,"end_entry":null}',
        b"[" * 200_000,
    ],
)
def test_a_grant_with_a_text_that_cannot_be_encoded_is_unreadable(value: bytes) -> None:
    assert read_grant("a", "orders", 0, value).problem == UNREADABLE
