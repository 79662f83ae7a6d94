"""Read the log of a region whose backend is Kafka (docs/KAFKA.md, "What is in Kafka").

The reader joins no consumer group and writes nothing; the region may be running, stopped or gone. It reads the records
that are durable when `plan` or `read_topic` is called. `plan` gives each task about the same number of records, of one
topic or of many.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from emulator.model.stored_keys import CursorKey, CursorPartKey, GrantKey, parse_key
from emulator.storage.group import encode_group
from spark_jobs.sources.contract import Group, LogDamaged, LogHead, RowRange, StoredValue
from spark_jobs.sources.run_folder import RegionLog

if TYPE_CHECKING:
    from kafka import KafkaConsumer

SLICE_RECORDS = 100_000
"""Approximate number of records that one task reads."""
GROUP_RECORDS = 1000
NO_RECORD_SECONDS_MAX = 20.0
"""Time without a record after which a Kafka counts as unavailable."""

_FETCH_BYTES = 8 * 1024 * 1024
_FETCH_RECORDS = 10_000
_TIMEOUT_MS = 30_000
"""Time to connect. On a busy machine a Kafka that runs may need more than 10 s to respond."""
_SECURITY = re.compile(r"(security_protocol|ssl_|sasl_)")


class _Topic(NamedTuple):
    """A Pulsar topic, and the Kafka topic that stores it."""

    name: str
    ledger_id: int
    first_entry_id: int
    kafka_topic: str


class _RecordRange(NamedTuple):
    """The records of a topic with start <= offset < stop."""

    topic: _Topic
    start: int
    stop: int


def plan(log: RegionLog) -> list[RowRange]:
    """Divide all records that are durable now into slices of about equal size; `part`: the record ranges as JSON."""
    with _opened(log) as consumer:
        ranges = [
            range_
            for topic in _topics(log, consumer)
            if (range_ := _stored_range(consumer, topic)) is not None
        ]
    slices: list[list[_RecordRange]] = [[]]
    room = SLICE_RECORDS
    for range_ in ranges:
        start = range_.start
        while start < range_.stop:
            stop = min(start + room, range_.stop)
            slices[-1].append(_RecordRange(range_.topic, start, stop))
            room -= stop - start
            start = stop
            if not room:
                slices.append([])
                room = SLICE_RECORDS
    return [RowRange(0, sum(p.stop - p.start for p in some), json.dumps(some)) for some in slices if some]


def read_groups(log: RegionLog, rows: RowRange) -> Iterator[Group]:
    """Yield groups of entries with consecutive ids, in the group codec."""
    with _opened(log) as consumer:
        for topic, start, stop in json.loads(rows.part):
            yield from _read_groups(consumer, _RecordRange(_Topic(*topic), start, stop))


def read_topic(log: RegionLog, topic: str) -> Iterator[Group]:
    """Yield all entries of one topic, in the group codec."""
    with _opened(log) as consumer:
        for one in _topics(log, consumer):
            range_ = _stored_range(consumer, one) if one.name == topic else None
            if range_ is not None:
                yield from _read_groups(consumer, range_)


def next_entries(log: RegionLog) -> dict[str, int]:
    """Return the offset after the newest durable record of each topic."""
    from kafka import TopicPartition

    with _opened(log) as consumer:
        partitions = {topic.name: TopicPartition(topic.kafka_topic, 0) for topic in _topics(log, consumer)}
        ends = consumer.end_offsets([*partitions.values()])
        return {name: ends[partition] for name, partition in partitions.items()}


def read_between(log: RegionLog, ranges: Mapping[str, tuple[int, int]]) -> Iterator[Group]:
    """Yield the entries in these ranges of offsets, in the group codec, without trimmed ones."""
    with _opened(log) as consumer:
        for topic in _topics(log, consumer):
            start, stop = ranges.get(topic.name, (0, 0))
            stored = _stored_range(consumer, topic) if start < stop else None
            if stored is not None and max(start, stored.start) < stop:
                yield from _read_groups(consumer, _RecordRange(topic, max(start, stored.start), stop))


def read_heads(log: RegionLog) -> list[LogHead]:
    """Return the head of each topic's log."""
    with _opened(log) as consumer:
        return [LogHead(*topic[:3]) for topic in _topics(log, consumer)]


def read_ends(log: RegionLog) -> dict[str, int]:
    """Return the highest entry id of each topic, which may be that of a fence after the newest entry."""
    from kafka import TopicPartition

    with _opened(log) as consumer:
        partitions = {topic.name: TopicPartition(topic.kafka_topic, 0) for topic in _topics(log, consumer)}
        ends = consumer.end_offsets([*partitions.values()])
        return {name: ends[partition] - 1 for name, partition in partitions.items()}


def read_values(log: RegionLog) -> list[tuple[str, StoredValue]]:
    """Return stored cursors and grants, by key."""
    with _opened(log) as consumer:
        values = _of_kind("value", _key_values(log, consumer))
    return [
        (key, value)
        for key, value in sorted(values.items())
        if isinstance(parse_key(key), CursorKey | CursorPartKey | GrantKey)
    ]


