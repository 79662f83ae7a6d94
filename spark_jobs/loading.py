"""Convert a run directory to evidence: `load` reads logs and histories, `normalise` joins them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.engines.frames import BoundThreads, DataFrame, F, cached, read, small_frame
from spark_jobs.frames.evidence import OUTAGE_SCHEMA, Evidence, gather
from spark_jobs.frames.history import events_of, read_history, renumbered
from spark_jobs.frames.messages import stored_messages, topic_in_history
from spark_jobs.frames.metadata import SharedMetadata, read_metadata
from spark_jobs.frames.quiescence import RunEnd
from spark_jobs.frames.stored_values import (
    newest_entries,
    read_cursors,
    read_keys,
    read_ownership,
    read_position_claims,
)
from spark_jobs.frames.summary import (
    HistorySummary,
    LogSummary,
    outages,
    summarise_history,
    summarise_logs,
    summarise_table,
)
from spark_jobs.sources.coordinator_journals import coordinator_journals
from spark_jobs.sources.region_log import (
    read_ends,
    read_region_logs,
    read_trimmed,
)
from spark_jobs.sources.region_values import region_values
from spark_jobs.sources.run_folder import EvidenceDamage, RunFolder, is_simulated


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """The logs, stored values and histories of a run, as regions and clients wrote them."""

    folder: RunFolder
    lines: DataFrame
    """Lines of the history, in the schema `history_files.ROW_SCHEMA`."""
    history: HistorySummary
    rows: DataFrame
    """Entries of the logs, in the schema `region_log.ROW_SCHEMA`."""
    logs: Mapping[str, LogSummary]
    """Summary of each region's log, by region."""
    read_at_ms: float
    """Time at which all logs had been read, on the clock of the history."""
    trimmed: DataFrame
    stored: DataFrame
    """What regions store besides logs, in the schema `region_values.VALUE_SCHEMA`."""
    grants: int
    """Number of stored grants of exclusive access."""
    ends: Mapping[tuple[str, str], int]
    """Highest entry id by region and topic, where it may be larger than the id of the newest stored entry."""
    journals: DataFrame | None
    """Entries of coordinators, in the schema `coordinator_journals.JOURNAL_SCHEMA`; None: no transactions."""
    keys: int
    """Number of these entries with a transaction key."""
    metadata: SharedMetadata | None
    """Configuration stores and metadata events; None: no clusters share metadata."""
    is_transactional: bool
    """Whether the history or a log contains a transaction."""
    damages: Sequence[EvidenceDamage]
    """Damages of the history, and of logs whose first entry ids could not be read."""
    value_damages: Sequence[EvidenceDamage]
    journal_damages: Sequence[EvidenceDamage]


@dataclass(frozen=True, slots=True)
class NormalisedRun:
    """The frames that checks and figures start from."""

    evidence: Evidence
    lines: DataFrame
    """Readable lines of the history, with the sequence ids that their program wrote."""
    remarks: Sequence[str]
    """A sentence for each session whose sequence ids were changed to those that its region stored."""
    damages: Sequence[EvidenceDamage]
    """Damages of the evidence, without those in RunFolder, LogSummary and HistorySummary."""
    unread_regions: frozenset[str]
    """Regions with a damage of their files in the run directory or of their stored values."""


def load(folder: RunFolder) -> LoadedRun:
    """Read the history, the logs, and then the values besides the logs."""
    lines, damages = read_history(folder)
    lines = cached(lines)
    # Concurrently: reading logs waits for the start of Python workers, reading the history does not.
    with BoundThreads(1) as worker:
        loading = worker.submit(_load_logs, folder)
        history = summarise_history(lines)
        rows, logs = loading.result()
    read_at_ms = _read_at_ms(folder, history)
    trimmed, trim_damages = read_trimmed(folder, history.topics)
    ends = read_ends(folder)
    stored = cached(read(region_values(folder, history.topics)))
    value_damages, grants = summarise_table(stored, "epoch")
    transactional = bool(history.in_transactions or any(log.in_transactions for log in logs.values()))
    journals = cached(read(coordinator_journals(folder))) if transactional else None
    journal_damages, keys = ([], 0) if journals is None else summarise_table(journals, "transaction_key")
    return LoadedRun(
        folder=folder,
        lines=lines,
        history=history,
        rows=rows,
        logs=logs,
        read_at_ms=read_at_ms,
        trimmed=trimmed,
        stored=stored,
        grants=grants,
        ends=ends,
        journals=journals,
        keys=keys,
        metadata=read_metadata(folder),
        is_transactional=transactional,
        damages=[*damages, *trim_damages],
        value_damages=value_damages,
        journal_damages=journal_damages,
    )


def _read_at_ms(folder: RunFolder, history: HistorySummary) -> float:
    if is_simulated(folder.path):
        return history.end_ms
    return time.time() * 1000 if folder.export is None else folder.export.read_at_ms


def _load_logs(folder: RunFolder) -> tuple[DataFrame, dict[str, LogSummary]]:
    rows = cached(read_region_logs(folder))
    return rows, summarise_logs(rows)


def normalise(run: LoadedRun) -> NormalisedRun:
    """Decode markers, stored values and journals, and join the logs with the history."""
    history, transactional = run.history, run.is_transactional
    keys = read_keys(run.journals, is_known=run.keys + history.with_keys > 0)
    log_topics = {topic for log in run.logs.values() for topic in log.topics}
    has_claims = any(log.claims for log in run.logs.values())
    claims = read_position_claims(
        cached(run.rows.where(F.col("claim").isNotNull())) if has_claims else None,
        topic_in_history(log_topics, history.topics),
        read_cursors(run.stored, newest_entries(run.rows, run.ends)),
    )
    messages = stored_messages(run.rows, log_topics, history.topics, transactional=transactional)
    lines = events_of(run.lines)
    is_owned = run.grants + history.with_epochs > 0
    ownership = read_ownership(run.stored, lines, is_known=is_owned)
    events, remarks = renumbered(lines, messages)
    evidence = gather(
        messages,
        events,
        run.trimmed,
        small_frame(outages(history.facts), OUTAGE_SCHEMA),
        claims,
        ownership,
        keys,
        run.folder.namespaces,
        _end_of(run),
        transactional=transactional,
        has_unnamed=history.unnamed > 0,
    )
    value_damages = [*run.value_damages, *_marker_damages(run)]
    return NormalisedRun(
        evidence,
        lines,
        remarks,
        [*run.damages, *value_damages, *run.journal_damages],
        frozenset(one.region for one in (*run.folder.damages, *value_damages) if one.region),
    )


def _marker_damages(run: LoadedRun) -> list[EvidenceDamage]:
    logs = sorted(run.logs.items())
    return [EvidenceDamage(text, region) for region, log in logs for text in log.marker_damages]


def _end_of(run: LoadedRun) -> RunEnd:
    history, folder = run.history, run.folder
    return RunEnd(
        history.facts,
        history.end_ms,
        history.last_client_ms,
        folder.latency_ms_max,
        folder.routes,
        [log.region for log in folder.logs if log.has_other_clock],
    )
