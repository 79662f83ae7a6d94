"""INV-128: what a region sent of a replicated subscription is acknowledged in the other regions after quiet.

An update (b: X) in the log of a region says that the subscription acknowledged every message of the named regions up to
X in b. From then on the stored cursor of b must count each of these messages that b and the sender store: an update is
never taken back, except by a seek. Messages that a consumer acknowledged later may be redelivered after a fail-over:
PIP-33 replicates positions of snapshots, not acknowledgements. Three defects break this:

not applied      the log of b contains the update, and its cursor does not count what the update covers
not replicated   the log of b does not contain the update, although b, the sender and the link had no fault for
                 AFTER_FAULT_MS
not sent         the cursor of a region has passed its newest snapshot (P; b: X), its consumers acknowledged nothing
                 for REST_MS, and its log contains no update with that position. Only a region whose consumers lead
                 must send: another one follows updates, and these went to all regions. A region leads if no consumer
                 of a third region acknowledged anything, or if its cursor states it.

With individual acknowledgements both cursors must count the same messages: `not claimed` (`checks/unclaimed.py`).

Not compared is what was sent less than REST_MS before the end, or before the receiver's last start: it repeats when the
next snapshot is passed.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.checks.check import (
    CHECKED,
    LOGS,
    UNPROVEN,
    Check,
    Circumstances,
    examples,
    of_kind,
    total,
    violations,
)
from spark_jobs.checks.finding import FindingGroup, all_of, finding
from spark_jobs.checks.snapshots_safe import with_named
from spark_jobs.checks.unclaimed import find_unclaimed
from spark_jobs.engines.frames import Column, DataFrame, F, cached
from spark_jobs.evidence.positions import LEDGER
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.history import operations
from spark_jobs.frames.messages import place_text
from spark_jobs.sources.policies import NEVER_MS
from spark_jobs.verdict import CheckResult
from spark_jobs.wording import count

SENT = ["topic", "subscription", "source_region", "region"]
"""Columns of a position that a region sent, or had to send, to another one."""
KINDS = {
    "not applied": (
        "acknowledged message",
        "covered by an update that another region stores and did not apply",
    ),
    "not replicated": ("acknowledged message", "covered by an update that another region never received"),
    "not sent": ("acknowledged message", "before a snapshot that the subscription passed without an update"),
    "not claimed": ("acknowledged message", "which individual acknowledgements had to replicate"),
}
UNEXPECTED = "without a cursor"
"""An update creates the subscription, so that without a recorded deletion its cursor is missing evidence."""
WHY_NOT_COMPARED = {
    "late": "sent less than 2 s and twice the longest latency before the end of the run",
    "down": "a region was down when the history ended",
    "restarted": "sent before the receiving region started again, and not since",
    "after a fault": "the regions or the link had a fault in the last 10 s",
    "moved": "a client moved or deleted the subscription",
    "not replicated there": "the subscription is not replicated in both regions",
    "without a cursor": "a region has no cursor of the subscription",
    "another log": "the topic was created again",
    "another clock": "the clock of the sending region was changed",
}


def find(evidence: Evidence) -> DataFrame | None:
    if not evidence.claims.has_markers:
        return None
    sent = cached(_with_state(evidence, all_of([_updates(evidence), _snapshots(evidence)])))
    compared = F.max(F.when(F.col("state") == CHECKED, F.col("upto")))
    required = sent.groupBy(*SENT, "named", "defect").agg(
        compared.alias("upto"), F.min("state").alias("state"), F.max("written_ms").alias("written_ms")
    )
    reasons = finding(required.where(F.col("upto").isNull()), F.col("state"), other_region="source_region")
    checked = finding(required.where(F.col("upto").isNotNull()), CHECKED, other_region="source_region")
    unclaimed = find_unclaimed(evidence, _acknowledgements(evidence))
    uncounted = _uncounted(evidence, required.where(F.col("upto").isNotNull()))
    return all_of(filter(None, [uncounted, unclaimed, reasons, checked]))


def _uncounted(evidence: Evidence, required: DataFrame) -> DataFrame:
    """Find acknowledged messages up to a required position that sender and receiver store, and the receiver's cursor
    does not count."""
    source_places = F.filter("places", lambda place: place["region"] == F.col("source_region"))
    lacking = (
        evidence.uncounted.where(~F.col("aged") & ~F.col("sought"))
        .join(required.hint("broadcast"), ["topic", "subscription", "region"])
        .where((F.col("at") <= F.col("upto")) & F.array_contains("named", F.col("origin_region")))
        .withColumn("source_at", F.array_min(F.transform(source_places, lambda place: place["at"])))
        .where(F.col("source_at").isNotNull())
    )
    return finding(
        lacking,
        F.col("defect"),
        other_region="source_region",
        position=place_text(F.col("at")),
        other_position=place_text(F.col("source_at")),
        at_ms="written_ms",
    )


def _updates(evidence: Evidence) -> DataFrame:
    updates = with_named(evidence.claims.updates, "source_region", "region")
    defect = F.when(F.col("has_arrived"), F.lit("not applied")).otherwise(F.lit("not replicated"))
    return updates.select(*SENT, "named", defect.alias("defect"), "upto", "written_ms")


def _snapshots(evidence: Evidence) -> DataFrame:
    """Return the positions of each region's newest snapshot that a leading subscription passed and did not send."""
    snapshots = with_named(evidence.claims.snapshots, "region", "other_region")
    newest = snapshots.groupBy("topic", "region").agg(F.max("upto").alias("upto"))
    positions = (
        snapshots.join(newest, ["topic", "region", "upto"])
        .join(evidence.claims.positions, ["topic", "region"])
        .where((F.col("upto") <= F.col("mark_delete")) & _same_ledger(F.col("upto"), F.col("mark_delete")))
        .select(
            "topic",
            "subscription",
            F.col("region").alias("source_region"),
            F.col("other_region").alias("region"),
            "named",
            F.col("other_upto").alias("upto"),
            "written_ms",
            "is_ahead",
        )
        .join(_acknowledgements(evidence), ["topic", "subscription"])
    )
    others = F.array_except("acked_in", F.array("source_region", "region"))
    sent = evidence.claims.updates.groupBy(*SENT).agg(F.max("upto").alias("sent"))
    return (
        positions.join(sent, SENT, "left")
        .where((F.size(others) == 0) | F.col("is_ahead"))
        .where(F.col("sent").isNull() | (F.col("sent") < F.col("upto")))
        .select(
            *SENT,
            "named",
            F.lit("not sent").alias("defect"),
            "upto",
            F.greatest("written_ms", "last_ack_ms").alias("written_ms"),
        )
    )


