"""An uncommitted message is owed to no consumer; responses to the end of a transaction are compared with the logs."""

from __future__ import annotations

import pytest

from emulator.model.markers import TXN_ABORT, TXN_COMMIT
from emulator.run.history_events import HistoryEvent
from spark_jobs.checks import consumed, converged, replicated, stored, transactions
from spark_jobs.checks.circumstances import Circumstances
from spark_jobs.checks.judging import Check
from spark_jobs.engines.contract import QueryEngine
from tests.spark_jobs import literal
from tests.spark_jobs.literal import NAMESPACES, Row, event, judged, published, received, subscribed

TXN = "0,1"
EVERYTHING = (
    stored.CHECK,
    replicated.CHECK,
    consumed.CHECK,
    converged.CHECK,
    transactions.WHOLE,
    transactions.UNSEEN,
)


def message(entry: int, *, transaction: str | None = TXN) -> Row:
    return literal.stored("a", entry, entry, transaction=transaction)


def end(entry: int, marker_type: int, transaction: str = TXN) -> Row:
    return literal.stored("a", entry, -1, producer="m", marker_type=marker_type, transaction=transaction)


def asked(sequence_id: int, transaction: str | None = TXN) -> list[HistoryEvent]:
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
def test_what_is_not_committed_is_owed_to_its_own_region_alone(
    engine: QueryEngine, check: Check, told: list[HistoryEvent], marker: int | None
) -> None:
    rows = [
        message(0),
        *([end(1, marker)] if marker else []),
        literal.stored("a", 2, 2),
        literal.stored("b", 0, 2),
    ]
    events = [subscribed("b", initial="earliest"), asked(0), told, published(2), received(2, "b", entry=0)]
    assert judged(engine, check, rows, events).verdict == "valid"


def test_what_is_not_committed_is_stored_all_the_same(engine: QueryEngine) -> None:
    result = judged(engine, stored.CHECK, [end(1, TXN_ABORT)], [asked(0), ended("abort", "ok")])
    assert result.verdict == "invalid"


@pytest.mark.parametrize("check", [replicated.CHECK, consumed.CHECK, converged.CHECK])
def test_what_is_committed_is_owed_as_usual(engine: QueryEngine, check: Check) -> None:
    rows = [message(0), end(1, TXN_COMMIT), literal.stored("a", 2, 2), literal.stored("b", 0, 2)]
    events = [subscribed("b", initial="earliest"), asked(0), published(2), received(2, "b", entry=0)]
    assert judged(engine, check, rows, [*events, ended("commit", "ok")]).verdict != "valid"


@pytest.mark.parametrize("check", [transactions.WHOLE, transactions.UNSEEN])
def test_without_transactions_there_is_nothing_to_judge(engine: QueryEngine, check: Check) -> None:
    result = judged(engine, check, [literal.stored("a", 0, 0)], [published(0), received(0, "a")])
    assert result.verdict == "not applicable"


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
def test_the_first_marker_is_held_against_what_was_told(
    engine: QueryEngine, markers: list[int], action: str, kind: str | None
) -> None:
    rows = [message(0), *(end(1 + at, marker) for at, marker in enumerate(markers))]
    result = judged(engine, transactions.WHOLE, rows, [asked(0), ended(action, "ok")])
    assert [one["kind"] for one in result.witness] == ([kind] if kind else [])
    assert [one.get("transaction") for one in result.witness] == ([TXN] if kind else [])
    assert result.verdict == ("invalid" if kind else "valid")


def test_a_log_that_was_read_in_part_proves_nothing(engine: QueryEngine) -> None:
    damaged = Circumstances(NAMESPACES, damaged_regions=frozenset({"a"}))
    events = [asked(0), ended("commit", "ok")]
    assert (
        judged(engine, transactions.WHOLE, [message(0)], events, circumstances=damaged).verdict == "unknown"
    )


def test_of_a_message_that_is_gone_what_was_told_decides(engine: QueryEngine) -> None:
    copy = literal.stored("b", 0, 0)
    for told, verdict in ((ended("abort", "ok"), "invalid"), (ended("commit", "ok"), "valid"), ([], "valid")):
        assert judged(engine, transactions.UNSEEN, [copy], [asked(0), told]).verdict == verdict


@pytest.mark.parametrize("op", ["receive", "read"])
@pytest.mark.parametrize(
    ("marker", "verdict"), [(TXN_COMMIT, "valid"), (TXN_ABORT, "invalid"), (None, "invalid")]
)
def test_nobody_is_given_what_is_not_committed(
    engine: QueryEngine, op: str, marker: int | None, verdict: str
) -> None:
    rows = [message(0), *([end(1, marker)] if marker else [])]
    given = received(0, "a", named=False)
    if op == "read":
        given = event(50.0, "read", "ok", region="a", message_id="1:0:-1")
    result = judged(engine, transactions.UNSEEN, rows, [subscribed("a"), asked(0), given])
    assert result.verdict == verdict
    assert [one["kind"] for one in result.witness] == (
        ["delivered although not committed"] if verdict == "invalid" else []
    )
