"""INV-13: every receipt and delivery has the position of a stored message: the region's log stores the message there,
with the content that the consumer received."""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.checks.check import (
    UNPROVEN_BY_HISTORY,
    Check,
    Circumstances,
    Count,
    examples,
    total,
    unless_unchecked,
    violations,
)
from spark_jobs.checks.finding import FindingGroup, all_of, finding
from spark_jobs.engines.frames import Column, DataFrame, F
from spark_jobs.frames.evidence import Evidence, not_trimmed
from spark_jobs.frames.messages import position_text
from spark_jobs.verdict import CheckResult, Verdict
from spark_jobs.wording import count

_RECEIPTS = "array<struct<ledger_id: bigint, entry_id: bigint, batch_index: int>>"
_POSITIONS = "array<struct<region: string, ledger_id: bigint, entry_id: bigint, batch_index: int>>"


def find(evidence: Evidence) -> DataFrame:
    return all_of(
        [
            _receipts(evidence.messages),
            _deliveries(evidence),
            _contents(evidence.subscription_messages),
            _strays(evidence),
        ]
    )


def _receipts(messages: DataFrame) -> DataFrame:
    """Find messages that their region stores at another position than the receipt's. INV-1 covers the missing ones."""
    own = F.filter("copies", lambda copy: copy["region"] == F.col("origin_region"))
    there = _places(own).cast(_RECEIPTS)
    elsewhere = messages.where((F.size("receipts") > 0) & (F.size(own) > 0)).withColumn(
        "wrong", F.array_except(F.col("receipts").cast(_RECEIPTS), there)
    )
    named = elsewhere.where(F.size("wrong") > 0).withColumn("place", F.element_at("wrong", 1))
    return finding(
        named.withColumn("region", F.col("origin_region")),
        "acknowledged with a wrong message id",
        position=position_text(F.col("place")),
        at_ms="acked_ms",
    )


def _deliveries(evidence: Evidence) -> DataFrame:
    subscription_messages = evidence.subscription_messages
    there = _places("copies", "region").cast(_POSITIONS)
    delivered = subscription_messages.where(F.col("positions").isNotNull() & F.col("copies").isNotNull())
    named = (
        delivered.withColumn("wrong", F.array_except(F.col("positions").cast(_POSITIONS), there))
        .where(F.size("wrong") > 0)
        .withColumn("place", F.explode("wrong"))
        .withColumn("region", F.col("place.region"))
        .withColumn("ledger_id", F.col("place.ledger_id"))
        .withColumn("entry_id", F.col("place.entry_id"))
    )
    return finding(
        not_trimmed(named, evidence.trimmed),
        "delivered with a wrong message id",
        position=position_text(F.col("place")),
        at_ms="last_ms",
    )


def _contents(subscription_messages: DataFrame) -> DataFrame:
    opened = F.filter("copies", lambda copy: copy["payload_digest"].isNotNull())
    digests = F.transform(opened, lambda copy: copy["payload_digest"])
    other = F.col("highest_payload_digest").isNotNull() & (
        ~F.array_contains(digests, F.col("highest_payload_digest"))
        | ~F.array_contains(digests, F.col("lowest_payload_digest"))
    )
    named = subscription_messages.where(F.col("copies").isNotNull() & (F.size(opened) > 0) & other)
    return finding(
        named.withColumn("region", F.element_at("positions", 1)["region"]),
        "delivered with another payload",
        position=position_text(F.element_at("positions", 1)),
        at_ms="last_ms",
    )


def _strays(evidence: Evidence) -> DataFrame:
    place = F.struct("ledger_id", "entry_id", "batch_index")
    return finding(
        evidence.strays, "delivered but not stored", position=position_text(place), at_ms="last_ms"
    )


def _places(copies: str | Column, *region: str) -> Column:
    """Return the positions of copies and of their entries: a receipt may name an entry without a batch index."""

    def place(copy: Column, index: Column) -> Column:
        fields = [copy[name].alias(name) for name in (*region, "ledger_id", "entry_id")]
        return F.struct(*fields, index.alias("batch_index"))

    return F.concat(
        F.transform(copies, lambda copy: place(copy, copy["batch_index"])),
        F.transform(copies, lambda copy: place(copy, F.lit(-1))),
    )


_VIOLATIONS = {
    "acknowledged with a wrong message id": (
        "message",
        "acknowledged with an id under which the region stores no such message",
    ),
    "delivered with a wrong message id": (
        "message",
        "delivered with an id under which the region stores no such message",
    ),
    "delivered with another payload": ("message", "delivered with another payload than the regions store"),
    "delivered but not stored": ("message", "delivered with an id under which the region stores no message"),
}


def conclude(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    receipts, delivered = total(found, "receipts"), total(found, "delivered")
    wrong, sentences = violations(found, _VIOLATIONS, by_region=False)
    proven = [one for one in wrong if one.region not in circumstances.damaged_regions]
    verdict: Verdict = "invalid" if proven else "unknown" if wrong else "valid"
    if wrong and not proven:
        sentences.append("Not proven wrong, because the logs of these regions are damaged.")
    if proven and circumstances.history_damaged:
        verdict = "unknown"
        sentences.append(UNPROVEN_BY_HISTORY)
    verdict = unless_unchecked(verdict, receipts + delivered)
    if verdict == "not applicable":
        sentences = ["No receipt and no delivery has a message id."]
    elif not sentences:
        sentences = [
            f"{count(receipts, 'receipt')} and {count(delivered, 'message id')} of deliveries: each is that of the"
            " message."
        ]
    if unplaced := total(found, "unplaced"):
        sentences.append(
            f"Not checked: {count(unplaced)} acknowledged without a message id, as duplicates are."
        )
    return CHECK.result(verdict, " ".join(sentences), examples(wrong))


CHECK = Check(
    "message-ids-correct",
    "message ids are correct",
    "INV-13",
    [
        Count("receipts", "messages", "IF(receipts IS NULL, 0, SIZE(receipts))"),
        Count("unplaced", "messages", "acked_ms IS NOT NULL AND SIZE(receipts) = 0"),
        Count(
            "delivered",
            "subscription_messages",
            "IF(positions IS NULL OR copies IS NULL, 0, SIZE(positions))",
        ),
    ],
    find,
    conclude,
)