def _acknowledgements(evidence: Evidence) -> DataFrame:
    acknowledged = operations(evidence.events, "acknowledge").where(F.col("outcome") != "failed")
    return acknowledged.groupBy("topic", "subscription").agg(
        F.max("at_ms").alias("last_ack_ms"), F.collect_set("region").alias("acked_in")
    )


def _with_state(evidence: Evidence, sent: DataFrame) -> DataFrame:
    """Add `state`: `checked` if the receiver must count everything up to the position, else why not."""
    moved = (
        evidence.events.where(F.col("op").isin("seek", "unsubscribe"))
        .select("topic", "subscription", F.lit(True).alias("is_moved"))
        .distinct()
    )
    joined = (
        sent.join(
            _at(evidence, "source_region", "source"), ["topic", "subscription", "source_region"], "left"
        )
        .join(_at(evidence, "region", "target"), ["topic", "subscription", "region"], "left")
        .join(_of_region(evidence, "source_region", "source"), "source_region", "left")
        .join(_of_region(evidence, "region", "target"), "region", "left")
        .join(evidence.quiescence.links, ["source_region", "region"], "left")
        .join(moved, ["topic", "subscription"], "left")
    )
    return joined.select(*sent.columns, _state().alias("state"))


def _at(evidence: Evidence, region: str, end: str) -> DataFrame:
    return evidence.claims.positions.select(
        "topic",
        "subscription",
        F.col("region").alias(region),
        F.col("mark_delete").alias(f"{end}_mark"),
        (F.col("is_replicated") & ~F.col("was_moved")).alias(f"{end}_replicates"),
        F.col("was_moved").alias(f"{end}_moved"),
    )


