"""INV-4: messages of one origin stand in every region's log in the order of their sequence ids.

A second copy of a message stands behind its first, out of order by nature; it is a double, which INV-2 judges.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.checks.finding import Circumstances, Found, finding
from spark_jobs.checks.judging import Check, Count, count, examples, of_kind, per_region, total
from spark_jobs.evidence import ORIGIN, Evidence
from spark_jobs.verdict import CheckResult, Verdict


def find(evidence: Evidence) -> DataFrame:
    stored = evidence.stored
    place = F.struct("ledger_id", "entry_id", "batch_index")
    earlier = (
        Window.partitionBy("region", "log_topic", "origin_region", "producer")
        .orderBy("ledger_id", "entry_id", "batch_index")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    late = (
        stored.withColumn("highest_before", F.max("sequence_id").over(earlier))
        .where(F.col("sequence_id") < F.col("highest_before"))
        .select("region", *ORIGIN, place.alias("place"))
    )
    here = F.filter("copies", lambda copy: copy["region"] == F.col("region"))
    places = F.transform(here, lambda copy: copy.dropFields("region", "payload_crc32c"))
    # Few or none: broadcast them, so that the messages need not be shuffled.
    first_copies = evidence.messages.join(F.broadcast(late), list(ORIGIN)).where(
        F.col("place") == F.array_min(places)
    )
    position = F.concat_ws(":", "place.ledger_id", "place.entry_id", "place.batch_index")
    return finding(first_copies, "out of order", position=position)


def conclude(found: Sequence[Found], circumstances: Circumstances) -> CheckResult:
    judged = total(found, "judged")
    late = of_kind(found, "out of order")
    verdict: Verdict = "invalid"
    if late:
        late_total = sum(one.n for one in late)
        sentence = f"{count(late_total)} stored behind a later one of the same origin ({per_region(late)})."
    elif judged:
        verdict = "valid"
        sentence = (
            f"{count(judged, 'stored message')}: everywhere in the order in which their producers sent them."
        )
    else:
        verdict, sentence = "unknown", "No message is stored in any region: there is nothing to prove."
    return CHECK.result(verdict, sentence, examples(late))


CHECK = Check(
    "per-origin-order", "order of each origin", "INV-4", [Count("judged", "stored", "1")], find, conclude
)
