"""Stored grants that cannot be decoded."""

from __future__ import annotations

import json

import pytest

from emulator.model.stored_keys import GrantKey
from spark_jobs.evidence.grants import MISSING, MISSING_MAX, UNREADABLE, checked, read_grant, stored_grants


@pytest.mark.parametrize(
    "value",
    [
        json.dumps({"epoch": 0, "owner": "\ud800", "first_entry": 0, "end_entry": None}).encode(),
        b'{"epoch":0,"owner":"\xff","first_entry":0,"end_entry":null}',
        b"[" * 200_000,
        json.dumps({"epoch": 0, "owner": "a", "first_entry": 2**63, "end_entry": None}).encode(),
        b'{"epoch":0,"owner":"a","first_entry":1e999,"end_entry":null}',
    ],
)
def test_a_grant_whose_values_no_table_can_hold_is_unreadable(value: bytes) -> None:
    assert read_grant("a", "orders", 0, value).problem == UNREADABLE


@pytest.mark.parametrize("epoch", [str(2**63), "9" * 5000])
def test_a_grant_whose_epoch_no_table_can_hold_is_unreadable(epoch: str) -> None:
    ((grant,),) = stored_grants([("a", (GrantKey("orders", epoch).text, b"{}"))])
    assert grant.problem == UNREADABLE


def test_an_epoch_far_beyond_the_others_lists_a_bounded_number_of_missing_ones() -> None:
    value = json.dumps({"epoch": 2**62, "owner": "a", "first_entry": 0, "end_entry": None}).encode()
    *missing, last = checked([read_grant("a", "orders", 2**62, value)])
    assert [one.problem for one in missing] == [MISSING] * MISSING_MAX
    assert last.epoch == 2**62