def _of_region(evidence: Evidence, region: str, end: str) -> DataFrame:
    return evidence.quiescence.regions.select(
        F.col("region").alias(region),
        F.col("since_ms").alias(f"{end}_since_ms"),
        F.col("until_ms").alias(f"{end}_until_ms"),
        F.col("has_clock").alias(f"{end}_has_clock"),
    )


def _state() -> Column:
    """Return why a position is not compared: the first reason that applies; CHECKED: it is."""
    written_ms, is_sent = F.col("written_ms"), F.col("defect") != "not sent"
    until_ms = F.least("source_until_ms", "target_until_ms")
    is_down = (F.col("source_since_ms") >= NEVER_MS) | (F.col("target_since_ms") >= NEVER_MS)
    is_moved = F.coalesce(F.col("is_moved"), F.col("source_moved") | F.col("target_moved"), F.lit(False))
    return (
        F.when(is_moved, F.lit("moved"))
        .when(is_down | F.col("source_until_ms").isNull() | F.col("target_until_ms").isNull(), F.lit("down"))
        .when(~F.col("source_has_clock"), F.lit("another clock"))
        .when(written_ms > until_ms, F.lit("late"))
        .when(
            written_ms < F.when(is_sent, F.col("target_since_ms")).otherwise(F.col("source_since_ms")),
            F.lit("restarted"),
        )
        .when((F.col("defect") == "not replicated") & ~F.col("is_settled"), F.lit("after a fault"))
        .when(is_sent & F.col("target_mark").isNull(), F.lit("without a cursor"))
        .when(
            ~F.coalesce("source_replicates", F.lit(True)) | ~F.coalesce("target_replicates", F.lit(True)),
            F.lit("not replicated there"),
        )
        .when(
            F.col("target_mark").isNotNull() & ~_same_ledger(F.col("upto"), F.col("target_mark")),
            F.lit("another log"),
        )
        .otherwise(F.lit(CHECKED))
    )


def _same_ledger(one: Column, other: Column) -> Column:
    """Compare the ledgers of two positions; a mark-delete before the first entry of a ledger is 1 less than it."""
    return F.floor((one + 1) / F.lit(LEDGER)) == F.floor((other + 1) / F.lit(LEDGER))


def conclude(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    wrong, sentences = violations(found, KINDS)
    proven = [one for one in wrong if _is_proven(one, circumstances)]
    checked = total(found, CHECKED)
    if wrong and not proven:
        sentences.append(UNPROVEN)
    if not wrong and checked:
        sentences = [
            f"{count(checked, 'position')} of replicated subscriptions: the other regions count everything as"
            " acknowledged that was sent."
        ]
    if not wrong and not checked:
        sentences = [
            "No position of a replicated subscription had to be in another region when the run ended."
        ]
    others = [f"{text} ({n:,})" for kind, text in WHY_NOT_COMPARED.items() if (n := total(found, kind))]
    if others:
        sentences.append(f"Not compared: {'; '.join(others)}.")
    if wrong:
        return CHECK.result(
            "invalid" if proven else "unknown", " ".join(sentences), examples(proven or wrong)
        )
    if missing := of_kind(found, UNEXPECTED):
        return CHECK.result("unknown", " ".join(sentences), examples(missing))
    return CHECK.result("valid" if checked else "not applicable", " ".join(sentences))


def _is_proven(one: FindingGroup, circumstances: Circumstances) -> bool:
    """Whether no damage of the evidence explains the finding: the history contains faults and seeks."""
    ends = {one.region, one.other_region}
    return not circumstances.history_damaged and ends.isdisjoint(circumstances.damaged_regions)


CHECK = Check(
    "cursors-converge", "replicated subscriptions converge", "INV-128", [], find, conclude, evidence=LOGS
)
