"""INV-12: snapshots and updates of replicated subscriptions against the logs and the acknowledgements of consumers.

A snapshot (P; b: X) in the log of region a is used like this: a subscription that acknowledged every message up to P
in a is moved to X in b. The move skips a message if b stores it up to X and no consumer received it. So each message
that b stores up to X must be stored in a, at or before P, or be one that the snapshot does not speak of. PIP-33 gives
the reason (*Snapshot steps*): the response of b follows, in the order of the log, everything that b sent to a. A
message up to X that originates

* in a was in the log of a before b received it, so before the response of b;
* in b was sent to a before the response;
* in a third region c was in the log of c before the first response of b, so before the request of the second round, and
  the second response of c follows it. This is why one round is not enough, and why a snapshot without a response of c
  (a partial one) says nothing of messages of c: `named` are the regions that a snapshot speaks of.

Messages that never reach a, because their producer named other regions, are no part of it: regions leave them
unacknowledged. The logs therefore prove a snapshot wrong in two ways, and an update in three:

broken snapshot  a stores a message after P that b stores up to X
unreceived       b stores a message up to X that must be in a too, and a does not store it: it had received less of that
                 region than b had. Regions forward the entries of a log in order, so the messages of an origin that a
                 received up to P, and b up to X, are beginnings of the same log
broken update    an update (b: X) covers a message that its region stores and no consumer acknowledged
without snapshot the log of the region that sent the update contains no snapshot with this position: it was not
                 completed
early update     its subscription did not acknowledge a message that the region stores up to P

There are many snapshots and even more messages. So positions are first aggregated by blocks of entries, and a snapshot
is compared message by message only within the block that contains its X.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.checks.check import (
    UNPROVEN,
    Check,
    Circumstances,
    Count,
    examples,
    total,
    violations,
)
from spark_jobs.checks.finding import FindingGroup, all_of, finding
from spark_jobs.engines.frames import DataFrame, F, fields_of
from spark_jobs.frames.acknowledgements import open_copies
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.messages import ORIGIN, place_number, place_text
from spark_jobs.verdict import CheckResult
from spark_jobs.wording import count

BLOCK_ENTRIES = 1024
KINDS = {
    "broken snapshot": ("snapshot", "with positions that do not correspond in the logs"),
    "unreceived": ("message", "before the position of a snapshot whose region never received it"),
    "broken update": (
        "message",
        "counted as acknowledged by an update, although no consumer acknowledged it",
    ),
    "without snapshot": ("position", "of updates that no completed snapshot contains"),
    "early update": (
        "message",
        "not acknowledged by any consumer, before a snapshot that the subscription sent",
    ),
}


def find(evidence: Evidence) -> DataFrame | None:
    if not evidence.claims.has_markers:
        return None
    return all_of(
        [
            _broken_snapshots(evidence),
            _unreceived(evidence),
            _broken_updates(evidence),
            _without_snapshot(evidence),
            _early_updates(evidence),
        ]
    )


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
    open_messages = open_copies(evidence.subscription_messages).where(F.col("home") == "")
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


def _unreceived(evidence: Evidence) -> DataFrame:
    """Find messages that b stores up to the X of a snapshot of a, and that a had to store and does not. The message's
    own region is left out: see INV-1."""
    snapshots = with_named(evidence.claims.snapshots, "region", "other_region")
    furthest = snapshots.groupBy("topic", "region", "other_region", "named").agg(
        F.max("other_upto").alias("other_upto"), F.max_by("position", "other_upto").alias("marker")
    )
    absent = (
        evidence.missing.where((F.col("absence") != "trimmed") & (F.col("region") != F.col("origin_region")))
        .select(*ORIGIN, "region", "acked_ms", F.explode("places").alias("place"))
        .select("*", F.col("place.region").alias("other_region"), F.col("place.at").alias("other_at"))
    )
    wrong = absent.join(furthest.hint("broadcast"), ["topic", "region", "other_region"]).where(
        (F.col("other_at") <= F.col("other_upto")) & F.array_contains("named", F.col("origin_region"))
    )
    return finding(
        wrong, "unreceived", position="marker", other_position=place_text(F.col("other_at")), at_ms="acked_ms"
    )


def _without_snapshot(evidence: Evidence) -> DataFrame:
    """Find positions of updates that no snapshot in the log of their region contains; not in logs that retention
    trimmed."""
    snapshots = evidence.claims.snapshots.select(
        "topic",
        F.col("region").alias("source_region"),
        F.col("other_region").alias("region"),
        F.col("other_upto").alias("upto"),
        F.lit(True).alias("is_taken"),
    ).distinct()
    trimmed = evidence.trimmed.select("topic", F.col("region").alias("source_region"), "below")
    wrong = (
        evidence.claims.updates.join(snapshots, ["topic", "source_region", "region", "upto"], "left")
        .join(trimmed, ["topic", "source_region"], "left")
        .where(F.col("is_taken").isNull() & F.col("below").isNull())
        .withColumnRenamed("region", "target")
    )
    return finding(
        wrong,
        "without snapshot",
        region="source_region",
        other_region="target",
        other_position=place_text(F.col("upto")),
        at_ms="written_ms",
    )


def _early_updates(evidence: Evidence) -> DataFrame:
    """Find messages up to the local position of a sent snapshot that no consumer acknowledged. Of several snapshots
    with the same position in the other region, the first one counts."""
    local = evidence.claims.snapshots.groupBy("topic", "region", "other_region", "other_upto").agg(
        F.min("upto").alias("local")
    )
    sent = (
        evidence.claims.updates.select(
            "topic",
            "subscription",
            F.col("source_region").alias("region"),
            F.col("region").alias("other_region"),
            F.col("upto").alias("other_upto"),
            "position",
        )
        .join(local, ["topic", "region", "other_region", "other_upto"])
        .groupBy("topic", "subscription", "region")
        .agg(F.max("local").alias("local"), F.max_by("position", "local").alias("marker"))
    )
    wrong = (
        open_copies(evidence.subscription_messages)
        .where(F.col("home") == "")
        .select("subscription", *ORIGIN, "region", "at", "acked_ms")
        .join(sent.hint("broadcast"), ["topic", "subscription", "region"])
        .where(F.col("at") <= F.col("local"))
    )
    return finding(
        wrong, "early update", position="marker", origin_position=place_text(F.col("at")), at_ms="acked_ms"
    )


def conclude(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    snapshots, updates = total(found, "snapshots"), total(found, "updates")
    wrong, sentences = violations(found, KINDS)
    proven = [one for one in wrong if _is_proven(one, circumstances)]
    if wrong:
        if not proven:
            sentences.append(UNPROVEN)
        return CHECK.result(
            "invalid" if proven else "unknown", " ".join(sentences), examples(proven or wrong)
        )
    if not snapshots + updates:
        return CHECK.result("not applicable", "No snapshot and no update is stored.")
    return CHECK.result(
        "valid",
        f"{count(snapshots, 'position')} of snapshots and {count(updates, 'position')} of updates: all agree with"
        " logs and acknowledgements.",
    )


def _is_proven(one: FindingGroup, circumstances: Circumstances) -> bool:
    """Whether no damage of the evidence explains the finding."""
    if one.kind in ("broken update", "early update"):
        return not circumstances.history_damaged
    return one.kind == "broken snapshot" or one.region not in circumstances.damaged_regions


CHECK = Check(
    "snapshots-safe",
    "snapshots and updates are safe",
    "INV-12",
    [Count("snapshots", "snapshots", "1"), Count("updates", "updates", "1")],
    find,
    conclude,
)
