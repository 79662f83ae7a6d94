"""INV-53: once all published metadata events are delivered, every cluster's configuration store equals the fold of the
events in the logs of the event topic (docs/components/metadata-sync.md).

A store that claims to have applied an event and differs from the fold is wrong. A store without that claim is behind.
Being behind at the end of the history is normal for `UNDER_WAY_MS` after the event, and if a region is down, lost or
cut off; else the verdict is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spark_jobs.checks.check import Circumstances
from spark_jobs.evidence.metadata_fold import (
    EXISTENCE,
    Document,
    EventStamp,
    Folded,
    as_written,
    document_in,
    fold,
)
from spark_jobs.sources.metadata import (
    ClusterStore,
    ClusterSync,
    StoreUnreadable,
    read_event_topic,
    read_settings,
    read_store,
    store_path,
)
from spark_jobs.sources.run_folder import RunFolder
from spark_jobs.verdict import CheckResult, Verdict, Witness
from spark_jobs.wording import count

NAME, TITLE, INVARIANT = "metadata-converged", "clusters have the same metadata", "INV-53"
UNDER_WAY_MS = 10_000.0
"""Time for which a store may lack a published event, or the event topic a stored change."""
WITNESSES_MAX = 5

Why = Literal["differs", "not received", "not published"]
"""Reason of a difference. `differs`: the store has applied the events, but has other values."""


@dataclass(frozen=True, slots=True)
class MetadataDifference:
    cluster: str
    path: str
    element: str
    why: Why
    since_ms: float
    stored: Any
    expected: Any
    events: tuple[EventStamp, ...]
    """Events that determine the expected value."""

    def as_witness(self) -> Witness:
        full = as_written("/".join(filter(None, (self.path, self.element))))
        latest = max(self.events, default=None)
        return {
            "kind": self.why,
            "cluster": self.cluster,
            "path": full,
            "stored": self.stored,
            "expected": self.expected,
            "event": None if latest is None else f"{latest.time_ms} {latest.source} #{latest.sequence}",
        }


@dataclass(frozen=True, slots=True)
class SharedMetadata:
    """The evidence of the check: configuration stores, and the fold of all events."""

    settings: Mapping[str, ClusterSync]
    """Settings of metadata synchronisation, by cluster."""
    stores: tuple[ClusterStore, ...]
    folded: Mapping[str, Folded]
    stamps: Collection[EventStamp]
    unreadable: tuple[str, ...]


def read_evidence(folder: RunFolder) -> SharedMetadata | None:
    """Read stores and events; None if fewer than two clusters share metadata, or the run directory has no store. Stores
    are read before the logs, so that the logs contain every event that a store has applied."""
    settings = read_settings(folder)
    with_store = [
        name for name, one in settings.items() if one.is_in_run_dir or store_path(folder.path, name).exists()
    ]
    if len(settings) < 2 or not with_store:
        return None
    stores, unreadable = [], []
    for cluster in with_store:
        try:
            stores.append(read_store(folder.path, cluster))
        except StoreUnreadable as problem:
            unreadable.append(str(problem))
    topic = next(iter(settings.values())).topic
    events, damages = read_event_topic(folder, topic)
    return SharedMetadata(
        settings, tuple(stores), fold(events.values()), frozenset(events), (*unreadable, *damages)
    )


def metadata_converged(folder: RunFolder, circumstances: Circumstances, end_ms: float) -> CheckResult | None:
    """Return the result of the check; None if there is nothing to check. `end_ms`: end of the history."""
    evidence = read_evidence(folder)
    return None if evidence is None else conclude(evidence, circumstances, end_ms)


def conclude(evidence: SharedMetadata, circumstances: Circumstances, end_ms: float) -> CheckResult:
    differences = list(_differences(evidence))
    wrong = [one for one in differences if one.why == "differs"]
    behind = [one for one in differences if one.why != "differs"]
    is_excused = bool(circumstances.down | circumstances.lost | circumstances.cut)
    overdue = [] if is_excused else [one for one in behind if end_ms - one.since_ms > UNDER_WAY_MS]
    doubtful = [*evidence.unreadable]
    verdict: Verdict = "valid"
    if wrong:
        verdict = "unknown" if doubtful or circumstances.damaged_regions else "invalid"
    elif overdue or doubtful:
        verdict = "unknown"
    sentences = [
        *_sentences(evidence, wrong, overdue, behind),
        *(f"{one}." for one in doubtful[:WITNESSES_MAX]),
    ]
    shown = [*wrong, *overdue][:WITNESSES_MAX]
    return CheckResult(
        NAME, TITLE, INVARIANT, verdict, " ".join(sentences), tuple(one.as_witness() for one in shown)
    )


def _differences(evidence: SharedMetadata) -> Iterator[MetadataDifference]:
    for store in evidence.stores:
        shares = evidence.settings[store.cluster].shares
        for path in sorted(filter(shares, {*store.values, *evidence.folded})):
            stored, folded = _stored(store, path), evidence.folded.get(path, Folded())
            expected = folded.document()
            for element in sorted({*stored, *expected}):
                if stored.get(element) != expected.get(element) or (element in stored) != (
                    element in expected
                ):
                    yield _difference(evidence, store, path, element, stored, expected, folded)


def _stored(store: ClusterStore, path: str) -> Document:
    try:
        return document_in(path, store.values[path]) if path in store.values else {}
    except (ValueError, AttributeError):
        return {EXISTENCE: True, "unreadable": store.values[path].decode(errors="replace")}


def _difference(
    evidence: SharedMetadata,
    store: ClusterStore,
    path: str,
    element: str,
    stored: Document,
    expected: Document,
    folded: Folded,
) -> MetadataDifference:
    deciding = folded.deciding(element)
    not_received = [event.published_ms for event in deciding if not store.claims(event.stamp)]
    not_published = [
        at_ms for stamp, at_ms in store.recorded_events(path, element) if stamp not in evidence.stamps
    ]
    why: Why = "not published" if not_published else "not received" if not_received else "differs"
    return MetadataDifference(
        store.cluster,
        path,
        element,
        why,
        max([*not_published, *not_received], default=0.0),
        stored.get(element),
        expected.get(element),
        tuple(event.stamp for event in deciding),
    )


def _sentences(
    evidence: SharedMetadata,
    wrong: Sequence[MetadataDifference],
    overdue: Sequence[MetadataDifference],
    behind: Sequence[MetadataDifference],
) -> Iterator[str]:
    if wrong:
        one = wrong[0].as_witness()
        yield (
            f"{_paths(wrong)} not the result of applying all events: {one['path']} of {one['cluster']} is"
            f" {one['stored']!r}, not {one['expected']!r}."
        )
    if overdue:
        yield f"{_paths(overdue)} older than the published events, or was not published, for no known reason."
    if not wrong and not overdue:
        clusters = " and ".join(store.cluster for store in evidence.stores)
        yield (
            f"{count(len(evidence.stamps), 'metadata event')}: the stores of {clusters} are the result of applying"
            " all of them."
        )
        if behind:
            yield f"Not yet applied at the end: {_paths(behind)} older than the published events."


def _paths(differences: Iterable[MetadataDifference]) -> str:
    paths = {(one.cluster, one.path) for one in differences}
    return f"{count(len(paths), 'document')} {'is' if len(paths) == 1 else 'are'}"
