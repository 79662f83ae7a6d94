"""Build evidence from a few literal rows, and run one check on it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from emulator.run.history_events import HistoryEvent
from spark_jobs.checks import all_findings, collect_findings
from spark_jobs.checks.check import Check, Circumstances
from spark_jobs.engines.frames import DataFrame, small_frame
from spark_jobs.evidence.transaction_journals import CoordinatorEntry
from spark_jobs.frames.evidence import OUTAGE_SCHEMA, Evidence, gather
from spark_jobs.frames.messages import stored_messages
from spark_jobs.frames.quiescence import RunEnd
from spark_jobs.frames.stored_values import (
    CURSOR_SCHEMA,
    POSITION_SCHEMA,
    RETURNED_EPOCH_SCHEMA,
    SNAPSHOT_SCHEMA,
    UPDATE_SCHEMA,
    KeyEvidence,
    Ownership,
    PositionClaims,
    grants_of,
)
from spark_jobs.sources.coordinator_journals import JOURNAL_SCHEMA, journal_rows
from spark_jobs.sources.entry_columns import ROW_SCHEMA
from spark_jobs.sources.history_files import ROW_SCHEMA as EVENT_SCHEMA
from spark_jobs.sources.history_files import full_topic, row_of
from spark_jobs.sources.policies import NEVER_MS, Namespace
from spark_jobs.sources.region_log import TRIMMED_SCHEMA
from spark_jobs.sources.region_values import VALUE_SCHEMA, value_rows
from spark_jobs.verdict import CheckResult

TOPIC = "persistent://public/default/t"
NAMESPACES = {"public/default": Namespace(("a", "b"), deduplication=True)}

Row = tuple[object, ...]
KEY_AT = JOURNAL_SCHEMA.names.index("transaction_key")


def stored(
    region: str,
    entry: int,
    sequence_id: int,
    origin: str = "a",
    *,
    producer: str = "p",
    topic: str = TOPIC,
    source: str | None = None,
    replicate_to: Sequence[str] | None = None,
    digest: int = 0,
    attributes: int = 0,
    is_sound: bool = True,
    marker_type: int | None = None,
    batch_index: int = -1,
    transaction: str | None = None,
) -> Row:
    """Return a row of `region_log`. Default source position of a replicated message: the entry with its sequence id."""
    replicated = origin if origin != region else None
    if replicated and source is None:
        source = f"1:{sequence_id}"
    source_ledger, source_entry = map(int, source.split(":")) if source else (None, None)
    return (
        *(
            region,
            None,
            topic,
            1,
            entry,
            batch_index,
            producer,
            sequence_id,
            0,
            replicated,
            origin,
            marker_type,
        ),
        *(list(replicate_to) if replicate_to else None, source_ledger, source_entry, 1),
        *(digest, attributes, hash((digest, attributes)), is_sound, None, transaction, None),
    )


def event(at_ms: float, op: str, outcome: str, **fields: object) -> HistoryEvent:
    fields.setdefault("topic", TOPIC)
    return HistoryEvent(at_ms=float(at_ms), actor="test", op=op, outcome=outcome, **fields)  # type: ignore[arg-type]


def published(
    sequence_id: int,
    *outcomes: str,
    region: str = "a",
    at_ms: float = 10.0,
    topic: str = TOPIC,
    session: str = "one",
    digest: int = 0,
    replicate_to: list[str] | None = None,
    entry: int | None = None,
    key: str | None = None,
) -> list[HistoryEvent]:
    """Return a publish request at `at_ms`, and each outcome (default: ok), one millisecond after the other."""
    origin: dict[str, object] = {"origin_region": region, "producer": "p", "sequence_id": sequence_id}
    request = {
        "session": session,
        "payload_digest": f"{digest:016x}",
        "replicate_to": replicate_to,
        "key": key,
    }
    events = [event(at_ms, "publish", "asked", region=region, topic=topic, **request, **origin)]
    for number, outcome in enumerate(outcomes or ("ok",), 1):
        message_id = f"1:{sequence_id if entry is None else entry}:-1" if outcome == "ok" else None
        events.append(
            event(
                at_ms + number,
                "publish",
                outcome,
                region=region,
                topic=topic,
                message_id=message_id,
                session=session,
                **origin,
            )
        )
    return events


def subscribed(
    region: str,
    at_ms: float = 1.0,
    *,
    replicated: bool = True,
    initial: str = "latest",
    compacted: bool | None = None,
) -> HistoryEvent:
    how = {"replicated": replicated, "initial": initial, "compacted": compacted}
    return event(at_ms, "subscribe", "ok", region=region, subscription="s", **how)


def acknowledged(region: str, entry: int, at_ms: float = 60.0, *, how: str = "individual") -> HistoryEvent:
    place = {"region": region, "subscription": "s", "message_id": f"1:{entry}:-1"}
    return event(at_ms, "acknowledge", "asked", how=how, **place)


def received(
    sequence_id: int,
    region: str,
    at_ms: float = 50.0,
    entry: int | None = None,
    *,
    named: bool = True,
    batch_index: int = -1,
) -> HistoryEvent:
    origin = {"origin_region": "a", "producer": "p", "sequence_id": sequence_id} if named else {}
    return event(
        at_ms,
        "receive",
        "ok",
        region=region,
        subscription="s",
        **origin,
        message_id=f"1:{sequence_id if entry is None else entry}:{batch_index}",
    )


def result_of(
    check: Check,
    rows: Iterable[Row] = (),
    events: Iterable[HistoryEvent | list[HistoryEvent]] = (),
    *,
    circumstances: Circumstances | None = None,
    **evidence: Any,
) -> CheckResult:
    """Return the result of `check`, computed by the bound engine. `evidence`: see `evidence_from`."""
    known = circumstances or Circumstances(NAMESPACES)
    frames = evidence_from(rows, events, namespaces=known.namespaces, **evidence)
    found = collect_findings(all_findings(frames, [check]))
    return check.conclude(found.get(check.name, []), known)


def expect(verdict: str, check: Check, *evidence: Any, said: str = "", **more: Any) -> CheckResult:
    """Return the result of `check`; its verdict and a text of its sentence are asserted. See `result_of`."""
    result = result_of(check, *evidence, **more)
    assert result.verdict == verdict, result.sentence
    assert said in result.sentence
    return result


def evidence_from(
    rows: Iterable[Row],
    events: Iterable[HistoryEvent | list[HistoryEvent]],
    *,
    trimmed: Iterable[tuple[str, str, dict[int, int]]] = (),
    outages: Iterable[tuple[str, float, float | None]] = (),
    snapshots: Iterable[Row] = (),
    updates: Iterable[Row] = (),
    cursors: Iterable[Row] = (),
    positions: Iterable[Row] = (),
    grants: Iterable[tuple[str, tuple[str, bytes]]] = (),
    epochs: Iterable[tuple[str, str, str, int]] = (),
    coordinators: Iterable[CoordinatorEntry] = (),
    namespaces: Mapping[str, Namespace] = NAMESPACES,
    end: RunEnd | None = None,
) -> Evidence:
    """Return rows, events and stored values as evidence of the bound engine. `events` may contain lists of events."""
    lines = [one for item in events for one in (item if isinstance(item, list) else [item])]
    rows = list(rows)
    published_topics = {one.topic for one in lines if one.topic and one.op == "publish"}
    transactional = any(one.transaction for one in lines) or any(row[-2] for row in rows)
    return gather(
        stored_messages(
            small_frame(rows, ROW_SCHEMA),
            {str(row[2]) for row in rows},
            published_topics,
            transactional=transactional,
        ),
        history_frame(lines),
        small_frame(trimmed, TRIMMED_SCHEMA),
        small_frame(outages, OUTAGE_SCHEMA),
        PositionClaims(
            small_frame(snapshots, SNAPSHOT_SCHEMA),
            small_frame(updates, UPDATE_SCHEMA),
            small_frame(cursors, CURSOR_SCHEMA),
            small_frame(positions, POSITION_SCHEMA),
        ),
        _ownership(list(grants), list(epochs), published_topics),
        _keys(coordinators, lines),
        namespaces,
        end or RunEnd((), NEVER_MS),
        transactional=transactional,
        has_unnamed=any(one.op == "receive" and one.producer is None for one in lines),
    )


def _ownership(
    grants: Sequence[tuple[str, tuple[str, bytes]]],
    epochs: Sequence[tuple[str, str, str, int]],
    topics: Collection[str],
) -> Ownership:
    regions = sorted({region for region, _ in grants})
    values = {region: [value for other, value in grants if other == region] for region in regions}
    rows = [row for region in regions for row in value_rows(region, values[region], topics)]
    return Ownership(
        grants_of(small_frame(rows, VALUE_SCHEMA)),
        small_frame(epochs, RETURNED_EPOCH_SCHEMA),
        is_known=bool(rows or epochs),
    )


def _keys(entries: Iterable[CoordinatorEntry], lines: Iterable[HistoryEvent]) -> KeyEvidence:
    rows = list(journal_rows(entries))
    is_known = any(row[KEY_AT] for row in rows) or any(one.transaction_key for one in lines)
    return KeyEvidence(small_frame(rows, JOURNAL_SCHEMA), is_known)


def history_frame(events: Iterable[HistoryEvent]) -> DataFrame:
    """Return each event in the history of its actor."""
    lines = [json.loads(one.to_line()) for one in events]
    rows = [
        row_of(line, full_topic(line["topic"]) if "topic" in line else None, line["actor"]) for line in lines
    ]
    return small_frame(rows, EVENT_SCHEMA)
