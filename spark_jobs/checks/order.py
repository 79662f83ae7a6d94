"""INV-4: every region stores the messages of one origin region in the order of the origin's log, and those of one
producer in the order of their sequence ids.

A replicated entry contains its position in its origin's log, which is compared with that log. Only the first copy of a
message is checked for order: a second one is a duplicate, which INV-2 covers.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.checks.check import (
    CHECKED,
    LOGS,
    Check,
    Circumstances,
    Count,
    examples,
    of_kind,
    total,
    unless_unchecked,
    violations,
)
from spark_jobs.checks.finding import FindingGroup, all_of, finding
from spark_jobs.engines.frames import Column, DataFrame, F, Window
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.messages import ORIGIN, position_text
from spark_jobs.verdict import CheckResult, Verdict
from spark_jobs.wording import count

_PLACE = ("ledger_id", "entry_id", "batch_index")


def find(evidence: Evidence) -> DataFrame:
    return all_of(
        [
            _first_copies(evidence.messages, _late(evidence.stored)),
            finding(_wrong_sources(evidence.messages), "wrong source", position="position", at_ms="asked_ms"),
        ]
    )


def _late(stored: DataFrame) -> DataFrame:
    """Return one row per `kind` and row that the log stores after a row with a higher sequence id or source."""
    log = ("region", "log_topic", "origin_region")
    source = F.when(F.col("source_ledger").isNotNull(), F.struct("source_ledger", "source_entry"))
    kinds = F.array(
        F.when(F.col("sequence_id") < F.col("highest_number"), "out of order"),
        F.when(source < F.col("highest_source"), "out of the origin's order"),
    )
    # The wider window first: its rows, shuffled by log, need no other shuffle for the windows of producers.
    return (
        stored.withColumn("highest_source", _highest_before(source, *log))
        .withColumn("highest_number", _highest_before(F.col("sequence_id"), *log, "producer"))
        .select("region", *ORIGIN, F.struct(*_PLACE).alias("place"), F.explode(kinds).alias("kind"))
        .where(F.col("kind").isNotNull())
    )


def _highest_before(order: Column, *by: str) -> Column:
    """Return the highest `order` of the rows that the log stores before this one."""
    earlier = Window.partitionBy(*by).orderBy(*_PLACE).rowsBetween(Window.unboundedPreceding, -1)
    return F.max(order).over(earlier)


def _first_copies(messages: DataFrame, late: DataFrame) -> DataFrame:
    here = F.filter("copies", lambda copy: copy["region"] == F.col("region"))
    places = F.transform(here, lambda copy: F.struct(*(copy[name].alias(name) for name in _PLACE)))
    # There are few late rows or none: broadcasting them avoids a shuffle of the messages.
    first_copies = messages.join(late.hint("broadcast"), list(ORIGIN)).where(
        F.col("place") == F.array_min(places)
    )
    return finding(first_copies, F.col("kind"), position=position_text(F.col("place")))


def _wrong_sources(messages: DataFrame) -> DataFrame:
    """Find copies whose source position differs from the message's position in the origin's log."""
    own = F.transform(
        F.filter("copies", lambda copy: copy["region"] == F.col("origin_region")),
        lambda copy: _pair(copy["ledger_id"], copy["entry_id"]),
    )
    claims = F.filter("copies", lambda copy: copy["source_ledger"].isNotNull())
    claimed = F.transform(claims, lambda copy: _pair(copy["source_ledger"], copy["source_entry"]))
    wrong = F.filter(
        claims,
        lambda copy: ~F.array_contains(F.col("own"), _pair(copy["source_ledger"], copy["source_entry"])),
    )
    return (
        messages.withColumn("own", own)
        .where((F.size("own") > 0) & (F.size(F.array_except(claimed, F.col("own"))) > 0))
        .withColumn("copy", F.element_at(wrong, 1))
        .select(
            *ORIGIN,
            "asked_ms",
            F.col("copy.region").alias("region"),
            position_text(F.col("copy")).alias("position"),
            F.concat_ws(":", "copy.source_ledger", "copy.source_entry").alias("origin_position"),
        )
    )


def _pair(ledger: Column, entry: Column) -> Column:
    return F.struct(ledger.alias("ledger_id"), entry.alias("entry_id"))


_VIOLATIONS = {
    "out of order": ("message", "stored after a later one of the same producer"),
    "out of the origin's order": ("message", "stored after one that follows it in the origin's log"),
    "wrong source": (
        "message",
        "stored with a source position at which their origin's log stores another message",
    ),
}


def conclude(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    checked = total(found, CHECKED)
    wrong, sentences = violations(found, _VIOLATIONS)
    verdict: Verdict = unless_unchecked("invalid" if sentences else "valid", checked)
    if verdict == "not applicable":
        sentences = ["No message is stored in any region: there is nothing to check."]
    elif not sentences:
        sentences = [
            f"{count(checked, 'stored message')}: in every region in the order of their producers and origin regions."
        ]
        unsourced = total(found, "unsourced")
        if unsourced:
            sentences.append(f"Checked by producer only: {count(unsourced)} without a source position.")
    # A message out of order within its producer is often out of its region's order too: show one witness.
    late = of_kind(wrong, "out of order") or of_kind(wrong, "out of the origin's order")
    return CHECK.result(verdict, " ".join(sentences), examples([*late, *of_kind(wrong, "wrong source")]))


CHECK = Check(
    "per-origin-order",
    "messages keep the order of their origin",
    "INV-4",
    [
        Count(CHECKED, "stored", "1"),
        Count("unsourced", "stored", "region <> origin_region AND source_ledger IS NULL"),
    ],
    find,
    conclude,
    evidence=LOGS,
)
