"""Each hint of `spark_jobs.wording` is printed under its condition, and not when the condition does not hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from spark_jobs.checks.check import Circumstances, why_unproven
from spark_jobs.checks.finding import FindingGroup
from spark_jobs.checks.replication_state import SubscriptionState, replication_state_result
from spark_jobs.figures.loss import Loss, LostMessages, loss_result
from spark_jobs.figures.timeline import make_timeline
from spark_jobs.frames.faults import Interval
from spark_jobs.report.causes import causes
from spark_jobs.sources.policies import Namespace, ReplicationPolicy
from spark_jobs.verdict import CheckResult
from spark_jobs.wording import HINTS

TOPIC = "persistent://public/default/t"
REGIONS = ("us-east", "us-west", "eu-central")


def fact(at_s: float, op: str, region: str | None = None, **more: str) -> dict[str, Any]:
    return {"other_region": None, "detail": None, "error": None} | {
        "at_ms": at_s * 1000,
        "op": op,
        "region": region,
        **more,
    }


def beside(
    witness: Mapping[str, Any], *facts: Mapping[str, Any], stores: tuple[Interval, ...] = ()
) -> list[str]:
    """Return the hints for a witness, in a run of 60 s."""
    clusters = {"us-east": "americas", "us-west": "americas", "eu-central": "europe"}
    timeline = make_timeline(REGIONS, clusters, 0.0, 60_000.0, [], list(facts), [], stores=stores)
    return causes(CheckResult("c", "c", "INV-1", "invalid", "No.", (witness,)), timeline)


MISSING = {"kind": "missing", "region": "us-west", "origin_region": "us-east", "at_ms": 10_000.0}
SKIPPED = {"kind": "skipped", "region": "us-west", "subscription": "billing", "at_ms": 10_000.0}
UNANSWERED = {
    "kind": "without a result",
    "region": "us-west",
    "other_region": "eu-central",
    "origin_region": "us-east",
    "subscription": "billing",
    "at_ms": 10_000.0,
    "until_ms": 11_000.0,
}
"""Order of us-east that a service acknowledged in us-west; it requested the publish of the result in eu-central."""

KILL_AND_START = (fact(12, "kill", "us-west"), fact(14, "start", "us-west"))
NO_FAULT = (
    "No fault of us-east and us-west or of a link between them was active between 10.000 s and 15.000 s."
)


@pytest.mark.parametrize(
    ("witness", "facts", "sentences"),
    [
        (MISSING, KILL_AND_START, ["us-west was killed at 12.000 s, for 2.000 s."]),
        (MISSING, [fact(15.1, "kill", "us-west")], [NO_FAULT]),
        (MISSING, [fact(2, "kill", "us-west"), fact(9, "start", "us-west")], [NO_FAULT]),
        (MISSING, [fact(12, "kill", "eu-central")], [NO_FAULT]),
        (
            MISSING,
            [fact(1, "cut", "us-east", other_region="us-west", detail="one way")],
            ["The link us-east → us-west was cut at 1.000 s, until the end."],
        ),
        (MISSING, [fact(1, "cut", "us-east", other_region="eu-central", detail="both ways")], [NO_FAULT]),
        (MISSING, [fact(12, "note", "us-west", detail="kill billing")], [NO_FAULT]),
        (
            SKIPPED,
            [
                fact(12, "note", "us-west", detail="kill billing"),
                fact(13, "note", "us-west", detail="start billing"),
            ],
            ["billing in us-west was killed at 12.000 s, for 1.000 s."],
        ),
        (SKIPPED, [fact(50, "lose", "us-west")], ["us-west was lost at 50.000 s, until the end."]),
        (
            SKIPPED,
            [fact(50, "lose", "us-east")],
            ["No fault of us-west or of one of its links was active between 10.000 s and 60.000 s."],
        ),
        (UNANSWERED, [fact(9, "kill", "eu-central")], ["eu-central was killed at 9.000 s, until the end."]),
        (
            UNANSWERED,
            [fact(11, "kill", "us-east")],
            [
                "No fault of eu-central and us-west or of a link between them was active"
                " between 10.000 s and 16.000 s."
            ],
        ),
        (
            {"kind": "without a result", "region": "us-west", "at_ms": 10_000.0, "subscription": "billing"},
            [fact(10.2, "note", "us-west", detail="restart billing")],
            ["billing in us-west was restarted at 10.200 s, for 0 ms."],
        ),
    ],
)
def test_hints_for_a_witness_name_the_faults_there_and_then(
    witness: Mapping[str, Any], facts: list[Mapping[str, Any]], sentences: list[str]
) -> None:
    assert beside(witness, *facts) == sentences


def unproven(kind: str = "behind", **changes: Any) -> str:
    absent = FindingGroup(
        kind, 1, region="us-west", origin_region="us-east", last_ms=changes.pop("last_ms", 0.0)
    )
    return why_unproven(absent, Circumstances({}, **{"read_at_ms": 60_000.0, **changes})) or ""


def of_loss(kept: int) -> str:
    gone = LostMessages("us-east", TOPIC, "p", 3, 0, kept, 0, 2, 1000.0)
    found = loss_result(Loss({"us-east": 2000.0}, (gone,)))
    assert found is not None
    return found.sentence


def of_standings(lost: list[str], again: int = 3, **changes: Any) -> str:
    namespace = Namespace(REGIONS, deduplication=True, **changes)
    standings = [SubscriptionState("billing", TOPIC, "us-west", {"eu-central": again})]
    found = replication_state_result(standings, lost, {"public/default": namespace})
    assert found is not None
    return found.sentence


NEVER_MS = 1e300
LEFT_OUT = {
    (name, other): NEVER_MS
    for name in REGIONS
    for other in REGIONS
    if "us-east" in (name, other) and name != other
}
AWAY = (Interval(9.0, 12.0, "away", "americas"),)
CUT = fact(9, "cut", "us-east", other_region="us-west", detail="both ways")

DRIVEN: Mapping[str, tuple[Callable[[], str], tuple[Callable[[], str], ...]]] = {
    "region-down": (
        lambda: " ".join(beside(MISSING, *KILL_AND_START)),
        (lambda: " ".join(beside(MISSING)), lambda: " ".join(beside(MISSING, fact(30, "kill", "us-west")))),
    ),
    "program-down": (
        lambda: " ".join(beside(SKIPPED, fact(12, "note", "us-west", detail="pause billing"))),
        (
            lambda: " ".join(beside(SKIPPED, fact(12, "note", "us-east", detail="pause billing"))),
            lambda: " ".join(beside(SKIPPED, fact(12, "note", "us-west", detail="start billing"))),
        ),
    ),
    "link-fault": (
        lambda: " ".join(beside(MISSING, CUT)),
        (lambda: " ".join(beside(MISSING, CUT, fact(9.5, "heal"))),),
    ),
    "store-away": (
        lambda: " ".join(beside(MISSING, stores=AWAY)),
        (lambda: " ".join(beside({**MISSING, "at_ms": 13_000.0}, stores=AWAY)),),
    ),
    "no-fault": (
        lambda: " ".join(beside(MISSING)),
        (lambda: " ".join(beside(MISSING, *KILL_AND_START)), lambda: " ".join(beside(MISSING, CUT))),
    ),
    "log-unread": (
        lambda: unproven(damaged_regions=frozenset({"us-west"})),
        (unproven, lambda: unproven(damaged_regions=frozenset({"eu-central"}))),
    ),
    "down-at-the-end": (
        lambda: unproven(down=frozenset({"us-east"})),
        (unproven, lambda: unproven("missing", down=frozenset({"us-east"}))),
    ),
    "link-down-at-the-end": (
        lambda: unproven(cut=frozenset({("us-east", "us-west")})),
        (unproven, lambda: unproven(cut=frozenset({("us-west", "us-east")}))),
    ),
    "on-the-way": (
        lambda: unproven(last_ms=58_500.0),
        (lambda: unproven(last_ms=57_000.0), lambda: unproven("missing", last_ms=58_500.0)),
    ),
    "kept-in-lost-log": (lambda: of_loss(3), (lambda: of_loss(0),)),
    "snapshots-stopped": (
        lambda: of_standings(["us-east"]),
        (
            lambda: of_standings([]),
            lambda: of_standings(["us-east"], again=0),
            lambda: of_standings(["us-east"], replicated_since_ms=LEFT_OUT),
            lambda: of_standings(
                ["us-east"], own_topics={TOPIC: ReplicationPolicy(frozenset({"us-west", "eu-central"}))}
            ),
        ),
    ),
}


def pattern(name: str) -> re.Pattern[str]:
    return re.compile(
        r"\S+".join(map(re.escape, re.split(r"\{\w+\}", HINTS[name].text))).replace(r"\S+", ".+?")
    )


def found(text: str) -> set[str]:
    """Return the names of the hints in a text."""
    return {name for name in HINTS if pattern(name).search(text)}


def test_every_hint_is_driven() -> None:
    assert set(DRIVEN) == set(HINTS)


@pytest.mark.parametrize("name", HINTS)
def test_a_hint_is_printed_under_its_condition_and_only_then(name: str) -> None:
    under, otherwise = DRIVEN[name]
    assert name in found(under())
    for other in otherwise:
        assert name not in found(other())
