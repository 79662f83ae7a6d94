"""Fail-over plans of a run, compared with the fail-overs that followed.

A plan names the messages that its source region had acknowledged: up to its mark-delete position, and in ranges beyond
it. The fail-over is the first subscribe in the target region after the plan; it lasts until the subscription subscribes
elsewhere. What the source had acknowledged, and the target delivers during the fail-over, is redelivered. If the source
region did not respond, the plan is about everything that the target stored.

The numbers must be equal if the plan is exact and quiet, no consumer acknowledged in between, and the target region's
consumers finished what it stored at the time of the plan.

A message is skipped that no client acknowledged, and that the target region counts as acknowledged although it did not
deliver it. A plan that states the number of skipped messages states at least that of the messages which were
acknowledged to their producers before, and which the source region had not acknowledged.

A plan is not compared without a later subscribe in its target region, if a client moved the subscription (seek,
unsubscribe), or if a consumer received messages in the target between the plan and the fail-over: then messages may
wait in its receiver queue which the region does not count as unacknowledged.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spark_jobs.engines.frames import DataFrame, F, cached, schema, small_frame
from spark_jobs.evidence.positions import LEDGER
from spark_jobs.frames.acknowledgements import open_copies
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.history import operations
from spark_jobs.frames.messages import ORIGIN, place_number
from spark_jobs.sources.plans import RecordedPlan, topics_of

Outcome = Literal["kept", "exceeded", "missed", "skipped", "not followed", "moved", "consumed in both"]
"""`exceeded`: more messages than planned were redelivered. `missed`: fewer, although the numbers must be equal.
`skipped`: more messages than planned were skipped."""
COMPARED: Collection[Outcome] = ("kept", "exceeded", "missed", "skipped")
_PLANS = schema(
    "plan int, topic string, subscription string, source string, target string, at_ms double, since_ms double,"
    " until_ms double, mark bigint, reach bigint, upto bigint, ledger bigint"
)
"""`ledger`: first possible position in the ledger of `upto`."""
_RANGES = schema("plan int, first bigint, last bigint")
_PLACE = ("ledger_id", "entry_id", "batch_index")


@dataclass(frozen=True, slots=True)
class Failover:
    """What followed a plan in its target region."""

    since_ms: float
    until_ms: float | None
    """Time of the next subscribe in another region; None: there is none."""


@dataclass(frozen=True, slots=True)
class PlanComparison:
    """A plan, and what followed it."""

    plan: RecordedPlan
    outcome: Outcome
    redelivered: int = 0
    """Number of messages that the plan covers and that the target region delivered after the fail-over."""
    acknowledged_since: int = 0
    """Number of acknowledgements in the source region between the plan and the fail-over."""
    is_exact: bool = False
    """Whether the numbers had to be equal."""
    skipped: int = 0
    """Number of messages that the fail-over skipped."""

    @property
    def over_estimate(self) -> int:
        return self.plan.redelivered - self.redelivered

    def as_json(self) -> dict[str, Any]:
        plan = self.plan
        ends = {
            "subscription": plan.subscription,
            "topic": plan.topic,
            "from": plan.source,
            "to": plan.target,
        }
        planned = {"at_ms": plan.at_ms, "planned": plan.redelivered, "outcome": self.outcome}
        if plan.skipped is not None:
            planned["planned_skipped"] = plan.skipped
        if self.outcome not in COMPARED:
            return ends | planned
        followed = {
            "redelivered": self.redelivered,
            "acknowledged_since": self.acknowledged_since,
            "skipped": self.skipped,
        }
        return ends | planned | followed | {"predicted_exactly": self.is_exact}


def compare_plans(evidence: Evidence, plans: Sequence[RecordedPlan]) -> tuple[PlanComparison, ...]:
    """Compare each plan with the fail-over that followed it. Computes nothing without plans."""
    if not plans:
        return ()
    failovers = _failovers(evidence, plans)
    followed = {number: one for number, one in enumerate(failovers) if isinstance(one, Failover)}
    rows = [_plan_row(number, plans[number], one) for number, one in followed.items()]
    counted = _Counts(evidence, rows, plans) if rows else None

    def compare(number: int, failover: Failover | Outcome) -> PlanComparison:
        if isinstance(failover, Failover):
            assert counted is not None
            return counted.compare(number, failover)
        return PlanComparison(plans[number], failover)

    return tuple(compare(number, failover) for number, failover in enumerate(failovers))


def _failovers(evidence: Evidence, plans: Sequence[RecordedPlan]) -> list[Failover | Outcome]:
    """Return for each plan the fail-over, or why there is none to compare."""
    lines = (
        evidence.events.where(F.col("topic").isin(topics_of(plans)))
        .where(
            F.col("op").isin("seek", "unsubscribe")
            | ((F.col("op") == "subscribe") & (F.col("outcome") == "ok"))
        )
        .select("topic", "subscription", "op", "region", "at_ms")
        .collect()
    )
    by_subscription: dict[tuple[str, str], list[Any]] = {}
    for line in sorted(lines, key=lambda line: float(line["at_ms"])):
        by_subscription.setdefault((line["topic"], line["subscription"]), []).append(line)
    return [_failover(plan, by_subscription.get((plan.topic, plan.subscription), [])) for plan in plans]


def _failover(plan: RecordedPlan, lines: Sequence[Any]) -> Failover | Outcome:
    subscribes = [line for line in lines if line["op"] == "subscribe" and line["at_ms"] >= plan.at_ms]
    since_ms = next((line["at_ms"] for line in subscribes if line["region"] == plan.target), None)
    if since_ms is None:
        return "not followed"
    if any(line["op"] != "subscribe" for line in lines):
        return "moved"
    later = (
        line["at_ms"] for line in subscribes if line["region"] != plan.target and line["at_ms"] > since_ms
    )
    return Failover(since_ms, next(later, None))


def _plan_row(number: int, plan: RecordedPlan, failover: Failover) -> tuple[Any, ...]:
    until_ms = float("inf") if failover.until_ms is None else failover.until_ms
    times = (plan.at_ms, failover.since_ms, until_ms)
    ends = (plan.topic, plan.subscription, plan.source, plan.target)
    last = plan.target_last
    ledger = None if last is None else (last + 1) // LEDGER * LEDGER
    return (number, *ends, *times, plan.mark_delete, plan.reach, last, ledger)


class _Counts:
    """The numbers of all plans that were followed, by the number of the plan."""

    def __init__(
        self, evidence: Evidence, rows: Sequence[tuple[Any, ...]], plans: Sequence[RecordedPlan]
    ) -> None:
        self._plans = plans
        followed = small_frame(rows, _PLANS).hint("broadcast")
        ranges = [(row[0], *one) for row in rows for one in plans[row[0]].acknowledged]
        acknowledged = small_frame(ranges, _RANGES).hint("broadcast")
        delivered = cached(_delivered(evidence, followed))
        self._delivered = {row["plan"]: row for row in _sums(delivered).collect()}
        self._known_beyond = _by_plan(_in_ranges(delivered, acknowledged))
        unknown = cached(_acknowledged_beyond(evidence, followed))
        self._since = _by_plan(unknown)
        self._since_known = _by_plan(_in_ranges(unknown, acknowledged))
        self._finished = {row["plan"] for row in _finished(evidence, followed).collect()}
        skipped = cached(_skipped(evidence, followed))
        self._skipped = _by_plan(skipped)
        self._skipped_known = _by_plan(_in_ranges(skipped, acknowledged))

    def compare(self, number: int, failover: Failover) -> PlanComparison:
        plan, row = self._plans[number], self._delivered.get(number)
        if row is not None and row["early"]:
            return PlanComparison(plan, "consumed in both")
        since = self._since.get(number, 0) - self._since_known.get(number, 0)
        if plan.mark_delete is None:
            stored, again = (row["stored"], row["again"]) if row is not None else (0, 0)
            if stored > plan.redelivered:
                return PlanComparison(plan, "exceeded", stored, since)
            return PlanComparison(plan, "kept", again, since)
        redelivered = (row["known"] if row is not None else 0) + self._known_beyond.get(number, 0)
        is_placed = row is None or not row["unplaced"]
        is_over = failover.until_ms is not None
        is_exact = (
            plan.exact and plan.quiet and not since and is_placed and not is_over and number in self._finished
        )
        skipped = self._skipped.get(number, 0) - self._skipped_known.get(number, 0)
        outcome: Outcome = "kept"
        if plan.skipped is not None and skipped > plan.skipped:
            outcome = "skipped"
        elif redelivered > plan.redelivered:
            outcome = "exceeded"
        elif is_exact and redelivered < plan.redelivered:
            outcome = "missed"
        return PlanComparison(plan, outcome, redelivered, since, is_exact, skipped)


def _delivered(evidence: Evidence, plans: DataFrame) -> DataFrame:
    """Return one row per plan and message that the target region delivered since the plan, with its position in the
    target (`there`) and in the source region (`at`; null if it is unknown)."""
    before = F.exists(
        "first_deliveries",
        lambda first: (first["region"] != F.col("target")) & (first["first_ms"] < F.col("since_ms")),
    )
    return (
        _received(evidence, plans)
        .join(_messages_by_place(evidence), ["topic", "subscription", "target", *_PLACE])
        .select(
            "plan",
            "mark",
            "reach",
            F.coalesce(_highest_in_source("copies"), _highest_in_source("positions")).alias("at"),
            (F.col("received_ms") < F.col("since_ms")).alias("is_early"),
            F.coalesce(
                place_number(F.col("ledger_id"), F.col("entry_id")) <= F.col("upto"), F.lit(False)
            ).alias("is_stored"),
            F.coalesce(before, F.lit(False)).alias("is_again"),
        )
    )


def _received(evidence: Evidence, plans: DataFrame) -> DataFrame:
    """Return one row per plan and position that consumers in the target region received since the plan."""
    return (
        operations(evidence.events, "receive", "ok")
        .select(
            "topic",
            "subscription",
            F.col("region").alias("target"),
            *_PLACE,
            F.col("at_ms").alias("received_ms"),
        )
        .join(plans, ["topic", "subscription", "target"])
        .where((F.col("received_ms") >= F.col("at_ms")) & (F.col("received_ms") < F.col("until_ms")))
        .groupBy(
            "plan", "topic", "subscription", "source", "target", *_PLACE, "since_ms", "mark", "reach", "upto"
        )
        .agg(F.min("received_ms").alias("received_ms"))
    )


def _messages_by_place(evidence: Evidence) -> DataFrame:
    """Return the messages of subscriptions, one row per region (`target`) and position in its log."""
    return (
        evidence.subscription_messages.where(F.col("times") > 0)
        .select(
            "topic",
            "subscription",
            "home",
            "copies",
            "positions",
            "first_deliveries",
            F.explode("positions").alias("place"),
        )
        .where((F.col("home") == "") | (F.col("home") == F.col("place.region")))
        .select(
            "topic",
            "subscription",
            F.col("place.region").alias("target"),
            *(F.col(f"place.{name}").alias(name) for name in _PLACE),
            "copies",
            "positions",
            "first_deliveries",
        )
    )


def _highest_in_source(places: str) -> Any:
    """Return the highest of these positions that is in the source region; null: none is."""
    in_source = F.filter(places, lambda place: place["region"] == F.col("source"))
    return F.array_max(
        F.transform(in_source, lambda place: place_number(place["ledger_id"], place["entry_id"]))
    )


def _sums(delivered: DataFrame) -> DataFrame:
    return delivered.groupBy("plan").agg(
        F.count_if(F.col("is_early")).alias("early"),
        F.count_if(F.col("at") <= F.col("mark")).alias("known"),
        F.count_if(F.col("at").isNull()).alias("unplaced"),
        F.count_if(F.col("is_stored")).alias("stored"),
        F.count_if(F.col("is_stored") & F.col("is_again")).alias("again"),
    )


def _acknowledged_beyond(evidence: Evidence, plans: DataFrame) -> DataFrame:
    """Return one row per plan and message that clients acknowledged in the source region beyond its mark-delete
    position (`at`), before the fail-over."""
    acknowledged = (
        operations(evidence.events, "acknowledge")
        .where(F.col("outcome") != "failed")
        .select(
            "topic",
            "subscription",
            F.col("region").alias("source"),
            "how",
            "batch_index",
            place_number(F.col("ledger_id"), F.col("entry_id")).alias("at"),
            F.col("at_ms").alias("asked_ms"),
        )
        .join(plans, ["topic", "subscription", "source"])
        .where((F.col("at") > F.col("mark")) & (F.col("asked_ms") < F.col("since_ms")))
    )
    columns = ("plan", "at", "batch_index", "mark", "reach")
    highest = (
        acknowledged.where(F.col("how") == "cumulative")
        .groupBy("plan", "topic", "source", "mark", "reach")
        .agg(F.max("at").alias("highest"))
    )
    up_to = (
        evidence.stored.select(
            "topic",
            F.col("region").alias("source"),
            place_number(F.col("ledger_id"), F.col("entry_id")).alias("at"),
            "batch_index",
        )
        .join(highest.hint("broadcast"), ["topic", "source"])
        .where((F.col("at") > F.col("mark")) & (F.col("at") <= F.col("highest")))
    )
    single = acknowledged.where(F.col("how") == "individual")
    return single.select(*columns).union(up_to.select(*columns)).distinct()


def _skipped(evidence: Evidence, plans: DataFrame) -> DataFrame:
    """Return one row per plan and message beyond the mark-delete position of the source region (`at`) that no client
    acknowledged, that was acknowledged to its producer before the plan, and that the target region counts as
    acknowledged and did not deliver."""
    delivered = F.exists("first_deliveries", lambda first: first["region"] == F.col("region"))
    open_ = open_copies(evidence.subscription_messages).where(F.col("home") == "")
    subscribed = ["subscription", *ORIGIN]
    in_target = (
        open_.where(~F.coalesce(delivered, F.lit(False)))
        .select(*subscribed, F.col("region").alias("target"), F.col("at").alias("there"))
        .join(_counted(evidence).hint("broadcast"), ["topic", "subscription", "target"])
        .where((F.col("there") >= F.col("first")) & (F.col("there") <= F.col("last")))
        .select(*subscribed, "target")
        .distinct()
    )
    return (
        open_.select(*subscribed, F.col("region").alias("source"), "at", "acked_ms")
        .join(plans.hint("broadcast"), ["topic", "subscription", "source"])
        .where((F.col("at") > F.col("mark")) & (F.col("acked_ms") <= F.col("at_ms")))
        .join(in_target, [*subscribed, "target"])
        .select("plan", *subscribed, "at", "mark", "reach")
        .distinct()
    )


def _counted(evidence: Evidence) -> DataFrame:
    """Return the ranges of entries that cursors of the target region (`target`) count as acknowledged at the end."""
    return evidence.claims.cursors.select(
        "topic", "subscription", F.col("region").alias("target"), "first", "last"
    )


def _in_ranges(frame: DataFrame, ranges: DataFrame) -> DataFrame:
    """Return the rows beyond mark-delete whose position `at` is in a range of their plan. The ranges of a plan are
    disjoint, so a row is found at most once."""
    beyond = frame.where((F.col("at") > F.col("mark")) & (F.col("at") <= F.col("reach")))
    return beyond.join(ranges, ["plan"]).where(
        (F.col("at") >= F.col("first")) & (F.col("at") <= F.col("last"))
    )


def _by_plan(frame: DataFrame) -> dict[int, int]:
    return {row["plan"]: row["n"] for row in frame.groupBy("plan").agg(F.count("*").alias("n")).collect()}


def _finished(evidence: Evidence, plans: DataFrame) -> DataFrame:
    """Return the plans whose target region counts everything as acknowledged at the end that it stored at the time of
    the plan."""
    place = ["topic", "subscription", "target"]
    contains = (F.col("first") <= F.col("ledger")) & (F.col("last") >= F.col("upto"))
    return _counted(evidence).join(plans, place).where(contains).select("plan").distinct()
