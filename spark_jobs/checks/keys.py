"""INV-70, INV-71: only the newest client of a transaction key can continue, and the epochs of each key increase.

The entries of each coordinator's log are compared with its earlier entries, and with the responses that clients
received to begin and end requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from spark_jobs.checks.check import CHECKED, Check, Circumstances, conclude_violations, total
from spark_jobs.checks.finding import FindingGroup, all_of, finding
from spark_jobs.engines.frames import DataFrame, F, Window
from spark_jobs.evidence.transaction_journals import BEGAN, DECIDED, DELETED, FLOOR, GRANTED
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.history import operations
from spark_jobs.verdict import CheckResult
from spark_jobs.wording import count

_KEY = ("region", "role", "transaction_key")
_NEVER = 2**62
TWO_OPEN, LATE = "two open transactions", "committed after it was fenced"
FALLS, TWICE, UNGRANTED, RETURNED_TWICE, NOT_STORED = (
    "epoch decreases",
    "granted twice",
    "begun without a grant",
    "one epoch returned to two clients",
    "epoch returned without a grant",
)


def find_unfenced(evidence: Evidence) -> DataFrame | None:
    """Find transactions that a newer transaction of their key did not fence."""
    if not evidence.keys.is_known:
        return None
    entries, begun = evidence.keys.entries, _begun_by_clients(evidence)
    stored = entries.where(F.col("what") == BEGAN)
    known = all_of([frame.select("region", "transaction") for frame in (stored, begun)]).distinct()
    return all_of([finding(known, CHECKED), _two_open(entries), _committed_late(evidence, begun)])


def _two_open(entries: DataFrame) -> DataFrame:
    """Find transactions that began, in the order of the log, while another one of their key was undecided."""
    by = ["region", "transaction", "generation"]
    decided = entries.where(F.col("what") == DECIDED).groupBy(*by).agg(F.min("number").alias("decided"))
    before = Window.partitionBy(*_KEY, "coordinator", "generation").orderBy("number")
    earlier = before.rowsBetween(Window.unboundedPreceding, -1)
    begun = (
        entries.where(F.col("what") == BEGAN)
        .join(decided, by, "left")
        .withColumn("open_until", F.max(F.coalesce("decided", F.lit(_NEVER))).over(earlier))
        .where(F.col("open_until") > F.col("number"))
    )
    return finding(begun, TWO_OPEN)


def _begun_by_clients(evidence: Evidence) -> DataFrame:
    """Return the transactions that began under a key, according to the responses that clients received."""
    return (
        operations(evidence.events, "begin_transaction", "ok")
        .where(F.col("transaction_key").isNotNull())
        .select(
            "region",
            "actor",
            "transaction",
            "transaction_key",
            F.col("key_epoch").alias("epoch"),
            F.col("at_ms").alias("begun_ms"),
        )
    )


def _committed_late(evidence: Evidence, begun: DataFrame) -> DataFrame:
    """Find successful commits that were invoked after any client had received the begin response of a newer
    transaction of the key."""
    ends = (
        operations(evidence.events, "end_transaction")
        .where(F.col("action") == "commit")
        .groupBy("region", "transaction")
        .agg(
            F.min(F.when(F.col("outcome") == "asked", F.col("at_ms"))).alias("at_ms"),
            F.max(F.col("outcome") == "ok").alias("is_committed"),
        )
        .where(F.col("is_committed"))
    )
    newer = begun.select(
        "region",
        "transaction_key",
        F.col("begun_ms").alias("newer_ms"),
        F.col("epoch").alias("newer_epoch"),
    )
    late = (
        begun.join(ends, ["region", "transaction"])
        .join(newer, ["region", "transaction_key"])
        .where(
            (F.col("newer_ms") > F.col("begun_ms"))
            & (F.col("newer_epoch") >= F.col("epoch"))
            & (F.col("at_ms") > F.col("newer_ms"))
        )
        .groupBy("region", "transaction", "transaction_key")
        .agg(F.max("at_ms").alias("at_ms"), F.max("epoch").alias("epoch"))
    )
    return finding(late, LATE)


def find_epochs(evidence: Evidence) -> DataFrame | None:
    """Find epochs that did not increase, were granted or returned to two clients, or were never granted."""
    if not evidence.keys.is_known:
        return None
    entries = evidence.keys.entries
    granted = entries.where((F.col("what") == GRANTED) | (F.col("what") == DELETED))
    returned = _begun_by_clients(evidence).where(F.col("epoch").isNotNull())
    known = all_of(
        [frame.select("region", "transaction_key", "epoch") for frame in (granted, returned)]
    ).distinct()
    return all_of(
        [
            finding(known, CHECKED),
            _falling(granted),
            _falling(entries.where(F.col("what") == BEGAN)),
            _falling_over_checkpoints(granted),
            _granted_twice(granted),
            _begun_ungranted(entries, granted),
            *_wrong_responses(returned, entries, granted),
        ]
    )


def _falling(entries: DataFrame) -> DataFrame:
    return _below_highest(entries, "number", *_KEY, "coordinator", "generation")


def _falling_over_checkpoints(granted: DataFrame) -> DataFrame:
    """Find checkpoints that lower a key's highest epoch: each checkpoint must repeat the keys with their epochs."""
    highest = granted.groupBy(*_KEY, "coordinator", "generation").agg(F.max("epoch").alias("epoch"))
    return _below_highest(highest, "generation", *_KEY, "coordinator")


