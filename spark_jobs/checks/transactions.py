"""INV-58, INV-59: a transaction is atomic, and invisible until committed.

A transaction is committed in a topic when the topic's log has its commit marker. The checks compare the markers with
the responses of clients, with the region's other topics, with deliveries, and with the logs of other regions. The
responses are also compared with the journals of coordinators.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from spark_jobs.checks.check import CHECKED, Check, Circumstances, Count, conclude_violations, total
from spark_jobs.checks.finding import FindingGroup, all_of, finding
from spark_jobs.engines.frames import DataFrame, F
from spark_jobs.evidence.transaction_journals import BEGAN, DECIDED
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.messages import ORIGIN, entry_text, position_text
from spark_jobs.frames.transactions import ABORTED, COMMITTED, OPEN, PLAIN, returned_ends
from spark_jobs.verdict import CheckResult
from spark_jobs.wording import count

_PLACE = ("ledger_id", "entry_id", "batch_index")


def find_torn(evidence: Evidence) -> DataFrame | None:
    """Find messages whose marker contradicts the client's response, messages stored outside of their transaction, and
    transactions with markers of both kinds."""
    if not evidence.transactional:
        return None
    own = (
        evidence.messages.where(F.col("transaction").isNotNull() & (F.size("fates") > 0))
        .withColumn("region", F.col("origin_region"))
        .withColumn("position", entry_text(F.col("position")))
    )
    returned = F.coalesce("returned_end", F.lit(OPEN))
    kind = (
        F.when((returned == COMMITTED) & F.col("unpublished"), "committed but not visible")
        .when((returned == ABORTED) & F.array_contains("fates", COMMITTED), "aborted but visible")
        # Several sessions may have used one sequence id, inside of transactions and outside.
        .when(
            F.col("asked_transaction").isNotNull()
            & F.array_contains("fates", PLAIN)
            & (F.col("sessions") <= 1),
            "outside its transaction",
        )
    )
    wrong = own.withColumn("kind", kind).where(F.col("kind").isNotNull())
    return all_of(
        [
            finding(wrong, F.col("kind"), at_ms="acked_ms"),
            _two_fates(evidence.stored),
            _decided_otherwise(evidence),
        ]
    )


def _decided_otherwise(evidence: Evidence) -> DataFrame:
    """Find transactions whose end was confirmed to a client, and that their coordinator's journal decides otherwise, or
    begins under a key and does not decide: a decision is durable before its response."""
    by = ["region", "transaction"]
    entries = evidence.keys.entries
    is_commit = F.col("status").isin("COMMITTING", "COMMITTED")
    known = (
        entries.where(F.col("what").isin(BEGAN, DECIDED))
        .groupBy(*by)
        .agg(
            F.count_if((F.col("what") == DECIDED) & is_commit).alias("commits"),
            F.count_if((F.col("what") == DECIDED) & ~is_commit).alias("aborts"),
        )
    )
    agreeing = F.when(F.col("returned_end") == COMMITTED, F.col("commits")).otherwise(F.col("aborts"))
    wrong = returned_ends(evidence.events).join(known.hint("broadcast"), by).where(agreeing == 0)
    return finding(wrong, "decided otherwise")


def _two_fates(stored: DataFrame) -> DataFrame:
    ended = stored.where((F.col("fate") == COMMITTED) | (F.col("fate") == ABORTED))
    torn = (
        ended.groupBy("region", "transaction")
        .agg(
            F.min("fate").alias("fate"),
            F.max("fate").alias("other_fate"),
            F.max_by("topic", "fate").alias("topic"),
        )
        .where(F.col("fate") != F.col("other_fate"))
    )
    return finding(torn, "partly committed")


def find_visible(evidence: Evidence) -> DataFrame | None:
    """Find messages that were delivered or replicated although the log does not commit their transaction."""
    if not evidence.transactional:
        return None
    return all_of([_delivered(evidence), _elsewhere(evidence.messages)])


def _delivered(evidence: Evidence) -> DataFrame:
    hidden = evidence.stored.where((F.col("fate") == ABORTED) | (F.col("fate") == OPEN)).select(
        *ORIGIN, "region", *_PLACE, "transaction"
    )
    delivered = (
        evidence.events.where(F.col("op").isin("receive", "read") & (F.col("outcome") == "ok"))
        .groupBy("topic", "region", *_PLACE)
        .agg(F.min("at_ms").alias("at_ms"), F.min("subscription").alias("subscription"))
    )
    seen = delivered.join(hidden.hint("broadcast"), ["topic", "region", *_PLACE])
    return finding(seen, "delivered although not committed", position=position_text(F.struct(*_PLACE)))


def _elsewhere(messages: DataFrame) -> DataFrame:
    """Find uncommitted messages in other regions. A message trimmed from its own log may have been committed, unless a
    client's response excludes it."""
    certain = (F.size("fates") > 0) | (F.coalesce("returned_end", F.lit(OPEN)) == ABORTED)
    others = F.filter("copies", lambda copy: copy["region"] != F.col("origin_region"))
    replicated = (
        messages.where(F.col("unpublished") & certain)
        .withColumn("others", others)
        .where(F.size("others") > 0)
        .withColumn("copy", F.element_at("others", 1))
        .withColumn("region", F.col("copy.region"))
        .withColumn("origin_position", entry_text(F.col("position")))
    )
    return finding(
        replicated,
        "replicated although not committed",
        position=position_text(F.col("copy")),
        at_ms="asked_ms",
    )


