"""INV-20: a service published a result of every message before it acknowledged the message.

A service consumes one topic and publishes to another one. Its contract holds when each message that its subscription
acknowledged has a result: a message with the same key in the other topic that is stored or was acknowledged. Several
messages with one key require as many results. A message without an acknowledgement is redelivered, so it requires no
result yet.

A witness names the region where the message was acknowledged, the region of the last publish request of a result, if
that is another one, and the time from the earlier of the two operations to the acknowledgement.

Only runs with a contract of a service (`emulator.run.service_contract`) are checked.
"""

from __future__ import annotations

from collections.abc import Sequence

from emulator.run.service_contract import Contract
from spark_jobs.checks.check import CHECKED, Check, Circumstances, examples, of_kind, total, unless_unchecked
from spark_jobs.checks.finding import FindingGroup, all_of, finding
from spark_jobs.engines.frames import DataFrame, F, fields_of
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.history import operations
from spark_jobs.frames.messages import ORIGIN
from spark_jobs.verdict import CheckResult, Verdict
from spark_jobs.wording import count

NAME = "contract-kept"
_PLACE = ("region", "ledger_id", "entry_id", "batch_index")


def check_of(contracts: Sequence[Contract]) -> Check:
    """Return the check for the contracts of a run."""

    def find(evidence: Evidence) -> DataFrame:
        return all_of([frame for one in contracts for frame in _of_one(evidence, one)])

    def conclude(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
        return _conclude(check, contracts, found, circumstances)

    check = Check(NAME, "the service's contract is kept", "INV-20", [], find, conclude)
    return check


def _of_one(evidence: Evidence, contract: Contract) -> list[DataFrame]:
    acknowledged = _with_key(evidence, contract)
    keyed = acknowledged.where(F.col("key").isNotNull())
    wanted = keyed.groupBy("key").agg(
        F.count("*").alias("asked"),
        F.min(F.struct("acked_ms", *ORIGIN[1:])).alias("first"),
    )
    results = _results(evidence, contract).groupBy("key").agg(F.count("*").alias("results"))
    without_result = (
        wanted.join(results, ["key"], "left")
        .withColumn("lacking", F.col("asked") - F.coalesce("results", F.lit(0)))
        .where(F.col("lacking") > 0)
    )
    placed = without_result.select(
        "key", "lacking", *(F.col(f"first.{name}").alias(name) for name in ("acked_ms", *ORIGIN[1:]))
    ).withColumn("topic", F.lit(contract.of))
    placed = placed.join(_first_acknowledgements(evidence, contract, placed), list(ORIGIN), "left").join(
        _attempts(evidence, contract), ["key"], "left"
    )
    return [
        finding(
            placed,
            "without a result",
            subscription=F.lit(contract.subscription),
            region="ack_region",
            other_region="CASE WHEN attempt_region <> ack_region THEN attempt_region END",
            at_ms="COALESCE(LEAST(attempt_ms, ack_ms), acked_ms)",
            until_ms="ack_ms",
            times="lacking",
        ),
        finding(keyed, CHECKED, subscription=F.lit(contract.subscription)),
        finding(acknowledged.where(F.col("key").isNull()), "without a key"),
    ]


def _with_key(evidence: Evidence, contract: Contract) -> DataFrame:
    """Return each message that the subscription acknowledged, once, with its key."""
    acknowledged = (
        evidence.subscription_messages.where(
            F.col("acknowledged")
            & (F.col("topic") == contract.of)
            & (F.col("subscription") == contract.subscription)
        )
        .groupBy(*ORIGIN)
        .agg(F.min("acked_ms").alias("acked_ms"))
    )
    return acknowledged.join(_keys(evidence, contract.of), list(ORIGIN), "left")


def _first_acknowledgements(evidence: Evidence, contract: Contract, messages: DataFrame) -> DataFrame:
    """Return the region and time of the first acknowledgement of each of `messages`."""
    own = (F.col("topic") == contract.of) & (F.col("subscription") == contract.subscription)
    acknowledgements = evidence.events.where(
        own & (F.col("op") == "acknowledge") & (F.col("outcome") != "failed")
    )
    places = (
        evidence.subscription_messages.where(own & F.col("acknowledged"))
        .join(messages.select(*ORIGIN), list(ORIGIN))
        .select(*ORIGIN, F.explode("positions").alias("place"))
        .select(*ORIGIN, *(F.col(f"place.{name}").alias(name) for name in _PLACE))
    )
    by_itself = acknowledgements.where(F.col("how") == "individual").select(*_PLACE, "at_ms")
    upto = acknowledgements.where(F.col("how") == "cumulative").select(
        "region", "ledger_id", F.col("entry_id").alias("upto"), "at_ms"
    )
    with_others = places.join(upto, ["region", "ledger_id"]).where(F.col("upto") >= F.col("entry_id"))
    columns = [*ORIGIN, "region", "at_ms"]
    acknowledged = places.join(by_itself, list(_PLACE)).select(*columns).union(with_others.select(*columns))
    first = acknowledged.groupBy(*ORIGIN).agg(F.min(F.struct("at_ms", "region")).alias("first"))
    return first.select(
        *ORIGIN, F.col("first.at_ms").alias("ack_ms"), F.col("first.region").alias("ack_region")
    )


def _publishes(evidence: Evidence, topic: str) -> DataFrame:
    """Return the publish requests with a key."""
    return operations(evidence.events, "publish", "asked").where(
        (F.col("topic") == topic) & F.col("key").isNotNull()
    )


def _attempts(evidence: Evidence, contract: Contract) -> DataFrame:
    """Return the region and time of the last publish request of a result, by key."""
    last = (
        _publishes(evidence, contract.on).groupBy("key").agg(F.max(F.struct("at_ms", "region")).alias("last"))
    )
    return last.select(
        "key", F.col("last.at_ms").alias("attempt_ms"), F.col("last.region").alias("attempt_region")
    )


def _results(evidence: Evidence, contract: Contract) -> DataFrame:
    there = evidence.messages.where(
        (F.col("topic") == contract.on)
        & (F.col("acked_ms").isNotNull() | (F.size("copies") > 0))
        & ~F.col("unpublished")
    )
    return there.join(_keys(evidence, contract.on), list(ORIGIN))


def _keys(evidence: Evidence, topic: str) -> DataFrame:
    """Return the key of each message in its publish request. A program that starts again may repeat a sequence id for
    another message, if the first one was not stored: then the key is that of the stored content."""
    requests = _publishes(evidence, topic).withColumn("origin_region", F.col("region"))
    stored = evidence.messages.where(F.col("topic") == topic).select(
        *ORIGIN, fields_of("copies", "payload_digest").alias("stored")
    )
    is_stored = F.coalesce(F.array_contains("stored", F.col("payload_digest")), F.lit(False))
    ranked = requests.select(*ORIGIN, "key", "payload_digest").join(stored, list(ORIGIN), "left")
    chosen = ranked.groupBy(*ORIGIN).agg(F.max(F.struct(is_stored.alias("is_stored"), "key")).alias("chosen"))
    return chosen.select(*ORIGIN, F.col("chosen.key").alias("key"))


def _conclude(
    check: Check, contracts: Sequence[Contract], found: Sequence[FindingGroup], circumstances: Circumstances
) -> CheckResult:
    checked, without_result = total(found, CHECKED), of_kind(found, "without a result")
    what = "; ".join(map(str, contracts))
    verdict: Verdict = "valid"
    sentences = [f"{what}: {count(checked, 'acknowledged message')}, each with a result of the same key."]
    if without_result:
        n = sum(one.n for one in without_result)
        verdict = "unknown" if circumstances.history_damaged else "invalid"
        sentences = [f"{what}: {n:,} of {count(checked, 'acknowledged message')} without a result."]
        if circumstances.history_damaged:
            sentences.append("Not proven, because a part of the history is missing.")
    verdict = unless_unchecked(verdict, checked)
    if verdict == "not applicable":
        sentences = [f"{what}: no message with a key was acknowledged."]
    keyless = total(found, "without a key")
    if keyless:
        sentences.append(f"Not checked: {count(keyless)} without a key.")
    return check.result(verdict, " ".join(sentences), examples(without_result))
