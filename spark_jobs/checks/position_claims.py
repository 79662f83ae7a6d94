"""Compare the positions in snapshots, updates and cursors with the stored logs and the consumers' acknowledgements.

INV-12  A snapshot (P; b: X) of region a: a stores every message that b stores up to X, if at all, at or before P.
        An update counts a message of its source region as acknowledged only if a consumer acknowledged it.
        Both say nothing of messages that originate in a region which they do not name: it was absent.
INV-18  A stored cursor counts only messages that the subscription acknowledged, and nothing beyond the log's end.

There are many snapshots and even more messages. So the check first aggregates positions by blocks of entries, and
compares a snapshot message by message only within the block that contains its X.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.checks.check import (
    UNPROVEN_BY_HISTORY,
    Check,
    Circumstances,
    Count,
    examples,
    of_kind,
    per_region,
    total,
    unless_unchecked,
)
from spark_jobs.checks.finding import FindingGroup, all_of, finding
from spark_jobs.engines.frames import Column, DataFrame, F, fields_of
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.messages import ORIGIN, each_copy, entry_text, place_number
from spark_jobs.sources.stored_values import LEDGER
from spark_jobs.verdict import CheckResult, Verdict
from spark_jobs.wording import count

BLOCK_ENTRIES = 1024


def find_snapshots(evidence: Evidence) -> DataFrame:
    return all_of([_broken_snapshots(evidence), _broken_updates(evidence)])


def _broken_snapshots(evidence: Evidence) -> DataFrame:
    """Find snapshots (P; b: X) of a with a message that b stores up to X, and a stores only after P."""
    snapshots = with_named(evidence.claims.snapshots, "region", "other_region")
    pairs = snapshots.select("topic", "region", "other_region", "named").distinct().hint("broadcast")
    copies = evidence.stored.select(
        *ORIGIN,
        "region",
        "ledger_id",
        "entry_id",
        place_number(F.col("ledger_id"), F.col("entry_id")).alias("at"),
    )
    there = (
        copies.select(*ORIGIN, F.col("region").alias("other_region"), F.col("at").alias("other_at"))
        .groupBy(*ORIGIN, "other_region")
        .agg(F.min("other_at").alias("other_at"))
    )
    # The first copy is compared: a duplicate is stored after it.
    both = (
        copies.groupBy(*ORIGIN, "region")
        .agg(F.min("at").alias("at"))
        .join(pairs, ["topic", "region"])
        .where(F.array_contains("named", F.col("origin_region")))
        .join(there, [*ORIGIN, "other_region"])
        .withColumn("block", F.floor(F.col("other_at") / BLOCK_ENTRIES))
    )
    by = ["topic", "region", "other_region", "named"]
    wanted = snapshots.withColumn("block", F.floor(F.col("other_upto") / BLOCK_ENTRIES))
    blocks = both.groupBy(*by, "block").agg(
        F.max("at").alias("latest"), F.max_by("other_at", "at").alias("other_at")
    )
    before = (
        blocks.withColumnRenamed("block", "earlier")
        .join(wanted.hint("broadcast"), by)
        .where((F.col("earlier") < F.col("block")) & (F.col("latest") > F.col("upto")))
        .select(*by, "position", F.col("latest").alias("at"), "other_at")
    )
    within = (
        both.join(wanted.hint("broadcast"), [*by, "block"])
        .where((F.col("other_at") <= F.col("other_upto")) & (F.col("at") > F.col("upto")))
        .select(*by, "position", "at", "other_at")
    )
    broken = (
        before.unionByName(within)
        .groupBy(*by, "position")
        .agg(F.min_by("other_at", "other_at").alias("other_at"))
    )
    broken = broken.select("topic", "region", "other_region", "position", "other_at")
    return finding(broken, "broken snapshot", origin_position=place_text(F.col("other_at")))


def with_named(claims: DataFrame, own: str, other: str) -> DataFrame:
    """Add the column `named`: the regions whose messages a marker speaks of, which are its own region and those whose
    positions it contains."""
    marker = ["topic", own, "position"]
    named = claims.groupBy(*marker).agg(F.collect_set(other).alias("others"))
    named = named.withColumn("named", F.sort_array(F.array_union("others", F.array(own))))
    return claims.join(named.select(*marker, "named"), marker)


def _broken_updates(evidence: Evidence) -> DataFrame:
    """Find messages in the source region that an update counts as acknowledged, and no consumer acknowledged."""
    updates = with_named(evidence.claims.updates, "source_region", "region")
    held_in = fields_of("copies", "region").alias("held_in")
    open_messages = _open_messages(evidence).where(F.col("home") == "")
    open_messages = open_messages.select("subscription", *ORIGIN, "region", "at", held_in, "acked_ms")
    broken = open_messages.join(updates.hint("broadcast"), ["topic", "subscription", "region"]).where(
        (F.col("at") <= F.col("upto"))
        & F.array_contains("held_in", F.col("source_region"))
        & F.array_contains("named", F.col("origin_region"))
    )
    return finding(
        broken,
        "broken update",
        other_region="source_region",
        origin_position=place_text(F.col("at")),
        at_ms="acked_ms",
    )


def _open_messages(evidence: Evidence) -> DataFrame:
    """Return the copies of messages that a subscription had to receive and did not acknowledge, and that policies did
    not allow to expire."""
    return each_copy(
        evidence.subscription_messages.where(F.col("due") & ~F.col("acknowledged") & ~F.col("aged"))
    )


def find_cursors(evidence: Evidence) -> DataFrame:
    cursors = evidence.claims.cursors
    open_messages = (
        _open_messages(evidence)
        .where((F.col("home") == "") | (F.col("home") == F.col("region")))
        .select("subscription", *ORIGIN, "region", "at", "acked_ms")
    )
    claimed = open_messages.join(cursors.hint("broadcast"), ["topic", "subscription", "region"]).where(
        (F.col("at") >= F.col("first")) & (F.col("at") <= F.col("last"))
    )
    beyond = cursors.where(F.col("last") > F.col("end"))
    return all_of(
        [
            finding(claimed, "counted as consumed", position=place_text(F.col("at")), at_ms="acked_ms"),
            finding(beyond, "beyond the end", position=place_text(F.col("last"))),
        ]
    )


def place_text(place: Column) -> Column:
    """Return the text `ledger:entry` of a position that is one number."""
    ledger = F.floor(place / F.lit(LEDGER))
    return entry_text(F.struct(ledger.alias("ledger_id"), (place - ledger * F.lit(LEDGER)).alias("entry_id")))


def conclude_snapshots(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    snapshots, updates = total(found, "snapshots"), total(found, "updates")
    broken, untrue = of_kind(found, "broken snapshot"), of_kind(found, "broken update")
    sentences = []
    verdict: Verdict = "valid"
    if broken:
        verdict = "invalid"
        sentences.append(
            f"{count(total(broken, 'broken snapshot'), 'snapshot')} with positions that do not correspond in the logs"
            f" ({per_region(broken)})."
        )
    if untrue:
        sentences.append(
            f"{count(total(untrue, 'broken update'))} counted as acknowledged by an update, although no"
            " consumer acknowledged them."
        )
        if circumstances.history_damaged and verdict == "valid":
            verdict = "unknown"
            sentences.append(UNPROVEN_BY_HISTORY)
        else:
            verdict = "invalid"
    verdict = unless_unchecked(verdict, snapshots + updates)
    if verdict == "not applicable":
        sentences = ["No snapshot and no update is stored."]
    elif not sentences:
        sentences = [
            f"{count(snapshots, 'position')} of snapshots and {count(updates, 'position')} of updates: all agree"
            " with logs and acknowledgements."
        ]
    return SNAPSHOTS.result(verdict, " ".join(sentences), examples([*broken, *untrue]))


def conclude_cursors(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    ranges = total(found, "ranges")
    claimed, beyond = of_kind(found, "counted as consumed"), of_kind(found, "beyond the end")
    sentences = []
    if claimed:
        sentences.append(
            f"{count(total(claimed, 'counted as consumed'))} counted as consumed by a stored cursor, although no"
            f" consumer acknowledged them ({per_region(claimed)})."
        )
    if beyond:
        sentences.append(f"Stored cursors are beyond the end of the log ({per_region(beyond)}).")
    verdict: Verdict = "invalid" if sentences else "valid"
    if claimed and not beyond and circumstances.history_damaged:
        verdict = "unknown"
        sentences.append(UNPROVEN_BY_HISTORY)
    verdict = unless_unchecked(verdict, ranges)
    if verdict == "not applicable":
        sentences = ["No stored cursor could be read."]
    elif not sentences:
        sentences = [f"{count(ranges, 'range')} of stored cursors: everything in them was acknowledged."]
    return CURSORS.result(verdict, " ".join(sentences), examples([*beyond, *claimed]))


SNAPSHOTS = Check(
    "snapshots-safe",
    "snapshots and updates are safe",
    "INV-12",
    [Count("snapshots", "snapshots", "1"), Count("updates", "updates", "1")],
    find_snapshots,
    conclude_snapshots,
)
CURSORS = Check(
    "cursors-correct",
    "stored cursors are correct",
    "INV-18",
    [Count("ranges", "cursors", "1")],
    find_cursors,
    conclude_cursors,
)