_TORN = {
    "committed but not visible": (
        "message",
        "of a transaction reported as committed to a client, but not committed in the log",
    ),
    "aborted but visible": (
        "message",
        "of a transaction reported as aborted to a client, but committed in the log",
    ),
    "outside its transaction": ("message", "stored outside of the transaction in which it was published"),
    "partly committed": ("transaction", "committed in one topic and aborted in another"),
    "decided otherwise": (
        "transaction",
        "confirmed to a client with an end that the journal of its coordinator does not have",
    ),
}
_VISIBLE = {
    "delivered although not committed": (
        "message",
        "delivered although the log does not commit the transaction",
    ),
    "replicated although not committed": (
        "message",
        "of a transaction that its region does not commit, stored in another region",
    ),
}
_OF_LOGS_ALONE = ("partly committed", "replicated although not committed")
"""Kinds of violation that the logs prove without the history."""
_NOTHING = "No message was published in a transaction."


def conclude_torn(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    return conclude_violations(
        ATOMIC,
        found,
        _TORN,
        partial(_is_proven, circumstances),
        valid=f"{count(total(found, CHECKED))} of transactions: all committed ones are visible, no aborted one is.",
        nothing=_NOTHING,
    )


def conclude_visible(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    return conclude_violations(
        INVISIBLE,
        found,
        _VISIBLE,
        partial(_is_proven, circumstances),
        valid=f"{count(total(found, CHECKED))} of transactions: no consumer received, and no other region stores, an"
        " uncommitted one.",
        nothing=_NOTHING,
    )


def _is_proven(circumstances: Circumstances, found: FindingGroup) -> bool:
    """Return whether a finding is proven: a partial log may lack the marker, and a partial history the response, unless
    the logs alone prove the finding."""
    if {found.region, found.origin_region} & circumstances.damaged_regions:
        return False
    return found.kind in _OF_LOGS_ALONE or not circumstances.history_damaged


_COUNTS = [Count(CHECKED, "messages", "transaction IS NOT NULL")]

ATOMIC = Check("transactions-atomic", "transactions are atomic", "INV-58", _COUNTS, find_torn, conclude_torn)
INVISIBLE = Check(
    "uncommitted-invisible",
    "uncommitted messages are invisible",
    "INV-59",
    _COUNTS,
    find_visible,
    conclude_visible,
)
