"""The window: messages of a growing run that are not complete yet, as frames.

A message is *complete* if its client received a receipt (or no request of it is known), every expected region stores
it as often as its origin region, and every replicated subscription that must receive it has acknowledged it. A step
removes the rows of complete messages, except the newest ones of each producer and each origin region: later messages
are compared with them. So the window grows with what is not replicated and not consumed, not with the length of the
run. If more than `OPEN_MAX` messages are incomplete, the older half is *left* to the verdict at the end of the run. So
are messages whose client received no response within `UNANSWERED_S_MAX`.

A receipt is used one step after it was read: by then the log of its region was read again, and contains the message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spark_jobs.engines.frames import Column, DataFrame, F, cached, fields_of, release, schema, small_frame
from spark_jobs.frames.history import operations
from spark_jobs.frames.messages import ORIGIN, join_messages, publishes, stored_messages
from spark_jobs.frames.transactions import with_ends
from spark_jobs.live.subscriptions import OpenAcknowledgements
from spark_jobs.sources.entry_columns import ROW_SCHEMA as ENTRY_SCHEMA
from spark_jobs.sources.history_files import ROW_SCHEMA as LINE_SCHEMA
from spark_jobs.sources.policies import Namespace

OPEN_MAX = 200_000
"""Maximum number of messages in the window."""
UNANSWERED_S_MAX = 600.0
"""Time by the history after which a request without a response is left to the end, in seconds."""
_ACCURACY = 1_000
PRODUCER = ("topic", "origin_region", "producer")
"""Columns that identify a producer."""
Producer = tuple[str, str, str]
"""Topic, origin region and name."""

_EVENT = (
    *("op", "outcome", "at_ms", "region", "topic", "producer", "session", "sequence_id", "ledger_id"),
    *("entry_id", "batch_index", "payload_digest", "attributes_digest", "replicate_to", "transaction"),
)
"""Columns of the history that describe a publish."""
_PRODUCER_SCHEMA = schema("topic string, origin_region string, producer string")
_HIGHEST_SCHEMA = schema("topic string, origin_region string, producer string, highest bigint")


@dataclass(frozen=True, slots=True)
class JoinedWindow:
    """The frames of one step."""

    stored: DataFrame
    """Copies of the messages in the window."""
    messages: DataFrame
    """Messages in the window. `complete`: see the module. `dropped`: the step removes it."""
    unacknowledged: DataFrame
    """Messages that replicated subscriptions must still acknowledge (`subscriptions.py`)."""
    again: DataFrame
    """New copies of messages that were complete before."""
    late: DataFrame | None
    """New copies of messages of producers with left messages; None if there are no such producers."""
    scratch: tuple[DataFrame, ...]
    """Cached frames that only this step uses."""


@dataclass(frozen=True, slots=True)
class WindowSize:
    """Numbers of messages after a step."""

    open: int
    """Incomplete messages in the window."""
    left: int
    """Messages that this step left to the end."""
    is_left: Column
    """Condition of these messages."""


class MessageWindow:
    """The frames that are kept between steps."""

    def __init__(self, open_max: int = OPEN_MAX) -> None:
        self._open_max = open_max
        self._is_left: Column = F.lit(False)
        """Condition of the messages that the step leaves to the end."""
        self._left_producers: set[Producer] = set()
        """Producers of all left messages: a copy that arrives later is not checked."""
        nothing = small_frame([], LINE_SCHEMA).select(*_EVENT)
        self._events = cached(nothing)
        self._receipts = cached(nothing)
        """Outcomes that the previous step read."""
        self._stored = cached(_empty_stored())
        self._acknowledgements = OpenAcknowledgements()
        self._highest = cached(small_frame([], _HIGHEST_SCHEMA))
        """Highest sequence id that was dropped, by producer."""

    def add(
        self,
        entries: DataFrame,
        lines: DataFrame,
        log_topics: Collection[str],
        history_topics: Collection[str],
        namespaces: Mapping[str, Namespace],
        unchecked: Collection[Producer],
        regions: Collection[str],
    ) -> JoinedWindow:
        """Add new rows. `unchecked`: producers whose messages are left out; `regions`: those whose logs are used."""
        left_out = small_frame(sorted(unchecked), _PRODUCER_SCHEMA) if unchecked else None
        publish = operations(lines, "publish").select(*_EVENT)
        is_asked = F.col("outcome") == "asked"
        events = self._events.union(publish.where(is_asked))
        events = events.union(_of_known(self._receipts, events))
        events = cached(_without(events.withColumn("origin_region", F.col("region")), left_out, _EVENT))
        receipts = cached(publish.where(~is_asked))
        stored = stored_messages(entries, log_topics, history_topics, transactional=False)
        stored = stored.where(F.col("region").isin(sorted(regions)))
        stored = cached(self._with_known(_without(stored, left_out, stored.columns), events))
        is_again = ~F.col("is_known") & F.coalesce(F.col("sequence_id") <= F.col("highest"), F.lit(False))
        again = stored.where(is_again).drop("is_known", "highest")
        left = small_frame(sorted(self._left_producers), _PRODUCER_SCHEMA) if self._left_producers else None
        late, again = None if left is None else again, _without(again, left, again.columns)
        fresh = stored.where(~is_again).drop("is_known", "highest")
        before = self._stored
        kept = _without(before, left_out, before.columns).union(fresh.select(*before.columns))
        self._stored = cached(kept)
        joined = join_messages(publishes(events), self._stored, namespaces, transactional=False)
        joined = with_ends(joined, events, transactional=False).withColumn("complete", _is_complete())
        messages = cached(joined)  # its plan is long, and used several times
        self._acknowledgements.add(lines)
        unacknowledged = cached(self._acknowledgements.open_messages(messages, self._stored))
        release(self._events, self._receipts, before)
        self._events, self._receipts = events, receipts
        return JoinedWindow(
            self._stored,
            cached(_with_dropped(_with_consumed(messages, unacknowledged))),
            unacknowledged,
            again,
            late,
            tuple(one for one in (stored, messages, unacknowledged, left_out, left) if one is not None),
        )

    def leave_old(self, joined: JoinedWindow, now_ms: float) -> WindowSize:
        """Choose the messages that are left to the end. `now_ms`: time of the newest line of the history."""
        is_open, asked_ms = ~F.col("complete"), F.coalesce("asked_ms", F.lit(0.0))
        is_unanswered = F.col("asked_ms").isNotNull() & F.col("acked_ms").isNull()
        is_left = is_open & is_unanswered & (asked_ms < now_ms - UNANSWERED_S_MAX * 1000)
        open_messages, unanswered, half_ms = _row(
            joined.messages.agg(
                F.count_if(is_open).alias("open"),
                F.count_if(is_left).alias("unanswered"),
                F.percentile_approx(F.when(is_open, asked_ms), 0.5, _ACCURACY).alias("half_ms"),
            )
        )
        self._is_left = F.lit(False)
        if open_messages > self._open_max:
            is_left = is_left | (is_open & ~is_unanswered & (asked_ms <= half_ms))
        elif not unanswered:
            return WindowSize(open_messages, 0, self._is_left)
        left, producers = _row(
            joined.messages.where(is_left).agg(
                F.count("*").alias("left"), F.collect_set(F.struct(*PRODUCER)).alias("producers")
            )
        )
        self._left_producers |= {tuple(one) for one in producers}
        if left:
            self._is_left = is_left
        return WindowSize(open_messages - left, left, self._is_left)

    def drop(self, joined: JoinedWindow) -> None:
        """Remove the messages that are `dropped` or left, and the frames of the step."""
        dropped = joined.messages.where(F.col("dropped") | self._is_left)
        gone = cached(dropped.select(*ORIGIN, F.lit(True).alias("is_gone")))
        highest = (
            self._highest.union(dropped.groupBy(*PRODUCER).agg(F.max("sequence_id").alias("highest")))
            .groupBy(*PRODUCER)
            .agg(F.max("highest").alias("highest"))
        )
        events, stored, highest = (
            cached(
                _not_gone(self._events.withColumn("origin_region", F.col("region")), gone).select(*_EVENT)
            ),
            cached(_not_gone(self._stored, gone).select(*self._stored.columns)),
            cached(highest),
        )
        release(self._events, self._stored, self._highest, joined.messages, gone, *joined.scratch)
        self._events, self._stored, self._highest = events, stored, highest
        self._acknowledgements.drop(stored)

    def _with_known(self, stored: DataFrame, events: DataFrame) -> DataFrame:
        """Add `is_known`, whether the window contains the message, and `highest` of the producer."""
        asked = events.withColumn("origin_region", F.col("region")).select(*ORIGIN)
        known = asked.union(self._stored.select(*ORIGIN)).distinct().withColumn("known", F.lit(True))
        return (
            stored.join(known, list(ORIGIN), "left")
            .withColumn("is_known", F.coalesce("known", F.lit(False)))
            .drop("known")
            .join(self._highest.hint("broadcast"), list(PRODUCER), "left")
        )


def _row(frame: DataFrame) -> tuple[Any, ...]:
    """Return the values of a frame with one row."""
    return tuple(frame.collect()[0])


def _empty_stored() -> DataFrame:
    return stored_messages(small_frame([], ENTRY_SCHEMA), (), (), transactional=False)


def _without(frame: DataFrame, left_out: DataFrame | None, columns: Iterable[str]) -> DataFrame:
    if left_out is not None:
        marked = left_out.withColumn("is_left_out", F.lit(True)).hint("broadcast")
        frame = frame.join(marked, list(PRODUCER), "left").where(F.col("is_left_out").isNull())
    return frame.select(*columns)


def _not_gone(frame: DataFrame, gone: DataFrame) -> DataFrame:
    return frame.join(gone, list(ORIGIN), "left").where(F.col("is_gone").isNull())


def _of_known(receipts: DataFrame, events: DataFrame) -> DataFrame:
    """Return the receipts of messages whose request is in the window: others belong to messages that were left."""
    message = ["topic", "region", "producer", "sequence_id"]
    known = events.select(*message).distinct()
    return receipts.join(known, message).select(*_EVENT)


def _is_complete() -> Column:
    regions = F.size(F.array_distinct(fields_of("copies", "region")))
    own = F.size(F.filter("copies", lambda copy: copy["region"] == F.col("origin_region")))
    times = F.when(own > 0, own).otherwise(F.lit(1))
    is_answered = F.col("acked_ms").isNotNull() | F.col("asked_ms").isNull()
    is_everywhere = F.size(F.array_except("expected", fields_of("copies", "region"))) == 0
    return is_answered & is_everywhere & (F.size("copies") == regions * times)


def _with_consumed(messages: DataFrame, unacknowledged: DataFrame) -> DataFrame:
    """Change `complete` to false for messages that a subscription must still acknowledge."""
    waiting = unacknowledged.select(*ORIGIN).distinct().withColumn("is_waiting", F.lit(True))
    is_consumed = F.col("is_waiting").isNull()
    return (
        messages.join(waiting, list(ORIGIN), "left")
        .withColumn("complete", F.col("complete") & is_consumed)
        .drop("is_waiting")
    )


def _with_dropped(messages: DataFrame) -> DataFrame:
    """Add `dropped`: complete, and neither the newest of its producer nor that of its origin region."""
    complete = messages.where(F.col("complete"))
    of_producer = complete.groupBy(*PRODUCER).agg(F.max("sequence_id").alias("newest_id"))
    by_region = ["topic", "origin_region", "expected_in"]
    messages = messages.withColumn("expected_in", F.array_join(F.array_sort("expected"), " "))
    of_region = (
        messages.where(F.col("complete"))
        .groupBy(*by_region)
        .agg(F.max(F.struct("position", "producer", "sequence_id")).alias("newest"))
    )
    is_newest = (F.col("sequence_id") == F.col("newest_id")) | (
        (F.col("producer") == F.col("newest.producer"))
        & (F.col("sequence_id") == F.col("newest.sequence_id"))
    )
    return (
        messages.join(of_producer, list(PRODUCER), "left")
        .join(of_region, by_region, "left")
        .withColumn("dropped", F.col("complete") & ~is_newest)
        .drop("newest_id", "newest", "expected_in")
    )
