"""INV-70, INV-71: only the newest client of a transaction key goes on, and the key's epochs, which identify it, grow.

The logs of the coordinators are compared with themselves, entry by entry in order, and with the responses that clients
received when transactions began and ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_jobs.checks.circumstances import Circumstances
from spark_jobs.checks.finding import FindingGroup, all_of, finding
from spark_jobs.checks.judging import Check, examples, of_kind, per_region, total
from spark_jobs.engines.frames import DataFrame, F, Window
from spark_jobs.evidence.transaction_journals import BEGAN, DECIDED, DELETED, FLOOR, GRANTED
from spark_jobs.frames.evidence import Evidence
from spark_jobs.verdict import CheckResult, Verdict
from spark_jobs.wording import count

_KEY = ("region", "role", "transaction_key")
_NEVER = 2**62
JUDGED = "judged"
TWO_OPEN, LATE = "two open transactions", "committed after it was fenced"
FALLS, TWICE, UNGRANTED, TOLD_TWICE, NOT_STORED = (
    "epoch decreases",
    "granted twice",
    "begun without a grant",
    "one epoch returned to two clients",
    "epoch returned without a grant",
)


def find_unfenced(evidence: Evidence) -> DataFrame | None:
    """Transactions that a newer one of their key did not end."""
    if not evidence.keys.is_known:
        return None
    begun = evidence.keys.entries.where(F.col("what") == BEGAN)
    told = _told(evidence)
    known = all_of([_names(frame, "transaction") for frame in (begun, told)]).distinct()
    return all_of([finding(known, JUDGED), _two_open(evidence.keys.entries), _committed_late(evidence, told)])


def _names(frame: DataFrame, *columns: str) -> DataFrame:
    return frame.select("region", *columns)


def _two_open(entries: DataFrame) -> DataFrame:
    """Begun while another one of the key was not decided: the log says so in its order."""
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


def _told(evidence: Evidence) -> DataFrame:
    """Transactions that began under a key, as clients were answered."""
    return evidence.events.where(
        (F.col("op") == "begin_transaction")
        & (F.col("outcome") == "ok")
        & F.col("transaction_key").isNotNull()
    ).select(
        "region",
        "actor",
        "transaction",
        "transaction_key",
        F.col("key_epoch").alias("epoch"),
        F.col("at_ms").alias("begun_ms"),
    )


def _committed_late(evidence: Evidence, told: DataFrame) -> DataFrame:
    """Commits that were accepted although another client had already received the response that began a newer
    transaction of the key."""
    ends = (
        evidence.events.where((F.col("op") == "end_transaction") & (F.col("action") == "commit"))
        .groupBy("region", "transaction")
        .agg(
            F.min(F.when(F.col("outcome") == "asked", F.col("at_ms"))).alias("at_ms"),
            F.max(F.col("outcome") == "ok").alias("is_committed"),
        )
        .where(F.col("is_committed"))
    )
    newer = told.select(
        "region",
        "transaction_key",
        F.col("begun_ms").alias("newer_ms"),
        F.col("epoch").alias("newer_epoch"),
    )
    late = (
        told.join(ends, ["region", "transaction"])
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
    """Epochs that did not grow, and those that were granted to no client."""
    if not evidence.keys.is_known:
        return None
    entries = evidence.keys.entries
    granted = entries.where((F.col("what") == GRANTED) | (F.col("what") == DELETED))
    told = _told(evidence).where(F.col("epoch").isNotNull())
    known = all_of([_names(frame, "transaction_key", "epoch") for frame in (granted, told)]).distinct()
    return all_of(
        [
            finding(known, JUDGED),
            _falling(granted),
            _falling(entries.where(F.col("what") == BEGAN)),
            _falling_over_checkpoints(granted),
            _granted_twice(granted),
            _begun_ungranted(entries, granted),
            *_told_wrongly(told, entries, granted),
        ]
    )


def _falling(entries: DataFrame) -> DataFrame:
    before = Window.partitionBy(*_KEY, "coordinator", "generation").orderBy("number")
    earlier = before.rowsBetween(Window.unboundedPreceding, -1)
    falling = entries.withColumn("highest", F.max("epoch").over(earlier)).where(
        F.col("epoch") < F.col("highest")
    )
    return finding(falling, FALLS)


def _falling_over_checkpoints(granted: DataFrame) -> DataFrame:
    """A checkpoint says again which processes had a key; its highest epoch must be there again."""
    by = [*_KEY, "coordinator", "generation"]
    highest = granted.groupBy(*by).agg(F.max("epoch").alias("epoch"))
    before = Window.partitionBy(*_KEY, "coordinator").orderBy("generation")
    earlier = before.rowsBetween(Window.unboundedPreceding, -1)
    falling = highest.withColumn("highest", F.max("epoch").over(earlier)).where(
        F.col("epoch") < F.col("highest")
    )
    return finding(falling, FALLS)


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


def _told_wrongly(told: DataFrame, entries: DataFrame, granted: DataFrame) -> list[DataFrame]:
    """Wrong responses to clients. A history contains no roles: a key has the same role everywhere, or all are tried."""
    highest = granted.groupBy("region", "transaction_key").agg(F.max("epoch").alias("highest"))
    floors = entries.where(F.col("what") == FLOOR).groupBy("region").agg(F.max("epoch").alias("floor"))
    beyond = (
        told.join(highest, ["region", "transaction_key"], "left")
        .join(floors, ["region"], "left")
        .where(
            (F.col("epoch") > F.coalesce("highest", F.lit(-1)))
            & (F.col("epoch") > F.coalesce("floor", F.lit(-1)))
        )
    )
    twice = (
        told.groupBy("region", "transaction_key", "epoch")
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
        finding(twice, TOLD_TWICE),
    ]


_UNFENCED = {
    TWO_OPEN: "begun while another one of the same key was open",
    LATE: "committed when a newer one of the same key had begun",
}
_EPOCHS = {
    FALLS: "below an earlier one of its key",
    TWICE: "granted to two processes",
    UNGRANTED: "of a transaction, never granted",
    TOLD_TWICE: "returned to two clients",
    NOT_STORED: "returned to a client, not stored by the region",
}
_OF_LOGS_ALONE = (TWO_OPEN, FALLS, TWICE, UNGRANTED)
"""These need no history."""


def conclude_unfenced(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    right = "one open transaction per key at a time, and none committed after a newer one had begun"
    return _concluded(FENCED, "transaction", _UNFENCED, right, found, circumstances)


def conclude_epochs(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    right = "they increase for each key, and clients received no others"
    return _concluded(EPOCHS, "epoch", _EPOCHS, right, found, circumstances)


def _concluded(
    check: Check,
    noun: str,
    kinds: Mapping[str, str],
    right: str,
    found: Sequence[FindingGroup],
    circumstances: Circumstances,
) -> CheckResult:
    wrong = of_kind(found, *kinds)
    proven = [one for one in wrong if _is_proven(one, circumstances)]
    judged = total(found, JUDGED)
    if not judged and not wrong:
        return check.result("not applicable", "No client used a transaction key.")
    sentences = [
        f"{count(total(wrong, kind), noun)} {sentence} ({per_region(of_kind(wrong, kind))})."
        for kind, sentence in kinds.items()
        if total(wrong, kind)
    ]
    verdict: Verdict = "invalid" if proven else "unknown" if wrong else "valid"
    if wrong and not proven:
        sentences.append("Not proven wrong, because a part of the logs or of the history is missing.")
    if not wrong:
        sentences = [f"{count(judged, noun)} of transaction keys: {right}."]
    return check.result(
        verdict, " ".join(sentences), examples([*proven, *(one for one in wrong if one not in proven)])
    )


def _is_proven(found: FindingGroup, circumstances: Circumstances) -> bool:
    """A region that was lost and came back empty begins its epochs anew."""
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
