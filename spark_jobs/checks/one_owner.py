"""INV-25, INV-26: while one producer has exclusive access to a topic, the region's other producers store nothing.

Grants are compared with each other (epochs increase, ranges do not overlap), with the entries of the region's own log
(except replicated ones: two regions may have two owners), and with the responses that clients received.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from spark_jobs.checks.check import CHECKED, LOGS, Check, Circumstances, conclude_violations, total
from spark_jobs.checks.finding import FindingGroup, all_of, finding
from spark_jobs.engines.frames import DataFrame, F
from spark_jobs.evidence.grants import FALLING, MISSING, OVERLAPPING, UNREADABLE
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.messages import position_text
from spark_jobs.frames.stored_values import Ownership
from spark_jobs.verdict import CheckResult
from spark_jobs.wording import count

INTERLEAVED, UNGRANTED = "entry of another producer", "epoch returned without a grant"


def find(evidence: Evidence) -> DataFrame:
    ownership = evidence.ownership
    if not ownership.is_known:
        return finding(ownership.grants, CHECKED)
    return all_of(
        [
            finding(ownership.grants, F.coalesce(F.col("problem"), F.lit(CHECKED))),
            _interleaved(evidence.stored, ownership),
            _ungranted(ownership),
        ]
    )


def _interleaved(stored: DataFrame, ownership: Ownership) -> DataFrame:
    """Find entries of the region's own clients within a grant of another owner."""
    grants = ownership.grants.where(
        (F.col("until").isNotNull() | ~F.col("is_bounded")) & (F.col("owner") != "")
    ).select("region", "log_topic", "epoch", "owner", "first_entry", "until")
    own = stored.where(F.col("region") == F.col("origin_region"))
    within = own.join(grants.hint("broadcast"), ["region", "log_topic"]).where(
        (F.col("entry_id") >= F.col("first_entry"))
        & (F.col("until").isNull() | (F.col("entry_id") < F.col("until")))
        & (F.col("producer") != F.col("owner"))
    )
    place = F.struct("ledger_id", "entry_id", "batch_index")
    return finding(within, INTERLEAVED, position=position_text(place))


def _ungranted(ownership: Ownership) -> DataFrame:
    granted = ownership.grants.select(
        "region", "topic", "epoch", F.col("owner").alias("producer"), F.lit(True).alias("is_granted")
    )
    by_epoch = ownership.grants.groupBy("region", "topic", "epoch").agg(F.max("owner").alias("owner"))
    returned = ownership.returned.join(granted, ["region", "topic", "epoch", "producer"], "left")
    without = returned.where(F.col("is_granted").isNull()).drop("is_granted")
    return finding(without.join(by_epoch, ["region", "topic", "epoch"], "left"), UNGRANTED)


_VIOLATIONS = {
    INTERLEAVED: ("entry", "stored by others while one producer had exclusive access"),
    FALLING: ("grant", "whose epoch differs from its key"),
    OVERLAPPING: ("grant", "that overlaps the next one"),
    UNGRANTED: ("epoch", "returned to a producer that the region did not grant it to"),
    MISSING: ("grant", "missing between two others"),
    UNREADABLE: ("grant", "that cannot be read"),
}
_UNPROVEN = (MISSING, UNREADABLE)


def conclude(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    return conclude_violations(
        CHECK,
        found,
        _VIOLATIONS,
        partial(_is_proven, circumstances),
        valid=f"{count(total(found, CHECKED), 'grant')} of exclusive access: each covers only entries of its owner.",
        nothing="No producer was granted exclusive access to a topic.",
        unproven="The owner is unknown there.",
    )


def _is_proven(circumstances: Circumstances, found: FindingGroup) -> bool:
    """Return whether a finding is proven. Missing and unreadable grants prove nothing; a returned epoch without a grant
    does only if the region's stored values are complete."""
    if found.kind in _UNPROVEN:
        return False
    return found.kind != UNGRANTED or found.region not in circumstances.damaged_regions | circumstances.lost


CHECK = Check("one-owner", "one owner at a time", "INV-25", [], find, conclude, evidence=LOGS)
