"""INV-53: once all published metadata events are delivered, every cluster's configuration store equals the fold of the
events in the logs of the event topic (docs/components/metadata-sync.md).

A store that claims to have applied an event and differs from the fold is wrong. A store without that claim is behind.
Being behind at the end of the history is normal for `UNDER_WAY_MS` after the event, and if a region is down, lost or
cut off; else the verdict is unknown. Regions store the same events: an event with different contents is wrong, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spark_jobs.checks.check import Circumstances
from spark_jobs.evidence.metadata_events import as_written
from spark_jobs.frames.metadata import (
    UNDER_WAY_MS,
    WITNESSES_MAX,
    MetadataComparison,
    MetadataDifference,
)
from spark_jobs.verdict import CheckResult, Verdict, Witness
from spark_jobs.wording import count

NAME, TITLE, INVARIANT = "metadata-converged", "clusters have the same metadata", "INV-53"


def metadata_converged(
    compared: MetadataComparison | None,
    circumstances: Circumstances,
    end_ms: float,
    clusters: Mapping[str, str],
) -> CheckResult | None:
    """Return the result of the check; None if there is nothing to check. `end_ms`: end of the history. `clusters`:
    region -> its cluster."""
    if compared is None:
        return None
    conflicts, wrong, behind = (
        [one for one in compared.differences if one.kind in kinds]
        for kinds in (("event differs",), ("differs",), ("not received", "not published"))
    )
    is_excused = bool(circumstances.down | circumstances.lost | circumstances.cut)
    overdue = [] if is_excused else [one for one in behind if end_ms - one.since_ms > UNDER_WAY_MS]
    verdict: Verdict = "valid"
    if wrong or conflicts:
        verdict = "unknown" if compared.damages or circumstances.damaged_regions else "invalid"
    elif overdue or compared.damages:
        verdict = "unknown"
    sentences = [
        *_sentences(compared, conflicts, wrong, overdue),
        *(f"{one}." for one in compared.damages[:WITNESSES_MAX]),
    ]
    shown = [*conflicts, *wrong, *overdue][:WITNESSES_MAX]
    witness = tuple(_as_witness(one, clusters) for one in shown)
    return CheckResult(NAME, TITLE, INVARIANT, verdict, " ".join(sentences), witness)


def _as_witness(one: MetadataDifference, clusters: Mapping[str, str]) -> Witness:
    """Return path and element, the region whose store differs, the winning event, and the events that explain the
    expected value."""
    where = {
        "cluster": one.cluster,
        "regions": sorted(region for region, cluster in clusters.items() if cluster == one.cluster),
    }
    events = [_event_text(event) for event in one.events]
    return {
        "kind": one.kind,
        **(where if one.cluster is not None else {}),
        "path": as_written("/".join(filter(None, (one.path, one.element)))),
        "stored": _parsed(one.stored),
        "expected": _parsed(one.expected),
        "event": events[0] if events else None,
        "events": events,
    }


def _event_text(event: Mapping[str, Any]) -> str:
    stamp = f"{event['time_ms']} {event['source']} #{event['sequence']}"
    return f"{stamp}: {event['name'] or 'existence'}, in {event['region']} at {event['position']}"


def _parsed(value: str | None) -> Any:
    return None if value is None else json.loads(value)


def _sentences(
    compared: MetadataComparison,
    conflicts: Sequence[MetadataDifference],
    wrong: Sequence[MetadataDifference],
    overdue: Sequence[MetadataDifference],
) -> Iterator[str]:
    if conflicts:
        stamp = _event_text(conflicts[0].events[0]).partition(":")[0]
        yield f"Regions store different contents of one event: {stamp}, of {as_written(conflicts[0].path)}."
    if wrong:
        one = wrong[0]
        path = as_written("/".join(filter(None, (one.path, one.element))))
        yield (
            f"{_documents(compared.documents['wrong'])} not the result of applying all events: {path} of"
            f" {one.cluster} is {_parsed(one.stored)!r}, not {_parsed(one.expected)!r}."
        )
    if overdue:
        yield (
            f"{_documents(compared.documents['overdue'])} older than the published events, or was not published, for"
            " no known reason."
        )
    if not wrong and not overdue and not conflicts:
        clusters = " and ".join(compared.clusters)
        yield (
            f"{count(compared.events, 'metadata event')}: the stores of {clusters} are the result of applying all of"
            " them."
        )
        if behind := compared.documents.get("behind", 0):
            yield f"Not yet applied at the end: {_documents(behind)} older than the published events."


def _documents(n: int) -> str:
    return f"{count(n, 'document')} {'is' if n == 1 else 'are'}"
