"""The journeys of messages that witnesses or the user name: published, acknowledged, stored, delivered, acknowledged.

Only those few are included, so a report of a million messages stays small. A log does not record when an entry was
stored; a journey has a time before and a time after it, where the history has them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_jobs.engines.frames import DataFrame, F, schema, small_frame
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.history import operations
from spark_jobs.frames.messages import ORIGIN, position_text
from spark_jobs.verdict import Witness

JOURNEYS_MAX = 100
EVENTS_MAX = 60
"""Maximum number of operations and responses of one message: the first ones; later ones are only counted."""

Origin = tuple[str, str, str, int]

_ORIGIN = "topic string, origin_region string, producer string, sequence_id bigint"
_ORIGIN_SCHEMA = schema(_ORIGIN)
_POSITION_SCHEMA = schema(f"{_ORIGIN}, region string, ledger_id bigint, entry_id bigint, batch_index bigint")


@dataclass(frozen=True, slots=True)
class JourneyEvent:
    """An operation of a client on a message, or the response to it."""

    at_ms: float
    op: str
    """Operation: publish, receive or acknowledge."""
    outcome: str
    region: str
    subscription: str | None = None
    position: str | None = None
    how: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StoredCopy:
    """A stored copy of a message, and the bounds of the time at which it was stored."""

    region: str
    position: str
    after_ms: float | None
    """Time of the publish request: the copy was stored later. None without a request in the history."""
    by_ms: float | None
    """Time of the region's first receipt or delivery of the message: the copy was stored earlier. None if unknown."""


@dataclass(frozen=True, slots=True)
class Journey:
    """The copies of one message, and the operations on it."""

    topic: str
    origin_region: str
    producer: str
    sequence_id: int
    stored: tuple[StoredCopy, ...]
    absent: tuple[str, ...]
    """Regions that must store the message, and do not."""
    stops: tuple[JourneyEvent, ...]
    """The first EVENTS_MAX operations and responses, sorted by time."""
    stops_left_out: int = 0
    """Number of later operations and responses."""

    @property
    def origin(self) -> Origin:
        return self.topic, self.origin_region, self.producer, self.sequence_id

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


_PLACE = ("ledger_id", "entry_id", "batch_index")


def origin_of(witness: Witness) -> Origin | None:
    """Return the origin of the message that a witness names; None if it names none."""
    values = tuple(witness.get(name) for name in ORIGIN)
    return None if None in values else values  # type: ignore[return-value]


def collect_journeys(evidence: Evidence, witnesses: Iterable[Witness]) -> tuple[Journey, ...]:
    """Return the journeys of the first JOURNEYS_MAX messages that witnesses name, in their order. Runs no query if they
    name none."""
    return _journeys(evidence, list(dict.fromkeys(filter(None, map(origin_of, witnesses))))[:JOURNEYS_MAX])


def follow_messages(evidence: Evidence, named: Iterable[tuple[str, int]]) -> tuple[Journey, ...]:
    """Return the journeys of up to JOURNEYS_MAX messages published or stored under these producers and sequence ids."""
    found: set[Origin] = set()
    for producer, number in named:
        of_them = (F.col("producer") == producer) & (F.col("sequence_id") == number)
        rows = evidence.messages.where(of_them).select(*ORIGIN).limit(JOURNEYS_MAX).collect()
        found |= {_key(row.asDict()) for row in rows}
    return _journeys(evidence, sorted(found)[:JOURNEYS_MAX])


def _journeys(evidence: Evidence, origins: Sequence[Origin]) -> tuple[Journey, ...]:
    if not origins:
        return ()
    wanted = small_frame(origins, _ORIGIN_SCHEMA).hint("broadcast")
    found = evidence.messages.join(wanted, list(ORIGIN)).collect()
    messages = {_key(message): message for message in (row.asDict() for row in found)}
    positions = [
        (*origin, copy["region"], copy["ledger_id"], copy["entry_id"], copy["batch_index"])
        for origin, row in messages.items()
        for copy in row["copies"]
    ]
    at_positions = small_frame(positions, _POSITION_SCHEMA).hint("broadcast")
    stops: dict[Origin, list[JourneyEvent]] = {}
    for row in (row.asDict() for row in _events_of(evidence.events, wanted, at_positions).collect()):
        stops.setdefault(_key(row), []).append(
            JourneyEvent(*(row[field.name] for field in dataclasses.fields(JourneyEvent)))
        )
    return tuple(_journey(origin, messages.get(origin), stops.get(origin, [])) for origin in origins)


