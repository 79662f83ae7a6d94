"""No consumer must receive an uncommitted message; responses to end requests are compared with the logs."""

from __future__ import annotations

import pytest

from emulator.model.markers import TXN_ABORT, TXN_COMMIT
from emulator.run.history_events import HistoryEvent
from spark_jobs.checks import consumed, converged, replicated, transactions
from spark_jobs.checks.check import Check, Circumstances
from tests.spark_jobs import literal
from tests.spark_jobs.literal import (
    NAMESPACES,
    Row,
    event,
    expect,
    published,
    received,
    result_of,
    subscribed,
)

pytestmark = pytest.mark.usefixtures("engine")

TXN = "0,1"
EVERYTHING = (
    replicated.STORED,
    replicated.REPLICATED,
    consumed.CHECK,
    converged.CHECK,
    transactions.ATOMIC,
    transactions.INVISIBLE,
)


def message(entry: int, *, transaction: str | None = TXN) -> Row:
    return literal.stored("a", entry, entry, transaction=transaction)


def end(entry: int, marker_type: int, transaction: str = TXN) -> Row:
    return literal.stored("a", entry, -1, producer="m", marker_type=marker_type, transaction=transaction)


def request(sequence_id: int, transaction: str | None = TXN) -> list[HistoryEvent]:
    events = published(sequence_id)
    for one in events:
        one.transaction = transaction
    return events


def ended(action: str, *outcomes: str, transaction: str = TXN) -> list[HistoryEvent]:
    return [
        event(40.0, "end_transaction", one, region="a", topic=None, transaction=transaction, action=action)
        for one in ("asked", *outcomes)
    ]


@pytest.mark.parametrize("check", EVERYTHING, ids=lambda check: check.invariant)
@pytest.mark.parametrize(
    ("marker", "told"),
    [(TXN_ABORT, ended("abort", "ok")), (None, ended("commit", "unknown")), (None, [])],
    ids=["aborted", "not answered", "not ended"],
)
def test_an_uncommitted_message_is_expected_in_its_own_region_alone(
    check: Check, told: list[HistoryEvent], marker: int | None
) -> None:
    rows = [
        message(0),
        *([end(1, marker)] if marker else []),
        literal.stored("a", 2, 2),
        literal.stored("b", 0, 2),
    ]
    events = [subscribed("b", initial="earliest"), request(0), told, published(2), received(2, "b", entry=0)]
    expect("valid", check, rows, events)


def test_an_uncommitted_message_must_be_stored() -> None:
    expect("invalid", replicated.STORED, [end(1, TXN_ABORT)], [request(0), ended("abort", "ok")])


@pytest.mark.parametrize("check", [replicated.REPLICATED, consumed.CHECK, converged.CHECK])
def test_a_committed_message_is_expected_as_usual(check: Check) -> None:
    rows = [message(0), end(1, TXN_COMMIT), literal.stored("a", 2, 2), literal.stored("b", 0, 2)]
    events = [subscribed("b", initial="earliest"), request(0), published(2), received(2, "b", entry=0)]
    assert result_of(check, rows, [*events, ended("commit", "ok")]).verdict != "valid"


@pytest.mark.parametrize("check", [transactions.ATOMIC, transactions.INVISIBLE])
def test_without_transactions_nothing_is_checked(check: Check) -> None:
    expect("not applicable", check, [literal.stored("a", 0, 0)], [published(0), received(0, "a")])


@pytest.mark.parametrize(
    ("markers", "action", "kind"),
    [
        ([], "commit", "committed but not visible"),
        ([TXN_ABORT], "commit", "committed but not visible"),
        ([TXN_ABORT, TXN_COMMIT], "commit", "committed but not visible"),
        ([TXN_COMMIT], "abort", "aborted but visible"),
        ([TXN_COMMIT, TXN_ABORT], "abort", "aborted but visible"),
        ([TXN_COMMIT, TXN_ABORT], "commit", None),
        ([TXN_ABORT, TXN_COMMIT], "abort", None),
    ],
)
def test_the_first_marker_is_compared_with_the_response(
    markers: list[int], action: str, kind: str | None
) -> None:
    rows = [message(0), *(end(1 + at, marker) for at, marker in enumerate(markers))]
    result = result_of(transactions.ATOMIC, rows, [request(0), ended(action, "ok")])
    assert [one["kind"] for one in result.witness] == ([kind] if kind else [])
    assert [one.get("transaction") for one in result.witness] == ([TXN] if kind else [])
    assert result.verdict == ("invalid" if kind else "valid")


def test_a_log_that_was_read_in_part_proves_nothing() -> None:
    damaged = Circumstances(NAMESPACES, damaged_regions=frozenset({"a"}))
    events = [request(0), ended("commit", "ok")]
    expect("unknown", transactions.ATOMIC, [message(0)], events, circumstances=damaged)


def test_for_a_trimmed_message_the_response_to_its_client_decides() -> None:
    copy = literal.stored("b", 0, 0)
    for told, verdict in ((ended("abort", "ok"), "invalid"), (ended("commit", "ok"), "valid"), ([], "valid")):
        expect(verdict, transactions.INVISIBLE, [copy], [request(0), told])


@pytest.mark.parametrize("op", ["receive", "read"])
@pytest.mark.parametrize(
    ("marker", "verdict"), [(TXN_COMMIT, "valid"), (TXN_ABORT, "invalid"), (None, "invalid")]
)
def test_no_client_receives_an_uncommitted_message(op: str, marker: int | None, verdict: str) -> None:
    rows = [message(0), *([end(1, marker)] if marker else [])]
    given = received(0, "a", named=False)
    if op == "read":
        given = event(50.0, "read", "ok", region="a", message_id="1:0:-1")
    result = expect(verdict, transactions.INVISIBLE, rows, [subscribed("a"), request(0), given])
    assert [one["kind"] for one in result.witness] == (
        ["delivered although not committed"] if verdict == "invalid" else []
    )
