"""INV-128: positions of replicated subscriptions that one region sent and another one must count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from emulator.run.history_events import HistoryEvent
from spark_jobs.checks.check import Circumstances
from spark_jobs.checks.cursors_converged import CHECK
from spark_jobs.evidence.positions import place_number
from spark_jobs.frames.quiescence import RunEnd
from spark_jobs.sources.policies import Namespace
from spark_jobs.verdict import CheckResult
from tests.spark_jobs.literal import (
    NAMESPACES,
    TOPIC,
    Row,
    acknowledged,
    event,
    published,
    received,
    result_of,
    stored,
    subscribed,
)

pytestmark = pytest.mark.usefixtures("engine")

THREE = {"public/default": Namespace(("a", "b", "c"), deduplication=True)}
LAST = 9
"""Sequence id and entry id of the last message in every log."""
END_MS = 100_000.0
SENT_MS = 1_000.0


def at(entry: int, ledger: int = 1) -> int:
    return place_number(ledger, entry)


def update(
    upto: int, source: str = "a", to: str = "b", *, sent_ms: float = SENT_MS, arrived: bool = True
) -> Row:
    return (TOPIC, "s", source, "1:20:-1", to, at(upto), sent_ms, arrived)


def snapshot(
    local: int, upto: int, source: str = "a", others: str = "b", *, sent_ms: float = SENT_MS
) -> list[Row]:
    return [(TOPIC, source, "1:19:-1", at(local), other, at(upto), sent_ms) for other in others]


def counts(region: str, last: int) -> Row:
    return (TOPIC, "s", region, at(0), at(last), at(LAST))


def position(
    region: str,
    mark_delete: int,
    *,
    replicated: bool = True,
    ahead: bool = True,
    moved: bool = False,
    ledger: int = 1,
    claims: bool = False,
) -> Row:
    return (TOPIC, "s", region, at(mark_delete, ledger), replicated, ahead, moved, claims)


def fact(
    at_ms: float, op: str, region: str | None, other: str | None = None, detail: str = ""
) -> dict[str, Any]:
    return {"at_ms": at_ms, "op": op, "region": region, "other_region": other, "detail": detail}


def result(
    *,
    updates: Iterable[Row] = (),
    snapshots: Iterable[Row] = (),
    positions: Iterable[Row] | None = None,
    counted: Mapping[str, int] = {"a": LAST, "b": LAST},
    facts: Sequence[Mapping[str, Any]] = (),
    events: Sequence[HistoryEvent] = (),
    namespaces: Mapping[str, Namespace] = NAMESPACES,
    end: RunEnd | None = None,
    **circumstances: Any,
) -> CheckResult:
    """Check ten messages of a, stored in every region and acknowledged in a. `counted`: the last entry that the cursor
    of each region counts."""
    regions = namespaces["public/default"].regions
    rows = [stored(region, number, number) for region in regions for number in range(LAST + 1)]
    lines: list[HistoryEvent | list[HistoryEvent]] = [subscribed("a"), *events]
    for number in range(LAST + 1):
        lines += [published(number), received(number, "a"), acknowledged("a", number, 60.0 + number)]
    return result_of(
        CHECK,
        rows,
        lines,
        circumstances=Circumstances(namespaces, **circumstances),
        updates=updates,
        snapshots=snapshots,
        cursors=[counts(region, last) for region, last in counted.items()],
        positions=[position(region, last) for region, last in counted.items()]
        if positions is None
        else positions,
        end=end or RunEnd(facts, END_MS, last_client_ms=500.0),
    )


def test_a_cursor_that_counts_what_an_update_covers_is_valid() -> None:
    found = result(updates=[update(5)], counted={"a": LAST, "b": 5})
    assert (found.verdict, found.witness) == ("valid", ()), found.sentence


def test_an_update_that_was_not_applied_is_a_violation_with_the_first_message_as_witness() -> None:
    found = result(updates=[update(3), update(5)], counted={"a": LAST, "b": 2})
    assert found.verdict == "invalid"
    first = found.witness[0]
    assert (first["kind"], first["subscription"], first["sequence_id"]) == ("not applied", "s", 3)
    assert (first["region"], first["other_region"]) == ("b", "a")
    assert (first["position"], first["other_position"]) == ("1:3", "1:3")
    assert "3 acknowledged messages" in found.sentence


def test_a_passed_snapshot_without_an_update_is_a_violation() -> None:
    found = result(snapshots=snapshot(7, 7), counted={"a": LAST, "b": -1})
    assert (found.verdict, found.witness[0]["kind"]) == ("invalid", "not sent"), found.sentence


@pytest.mark.parametrize(
    ("local", "mark_delete", "sent"),
    [(7, 6, ()), (7, LAST, (update(7),))],
    ids=["a snapshot that the cursor did not pass", "a snapshot that was sent"],
)
def test_a_region_need_not_send(local: int, mark_delete: int, sent: Sequence[Row]) -> None:
    found = result(
        snapshots=snapshot(local, 7), updates=sent, counted={"a": mark_delete, "b": 7 if sent else -1}
    )
    assert found.verdict == ("valid" if sent else "not applicable"), found.sentence


def test_the_newest_snapshot_counts_and_not_one_that_the_cache_dropped() -> None:
    older, newest = snapshot(3, 3), snapshot(9, 9, sent_ms=2_000.0)
    found = result(snapshots=[*older, *newest], counted={"a": 5, "b": -1})
    assert found.verdict == "not applicable", found.sentence


def test_a_region_that_follows_updates_need_not_send_what_a_third_region_acknowledged() -> None:
    snapshots = snapshot(7, 7, "a", "bc")
    from_c = [acknowledged("c", 8, 90.0)]
    positions = [position("a", LAST, ahead=False), position("b", -1), position("c", LAST)]
    counted = {"a": LAST, "c": LAST}
    found = result(snapshots=snapshots, positions=positions, counted=counted, events=from_c, namespaces=THREE)
    assert found.verdict == "valid", found.sentence
    leads = [position("a", LAST, ahead=True), *positions[1:]]
    found = result(snapshots=snapshots, positions=leads, counted=counted, events=from_c, namespaces=THREE)
    assert found.verdict == "invalid", found.sentence


def test_messages_of_a_region_that_a_partial_update_does_not_name_are_not_compared() -> None:
    """The absent region c published the messages: an update of a that names only b covers none of them."""
    rows = [stored(region, number, number, "c") for region in "abc" for number in range(4)]
    lines: list[Any] = [subscribed("a")]
    for number in range(4):
        lines += [published(number, region="c"), acknowledged("a", number)]
        lines.append(
            event(
                50.0,
                "receive",
                "ok",
                region="a",
                subscription="s",
                message_id=f"1:{number}:-1",
                origin_region="c",
                producer="p",
                sequence_id=number,
            )
        )

    def found(*named: str) -> CheckResult:
        return result_of(
            CHECK,
            rows,
            lines,
            circumstances=Circumstances(THREE),
            updates=[update(3, to=region) for region in named],
            cursors=[counts("a", 3), counts("c", 3)],
            positions=[position("a", 3), position("b", -1), position("c", 3)],
            end=RunEnd((), END_MS),
        )

    assert found("b").verdict == "valid"
    assert found("b", "c").verdict == "invalid"


REASONS: Mapping[str, dict[str, Any]] = {
    "sent less than 2 s": {"updates": [update(5, sent_ms=END_MS - 1_000)]},
    "a region was down": {"facts": [fact(2_000, "kill", "b")]},
    "before the receiving region started again": {
        "facts": [fact(2_000, "kill", "b"), fact(3_000, "start", "b")]
    },
    "moved or deleted": {
        "events": [event(5.0, "seek", "ok", region="b", subscription="s", message_id="1:0:-1")]
    },
    "not replicated in both": {"positions": [position("a", LAST), position("b", -1, replicated=False)]},
    "had a fault in the last 10 s": {
        "updates": [update(5, arrived=False)],
        "facts": [fact(91_000, "cut", "a", "b", "both ways"), fact(92_000, "heal", None)],
    },
    "created again": {"positions": [position("a", LAST), position("b", -1, ledger=2)]},
    "the clock of the sending region": {"facts": [fact(2_000, "skew", "a", detail="+3 s")]},
}


@pytest.mark.parametrize("reason", REASONS)
def test_what_nothing_promises_is_not_compared_and_named(reason: str) -> None:
    evidence = {"updates": [update(5)], "counted": {"a": LAST, "b": -1}, **REASONS[reason]}
    found = result(**evidence)
    assert found.verdict == "not applicable", found.sentence
    assert reason in found.sentence


def test_a_tested_reason_exists_for_each_that_is_printed() -> None:
    from spark_jobs.checks.cursors_converged import UNEXPECTED, WHY_NOT_COMPARED

    for kind, text in WHY_NOT_COMPARED.items():
        assert kind == UNEXPECTED or any(reason in text for reason in REASONS), kind


def test_an_update_that_a_healthy_link_never_delivered_is_a_violation() -> None:
    found = result(updates=[update(5, arrived=False)], counted={"a": LAST, "b": -1})
    assert (found.verdict, found.witness[0]["kind"]) == ("invalid", "not replicated"), found.sentence


def test_a_cut_link_explains_an_update_that_did_not_arrive() -> None:
    facts = [fact(2_000, "cut", "a", "b", "both ways")]
    found = result(updates=[update(5, arrived=False)], counted={"a": LAST, "b": -1}, facts=facts)
    assert found.verdict == "not applicable", found.sentence


def test_a_missing_cursor_is_unknown() -> None:
    found = result(updates=[update(5)], counted={"a": LAST}, positions=[position("a", LAST)])
    assert found.verdict == "unknown"
    assert "has no cursor" in found.sentence


@pytest.mark.parametrize("damage", [{"history_damaged": True}, {"damaged_regions": frozenset("b")}])
def test_damaged_evidence_makes_a_violation_unknown(damage: dict[str, Any]) -> None:
    found = result(updates=[update(5)], counted={"a": LAST, "b": -1}, **damage)
    assert (found.verdict, len(found.witness) > 0) == ("unknown", True)


def test_a_run_without_replicated_subscriptions_is_not_applicable() -> None:
    assert result(counted={}).verdict == "not applicable"


CLAIMING = {"public/default": Namespace(("a", "b"), deduplication=True, individual_acks_since_ms=-5_000.0)}
A_BEHIND = [(TOPIC, "s", "b", at(0), at(2), at(LAST)), (TOPIC, "s", "b", at(5), at(LAST), at(LAST))]
"""A cursor of b that counts neither message 3 nor message 4."""


def individually(
    *,
    positions: Sequence[Row] = (position("a", LAST), position("b", 2)),
    namespaces: Mapping[str, Namespace] = CLAIMING,
    events: Sequence[HistoryEvent] = (),
    facts: Sequence[Mapping[str, Any]] = (),
    end_ms: float = END_MS,
) -> CheckResult:
    """Check ten messages of a, all acknowledged there; the cursor of b is A_BEHIND, and an update arrived."""
    rows = [stored(region, number, number) for region in "ab" for number in range(LAST + 1)]
    lines: list[HistoryEvent | list[HistoryEvent]] = [subscribed("a"), *events]
    for number in range(LAST + 1):
        lines += [published(number), received(number, "a"), acknowledged("a", number, 60.0 + number)]
    return result_of(
        CHECK,
        rows,
        lines,
        circumstances=Circumstances(namespaces),
        updates=[update(1)],
        cursors=[counts("a", LAST), *A_BEHIND],
        positions=positions,
        end=RunEnd(facts, end_ms, last_client_ms=500.0),
    )


def test_with_individual_acknowledgements_the_cursors_count_the_same_messages() -> None:
    found = individually()
    assert found.verdict == "invalid", found.sentence
    assert [
        (one["kind"], one["sequence_id"], one["region"], one["other_region"]) for one in found.witness
    ] == [
        ("not claimed", 3, "b", "a"),
        ("not claimed", 4, "b", "a"),
    ]
    assert (found.witness[0]["position"], found.witness[0]["other_position"]) == ("1:3", "1:3")


@pytest.mark.parametrize(
    "circumstances",
    [
        pytest.param({"namespaces": NAMESPACES}, id="the policy is off"),
        pytest.param(
            {"namespaces": {"public/default": Namespace(("a", "b"), True, individual_acks_since_ms=0.0)}},
            id="published before the policy",
        ),
        pytest.param({"positions": [position("a", LAST), position("b", 2, claims=True)]}, id="not read yet"),
        pytest.param({"positions": [position("a", LAST), position("b", 2, moved=True)]}, id="moved"),
        pytest.param({"events": [acknowledged("c", 9, 90.0)]}, id="a third region acknowledged"),
        pytest.param({"facts": [fact(95_000, "cut", "a", "b", "both ways")]}, id="a cut link"),
        pytest.param({"end_ms": 1_500.0}, id="not at rest"),
        pytest.param(
            {"events": [event(5.0, "unsubscribe", "ok", region="b", subscription="s")]}, id="deleted"
        ),
    ],
)
def test_individual_acknowledgements_that_need_not_be_there(circumstances: dict[str, Any]) -> None:
    found = individually(**circumstances)
    assert found.verdict in ("valid", "not applicable"), found.sentence