def _key(row: Mapping[str, Any]) -> Origin:
    return row["topic"], row["origin_region"], row["producer"], row["sequence_id"]


def _events_of(events: DataFrame, wanted: DataFrame, at_positions: DataFrame) -> DataFrame:
    """Return the operations on these messages and the responses, matched by origin or by position."""
    publishes = operations(events, "publish").withColumn("origin_region", F.col("region"))
    named_by_origin = operations(events, "receive").where(F.col("producer").isNotNull())
    at = ["topic", "region", "ledger_id", "entry_id", "batch_index"]
    named_by_position = events.where(
        ((F.col("op") == "receive") & F.col("producer").isNull())
        | ((F.col("op") == "acknowledge") & (F.coalesce("how", F.lit("")) != "cumulative"))
    ).drop("origin_region", "producer", "sequence_id")
    return (
        _as_journey_events(publishes.join(wanted, list(ORIGIN)))
        .union(_as_journey_events(named_by_origin.join(wanted, list(ORIGIN))))
        .union(_as_journey_events(named_by_position.join(at_positions, at)))
        .union(_as_journey_events(_first_cumulative(events, at_positions)))
    )


def _as_journey_events(frame: DataFrame) -> DataFrame:
    place = F.struct("ledger_id", "entry_id", "batch_index")
    position = F.when(F.col("ledger_id").isNotNull(), position_text(place)).alias("position")
    return frame.select(*ORIGIN, "at_ms", "op", "outcome", "region", "subscription", position, "how", "error")


def _first_cumulative(events: DataFrame, at_positions: DataFrame) -> DataFrame:
    """Return one row for each subscription, outcome and covered position: time and entry of the earliest cumulative
    acknowledgement that covers it."""
    cumulative = (
        operations(events, "acknowledge")
        .where(F.col("how") == "cumulative")
        .select(
            "topic",
            "region",
            "ledger_id",
            "subscription",
            "op",
            "outcome",
            "at_ms",
            F.col("entry_id").alias("upto"),
        )
    )
    return (
        cumulative.join(at_positions, ["topic", "region", "ledger_id"])
        .where(F.col("upto") >= F.col("entry_id"))
        .groupBy(*ORIGIN, "op", "outcome", "region", "subscription", "ledger_id")
        .agg(F.min(F.struct("at_ms", "upto")).alias("first"))
        .withColumn("at_ms", F.col("first.at_ms"))
        .withColumn("entry_id", F.col("first.upto"))
        .withColumn("batch_index", F.lit(None).cast("int"))
        .withColumn("how", F.lit("cumulative"))
        .withColumn("error", F.lit(None).cast("string"))
    )


def _order(event: JourneyEvent) -> tuple[Any, ...]:
    """Return a key by which no two different events are equal, so that the order does not depend on the engine."""
    fields = (value if isinstance(value, str) else "" for value in dataclasses.astuple(event))
    return event.at_ms, event.outcome != "asked", event.region, event.subscription or "", *fields


def _journey(origin: Origin, message: Mapping[str, Any] | None, stops: list[JourneyEvent]) -> Journey:
    stops.sort(key=_order)
    message = message or {"copies": [], "asked_ms": None, "acked_ms": None, "expected": None}
    own, stored = origin[1], []
    for copy in sorted(
        message["copies"],
        key=lambda copy: (copy["region"] != own, copy["region"], *(copy[name] for name in _PLACE)),
    ):
        region = copy["region"]
        seen = [event.at_ms for event in stops if event.op == "receive" and event.region == region]
        if region == own and message["acked_ms"] is not None:
            seen.append(message["acked_ms"])
        position = f"{copy['ledger_id']}:{copy['entry_id']}:{copy['batch_index']}"
        stored.append(StoredCopy(region, position, message["asked_ms"], min(seen, default=None)))
    stored_in = {copy.region for copy in stored}
    absent = tuple(region for region in message["expected"] or [] if region not in stored_in)
    left_out = max(len(stops) - EVENTS_MAX, 0)
    return Journey(*origin, tuple(stored), absent, tuple(stops[:EVENTS_MAX]), left_out)