@contextlib.contextmanager
def _opened(log: RegionLog) -> Iterator[KafkaConsumer]:
    """Open a consumer. Raises LogDamaged for every error of Kafka, also while it is being read."""
    import logging

    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    place = f"the Kafka of {log.region} at {log.bootstrap_servers or 'no address'}"
    try:
        consumer = KafkaConsumer(
            bootstrap_servers=log.bootstrap_servers.split(","),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=_FETCH_BYTES,
            fetch_max_bytes=_FETCH_BYTES,
            max_poll_records=_FETCH_RECORDS,
            bootstrap_timeout_ms=_TIMEOUT_MS,
            metrics_enabled=False,
            **{key: value for key, value in log.options.items() if _SECURITY.match(key)},
        )
        try:
            yield consumer
        finally:
            consumer.close()
    except (KafkaError, OSError, ValueError, TypeError, AssertionError) as problem:
        raise LogDamaged(f"{place} cannot be read: {str(problem) or type(problem).__name__}") from problem


def _topics(log: RegionLog, consumer: KafkaConsumer) -> list[_Topic]:
    """Return the region's logs according to its key topic, sorted by ledger id."""
    states = _of_kind("log", _key_values(log, consumer))
    found = [(name, json.loads(value)) for name, value in states.items()]
    topics = [_Topic(name, s["ledger_id"], s["first_entry_id"], s["topic"]) for name, s in found]
    return sorted(topics, key=lambda topic: topic.ledger_id)


def _key_values(log: RegionLog, consumer: KafkaConsumer) -> dict[str, bytes | None]:
    """Return the newest value of each key in the region's key topic; None for a deleted key."""
    prefix = f"{log.options.get('topic_prefix', 'geoemu')}.{_encoded(log.region)}"
    keys = _Topic("", 0, 0, f"{prefix}.keys")
    if keys.kafka_topic not in consumer.topics():
        raise LogDamaged(f"the Kafka of {log.region} has no topic {keys.kafka_topic}")
    whole = _stored_range(consumer, keys)
    records = _records(consumer, whole) if whole is not None else ()
    return {(record.key or b"").decode(): record.value for record in records}


def _of_kind(kind: str, values: Mapping[str, bytes | None]) -> dict[str, bytes]:
    """Return the values of one kind that are not deleted, by the rest of their keys."""
    split = ((key.partition("/"), value) for key, value in values.items())
    return {name: value for (begins, _, name), value in split if begins == kind and value is not None}


def _encoded(region: str) -> str:
    """Encode a region's name as the region's store does."""
    return re.sub(r"[^A-Za-z0-9-]", lambda odd: "".join(f"_{byte:02x}" for byte in odd[0].encode()), region)


def _stored_range(consumer: KafkaConsumer, topic: _Topic) -> _RecordRange | None:
    """Return the durable records of a topic that were not trimmed; None if there are none."""
    from kafka import TopicPartition

    partition = TopicPartition(topic.kafka_topic, 0)
    first = consumer.beginning_offsets([partition])[partition]
    end = consumer.end_offsets([partition])[partition]
    start = max(first, topic.first_entry_id)
    return _RecordRange(topic, start, end) if start < end else None


def _read_groups(consumer: KafkaConsumer, range_: _RecordRange) -> Iterator[Group]:
    name, ledger_id, trimmed_below, _ = range_.topic
    entries: list[bytes] = []
    first = range_.start
    for record in _records(consumer, range_):
        is_entry = record.key is None  # else a fence, or another internal record
        if entries and (
            not is_entry or record.offset != first + len(entries) or len(entries) >= GROUP_RECORDS
        ):
            yield Group(name, ledger_id, first, trimmed_below, bytes(encode_group(entries)))
            entries = []
        if is_entry:
            first = first if entries else record.offset
            entries.append(record.value or b"")
    if entries:
        yield Group(name, ledger_id, first, trimmed_below, bytes(encode_group(entries)))


def _records(consumer: KafkaConsumer, range_: _RecordRange) -> Iterator[Any]:
    """Yield the records of a range, in order."""
    from kafka import TopicPartition
    from kafka.errors import OffsetOutOfRangeError

    partition = TopicPartition(range_.topic.kafka_topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, range_.start)
    read_at = time.monotonic()
    position = range_.start
    while position < range_.stop:
        try:
            records = consumer.poll(1000).get(partition, ())
        except OffsetOutOfRangeError:  # trimmed since the read was planned
            first = consumer.beginning_offsets([partition])[partition]
            consumer.seek(partition, max(first, position))
            records = ()
        for record in records:
            if record.offset < range_.stop:
                yield record
        before, position = position, consumer.position(partition)
        if position != before:
            read_at = time.monotonic()
        elif time.monotonic() - read_at > NO_RECORD_SECONDS_MAX:
            raise TimeoutError(
                f"{range_.topic.kafka_topic} returned no record for {NO_RECORD_SECONDS_MAX:g} s"
            )
