"""INV-3: every stored message was sent by a client, and has the content that the client sent.

Only producers in the history are checked. Messages of other producers, or on topics without history, were published by
another program, or a part of the history is lost: they make the verdict unknown, not invalid. Contents are compared by
the digest of the payload before compression and encryption; a payload that is stored only encrypted, unreadable or
in chunks is not compared. An entry with a wrong checksum is a violation for any producer.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.checks.check import (
    CHECKED,
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
from spark_jobs.engines.frames import Column, DataFrame, F
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.messages import position_text, targets_text
from spark_jobs.verdict import CheckResult, Verdict
from spark_jobs.wording import count


def find(evidence: Evidence) -> DataFrame:
    is_requested = F.col("asked_ms").isNotNull()
    known = (
        evidence.messages.where(is_requested)
        .groupBy("topic")
        .agg(F.collect_set("producer").alias("known_producers"))
    )
    suspects = evidence.messages.where((F.size("copies") > 0) & (~is_requested | F.col("refused")))
    kind = (
        F.when(F.col("refused"), "refused")
        .when(F.array_contains("known_producers", F.col("producer")), "never published")
        .otherwise("unknown producer")
    )
    strange = suspects.join(known.hint("broadcast"), "topic", "left").withColumn("kind", kind)
    stored = evidence.messages.where(is_requested & (F.size("copies") > 0))
    return all_of(
        [
            _first(strange, F.element_at("copies", 1), F.col("kind")),
            _other(stored, "payload_digest", "asked_payloads", "other payload"),
            _other(stored, "attributes_digest", "asked_attributes", "other attributes"),
            _corrupt(evidence.messages),
            _restricted(stored),
            _excluded(stored),
        ]
    )


def _first(messages: DataFrame, copy: Column, kind: str | Column) -> DataFrame:
    return finding(
        messages.withColumn("copy", copy).withColumn("region", F.col("copy.region")),
        kind,
        position=position_text(F.col("copy")),
        at_ms="asked_ms",
    )


def _other(stored: DataFrame, digest: str, requested: str, kind: str) -> DataFrame:
    """Find messages with a copy whose digest is known and matches no publish request."""
    digests = F.transform(
        F.filter("copies", lambda copy: copy[digest].isNotNull()), lambda copy: copy[digest]
    )
    wrong = F.filter(
        "copies", lambda copy: copy[digest].isNotNull() & ~F.array_contains(F.col(requested), copy[digest])
    )
    named = stored.where(F.size(requested) > 0).where(F.size(F.array_except(digests, F.col(requested))) > 0)
    return _first(named, F.element_at(wrong, 1), kind)


def _corrupt(messages: DataFrame) -> DataFrame:
    sound = F.transform("copies", lambda copy: copy["is_sound"])
    corrupt = messages.where(F.array_contains(sound, False))
    return _first(corrupt, F.element_at(F.filter("copies", lambda copy: ~copy["is_sound"]), 1), "corrupt")


def _restricted(stored: DataFrame) -> DataFrame:
    """Find messages stored with a list of target regions that no publish request of their client has."""
    named = stored.where(
        F.col("stored_to").isNotNull() & ~F.array_contains("asked_targets", targets_text("stored_to"))
    )
    return _first(named, F.element_at("copies", 1), "restricted")


def _excluded(stored: DataFrame) -> DataFrame:
    """Find messages with a copy outside of the regions to which their client restricted them."""
    is_outside = F.filter(
        "copies",
        lambda copy: (
            (copy["region"] != F.col("origin_region")) & ~F.array_contains(F.col("chosen"), copy["region"])
        ),
    )
    restricted = stored.where(F.size("chosen") > 0)
    named = restricted.withColumn("outside", is_outside).where(F.size("outside") > 0)
    return _first(named, F.element_at("outside", 1), "excluded")


_VIOLATIONS = {
    "never published": ("message", "stored that no client published"),
    "refused": ("message", "stored although the client received an error that excludes it"),
    "other payload": ("message", "stored with another payload than the client published"),
    "other attributes": (
        "message",
        "stored with another key, event time or other properties than the client set",
    ),
    "corrupt": ("message", "stored that do not match their checksum"),
    "restricted": ("message", "restricted to regions although the client did not request it"),
    "excluded": ("message", "stored in a region from which the client excluded it"),
}


def _has_unread_payload() -> Column:
    return F.col("asked_ms").isNotNull() & F.exists("copies", lambda copy: copy["payload_digest"].isNull())


def conclude(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    checked = total(found, CHECKED)
    broken, sentences = violations(found, _VIOLATIONS, by_region=False)
    unknown = of_kind(found, "unknown producer")
    verdict: Verdict = "invalid" if sentences else "valid"
    if sentences and circumstances.history_damaged and not total(broken, "corrupt"):
        verdict = "unknown"
        sentences.append(
            "Not proven wrong, because a part of the history is missing (the evidence is incomplete)."
        )
    if unknown:
        names = sorted({f"{one['producer']} on {one['topic']}" for one in examples(unknown)})
        sentences.append(
            f"{count(total(unknown, 'unknown producer'))} of producers or topics that are not in the history"
            f" ({', '.join(names)}): another program published them, or a part of the history is missing."
        )
        verdict = "invalid" if verdict == "invalid" else "unknown"
    verdict = unless_unchecked(verdict, checked)
    if verdict == "not applicable":
        sentences.append("No message that the history contains is stored: there is nothing to check.")
    elif not sentences:
        sentences.append(f"{count(checked, 'stored message')}: a client published each with that content.")
    closed = total(found, "closed")
    if closed:
        sentences.append(
            f"Contents not compared: {count(closed)} that are known only compressed, encrypted or in chunks."
        )
    return CHECK.result(verdict, " ".join(sentences), examples([*broken, *unknown]))


CHECK = Check(
    "no-phantom-messages",
    "no phantom messages",
    "INV-3",
    [
        Count(CHECKED, "messages", "SIZE(copies) > 0 AND asked_ms IS NOT NULL"),
        Count("closed", "messages", _has_unread_payload),
    ],
    find,
    conclude,
)