def _below_highest(entries: DataFrame, order: str, *by: str) -> DataFrame:
    """Find entries with a lower epoch than an earlier entry, by the column `order`."""
    earlier = Window.partitionBy(*by).orderBy(order).rowsBetween(Window.unboundedPreceding, -1)
    falling = entries.withColumn("highest", F.max("epoch").over(earlier))
    return finding(falling.where(F.col("epoch") < F.col("highest")), FALLS)


def _granted_twice(granted: DataFrame) -> DataFrame:
    named = granted.where((F.col("what") == GRANTED) & (F.col("process") != ""))
    twice = (
        named.groupBy(*_KEY, "coordinator", "epoch")
        .agg(F.min("process").alias("process"), F.max("process").alias("other"))
        .where(F.col("process") != F.col("other"))
    )
    return finding(twice, TWICE)


def _begun_ungranted(entries: DataFrame, granted: DataFrame) -> DataFrame:
    by = [*_KEY, "coordinator"]
    highest = granted.groupBy(*by).agg(F.max("epoch").alias("highest"))
    begun = entries.where(F.col("what") == BEGAN).join(highest, by)
    return finding(begun.where(F.col("epoch") > F.col("highest")), UNGRANTED)


def _wrong_responses(returned: DataFrame, entries: DataFrame, granted: DataFrame) -> list[DataFrame]:
    """Find wrong epochs in responses. A history contains no roles, so keys of different roles are not distinguished."""
    highest = granted.groupBy("region", "transaction_key").agg(F.max("epoch").alias("highest"))
    floors = entries.where(F.col("what") == FLOOR).groupBy("region").agg(F.max("epoch").alias("floor"))
    beyond = (
        returned.join(highest, ["region", "transaction_key"], "left")
        .join(floors, ["region"], "left")
        .where(
            (F.col("epoch") > F.coalesce("highest", F.lit(-1)))
            & (F.col("epoch") > F.coalesce("floor", F.lit(-1)))
        )
    )
    twice = (
        returned.groupBy("region", "transaction_key", "epoch")
        .agg(
            F.min("actor").alias("actor"),
            F.max("actor").alias("other"),
            F.max("begun_ms").alias("at_ms"),
            F.max("transaction").alias("transaction"),
        )
        .where(F.col("actor") != F.col("other"))
    )
    return [
        finding(beyond, NOT_STORED, at_ms="begun_ms"),
        finding(twice, RETURNED_TWICE),
    ]


_UNFENCED = {
    TWO_OPEN: ("transaction", "begun while another one of the same key was open"),
    LATE: ("transaction", "committed when a newer one of the same key had begun"),
}
_EPOCHS = {
    FALLS: ("epoch", "below an earlier one of its key"),
    TWICE: ("epoch", "granted to two processes"),
    UNGRANTED: ("epoch", "of a transaction, never granted"),
    RETURNED_TWICE: ("epoch", "returned to two clients"),
    NOT_STORED: ("epoch", "returned to a client, not stored by the region"),
}
_OF_LOGS_ALONE = (TWO_OPEN, FALLS, TWICE, UNGRANTED)
"""Kinds of violation that the logs prove without the history."""
_NOTHING = "No client used a transaction key."


def conclude_unfenced(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    return conclude_violations(
        FENCED,
        found,
        _UNFENCED,
        partial(_is_proven, circumstances),
        valid=f"{count(total(found, CHECKED), 'transaction')} of transaction keys: one open transaction per key at a"
        " time, and none committed after a newer one had begun.",
        nothing=_NOTHING,
    )


def conclude_epochs(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    return conclude_violations(
        EPOCHS,
        found,
        _EPOCHS,
        partial(_is_proven, circumstances),
        valid=f"{count(total(found, CHECKED), 'epoch')} of transaction keys: they increase for each key, and clients"
        " received no others.",
        nothing=_NOTHING,
    )


def _is_proven(circumstances: Circumstances, found: FindingGroup) -> bool:
    """Return whether a finding is proven: its region has a complete log and does not remain lost, and the history is
    complete unless the logs alone prove the finding. A lost region that starts again continues with its log; one with
    its log in memory is a damaged region."""
    if found.region in circumstances.damaged_regions | circumstances.lost:
        return False
    return found.kind in _OF_LOGS_ALONE or not circumstances.history_damaged


FENCED = Check(
    "one-task-per-key",
    "only the newest client of a transaction key continues",
    "INV-70",
    [],
    find_unfenced,
    conclude_unfenced,
)
EPOCHS = Check(
    "key-epochs-grow",
    "epochs of transaction keys increase",
    "INV-71",
    [],
    find_epochs,
    conclude_epochs,
)
