"""The steps of one growing run: each adds new rows to the window, and reports progress and new violations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

from spark_jobs.checks.check import circumstances_of
from spark_jobs.engines.frames import Column, DataFrame, F, cached, fields_of, parallel, release, small_frame
from spark_jobs.frames.history import events_of, operations
from spark_jobs.frames.messages import topic_in_history
from spark_jobs.frames.summary import HistorySummary, summarise_history, summarise_logs
from spark_jobs.live.early_checks import EarlyChecks, invalid_results
from spark_jobs.live.progress import FollowedLink, LiveViolation, RunProgress
from spark_jobs.live.window import OPEN_MAX, JoinedWindow, MessageWindow, Producer
from spark_jobs.sources.growing import GROWN_SCHEMA, entries_of, lines_of
from spark_jobs.sources.region_log import TRIMMED_SCHEMA, read_trimmed
from spark_jobs.sources.run_folder import EvidenceDamage, RunFolder, open_run_folder

LOG_LOST = ("lose", "power_loss")
"""Facts after which a region's log may lack messages that it had: its copies are checked at the end."""
Link = tuple[str, str]
MARKER_COLUMNS = (
    *("region", "topic", "origin_region", "ledger_id", "entry_id"),
    *("source_ledger", "source_entry", "publish_time_ms", "claim"),
)
_NO_MESSAGES = {"acknowledged": 0, "stored": 0, "oldest_ms": None, "complete": 0, "left": 0, "left_ms": None}


@dataclass(slots=True)
class Totals:
    """Numbers of all steps."""

    published: int = 0
    acknowledged: int = 0
    stored: dict[str, int] = field(default_factory=dict)
    complete: dict[Link, int] = field(default_factory=dict)
    """Acknowledged messages that were dropped from the window, by link."""
    left: dict[Link, tuple[int, float]] = field(default_factory=dict)
    """Missing copies of left messages, and when the oldest of these messages was acknowledged, by link."""
    lag_max_s: dict[Link, float] = field(default_factory=dict)
    facts: list[Mapping[str, Any]] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)
    """Topics in the history."""
    start_ms: float = 0.0
    end_ms: float = 0.0
    last_client_ms: float = 0.0
    history_damaged: bool = False

    def add_history(self, news: HistorySummary) -> None:
        self.topics |= news.topics
        self.facts = sorted([*self.facts, *news.facts], key=lambda fact: fact["at_ms"])
        if news.end_ms:
            self.start_ms = min(self.start_ms or news.start_ms, news.start_ms)
            self.end_ms = max(self.end_ms, news.end_ms)
        self.last_client_ms = max(self.last_client_ms, news.last_client_ms)
        self.history_damaged = self.history_damaged or bool(news.damages)

    def arrive(self, link: Link, copies: int) -> None:
        """Note that copies arrived whose messages may be left ones."""
        number, since_ms = self.left.get(link, (0, 0.0))
        arrived = min(number, copies)
        self.left[link] = number - arrived, since_ms
        self.complete[link] = self.complete.get(link, 0) + arrived

    def of_link(self, link: Link, row: Mapping[str, Any]) -> tuple[int, int, float | None]:
        """Return acknowledged and stored messages, and when the oldest missing one was acknowledged, and add what the
        step drops from the window."""
        complete, (left, left_ms) = self.complete.get(link, 0), self.left.get(link, (0, 0.0))
        oldest_ms = row["oldest_ms"]
        if left:
            oldest_ms = left_ms if oldest_ms is None else min(left_ms, oldest_ms)
        self.complete[link] = complete + row["complete"]
        if row["left"]:
            self.left[link] = left + row["left"], min(left_ms, row["left_ms"]) if left else row["left_ms"]
        return complete + left + row["acknowledged"], complete + row["stored"], oldest_ms

    def summary(self) -> HistorySummary:
        return HistorySummary(
            topics=frozenset(self.topics),
            facts=tuple(self.facts),
            damages=(),
            start_ms=self.start_ms,
            end_ms=self.end_ms,
            last_client_ms=self.last_client_ms,
        )


class RunFollower:
    """What is known of a growing run. All frames belong to the engine that is bound when it is made."""

    def __init__(
        self,
        run: Path,
        *,
        in_network: bool = False,
        clock: Callable[[], float] = time.monotonic,
        open_max: int = OPEN_MAX,
        on_violation: Callable[[LiveViolation], None] = lambda violation: None,
    ) -> None:
        """`on_violation` is called for the first violation of each check, before the rest of the step."""
        self._run, self._in_network, self._clock = run, in_network, clock
        self._on_violation = on_violation
        self._window = MessageWindow(open_max)
        self._checks = EarlyChecks()
        self._untrimmed = small_frame([], TRIMMED_SCHEMA)
        self._no_rows = small_frame([], GROWN_SCHEMA)
        self._totals = Totals()
        self._has_receipts = False
        """Whether the latest step read outcomes of publishes, which the next one uses."""
        self._sessions: dict[Producer, dict[str, tuple[int, int]]] = {}
        self._unchecked: set[Producer] = set()
        self._violations: dict[str, LiveViolation] = {}
        self._links: dict[Link, tuple[int, int, float | None]] = {}
        """Link -> acknowledged, stored, and when the oldest missing message was acknowledged."""
        self._read_at = clock()
        """Time of `clock` when the newest line was read."""
        self._open = self._left = 0
        self._log_topics: set[str] = set()
        """Topics in the logs."""

    def step(self, grown: DataFrame | None) -> None:
        """Add rows in `growing.GROWN_SCHEMA`; None: logs and histories have no new rows."""
        if grown is None:
            if not self._has_receipts:
                return
            grown = self._no_rows
        self._has_receipts = False
        folder = open_run_folder(self._run, in_network=self._in_network)
        entries, lines = cached(entries_of(grown)), cached(lines_of(grown))
        events = events_of(lines)
        with parallel() as workers:
            reading = workers.submit(summarise_logs, entries)
            publishing = workers.submit(_publishing_sessions, events)
            news = summarise_history(lines)
        logs = reading.result()
        self._add_lines(news, publishing.result())
        self._log_topics |= {topic for log in logs.values() for topic in log.topics}
        claims = cached(_claims(entries)) if any(log.claims for log in logs.values()) else None
        for region, log in logs.items():
            self._totals.stored[region] = self._totals.stored.get(region, 0) + log.messages
        joined = self._window.add(
            entries,
            events,
            {topic for log in logs.values() for topic in log.topics},
            self._totals.topics,
            folder.namespaces,
            self._unchecked,
            self._checked_regions(folder),
        )
        self._check_messages(folder, joined, claims)
        size = self._window.leave_old(joined, self._totals.end_ms)
        self._open, self._left = size.open, self._left + size.left
        self._measure_links(folder, joined, size.is_left)
        self._window.drop(joined)
        release(entries, lines)

    def progress(self, *, has_ended: bool = False) -> RunProgress:
        """Return the state after the latest step. Lags are as of now, or as of the last line of a run that ended."""
        since_line_s = 0.0 if has_ended else self._clock() - self._read_at
        now_ms = self._totals.end_ms + since_line_s * 1000
        links = tuple(self._link(link, now_ms) for link in sorted(self._links))
        return RunProgress(
            at_s=_seconds(now_ms - self._totals.start_ms) if self._totals.start_ms else 0.0,
            published=self._totals.published,
            acknowledged=self._totals.acknowledged,
            stored=dict(sorted(self._totals.stored.items())),
            links=links,
            open=self._open,
            left=self._left,
            violations=tuple(self._violations.values()),
        )

    def _add_lines(self, news: HistorySummary, sessions: Iterable[Mapping[str, Any]]) -> None:
        self._totals.add_history(news)
        if news.end_ms and news.end_ms >= self._totals.end_ms:
            self._read_at = self._clock()
        for row in sessions:
            self._totals.published += row["published"]
            self._totals.acknowledged += row["acknowledged"]
            self._has_receipts = self._has_receipts or row["receipts"] > 0
            producer = row["topic"], row["region"], row["producer"]
            if row["first"] is not None:
                self._add_session(producer, row["session"], row["first"], row["last"])
            if row["in_transactions"]:
                self._unchecked.add(producer)

    def _add_session(self, producer: Producer, session: str, first: int, last: int) -> None:
        """Note the sequence ids of a session. A producer whose sessions overlap is not checked: its region may store
        other sequence ids than its program recorded (`frames.history`)."""
        sessions = self._sessions.setdefault(producer, {})
        before = sessions.get(session, (first, last))
        sessions[session] = min(first, before[0]), max(last, before[1])
        if any(
            one[0] <= other[1] and other[0] <= one[1] for one, other in combinations(sessions.values(), 2)
        ):
            self._unchecked.add(producer)

    def _checked_regions(self, folder: RunFolder) -> set[str]:
        lost = {fact["region"] for fact in self._totals.facts if fact["op"] in LOG_LOST}
        return set(folder.regions) - lost

    def _check_messages(self, folder: RunFolder, joined: JoinedWindow, markers: DataFrame | None) -> None:
        trims = any(folder.trims(topic) for topic in self._totals.topics)
        trimmed = read_trimmed(folder, self._totals.topics)[0] if trims else self._untrimmed
        topic = topic_in_history(self._log_topics, self._totals.topics)
        findings = self._checks.find_violations(joined, trimmed, markers, topic)
        if trims:
            release(trimmed)
        if not findings:
            return
        damages = [EvidenceDamage("a line of the history is damaged")] if self._totals.history_damaged else []
        circumstances = circumstances_of(folder, self._totals.summary(), damages, float("inf"))
        for result in invalid_results(findings, self._totals.acknowledged, circumstances):
            if result.name not in self._violations:
                at_s = _seconds(self._totals.end_ms - self._totals.start_ms)
                self._violations[result.name] = LiveViolation(at_s, result)
                self._on_violation(self._violations[result.name])

    def _measure_links(self, folder: RunFolder, joined: JoinedWindow, is_left: Column) -> None:
        is_stored = F.array_contains(fields_of("copies", "region"), F.col("region"))
        acked_ms = F.when(~is_stored, F.col("acked_ms"))
        of_links = (
            joined.messages.where(F.col("acked_ms").isNotNull())
            .withColumn("region", F.explode("expected"))
            .where(F.col("region") != F.col("origin_region"))
            .groupBy("origin_region", "region")
            .agg(
                F.count("*").alias("acknowledged"),
                F.count_if(is_stored).alias("stored"),
                F.min(acked_ms).alias("oldest_ms"),
                F.count_if(is_stored & (F.col("dropped") | is_left)).alias("complete"),
                F.count_if(~is_stored & is_left).alias("left"),
                F.min(F.when(is_left, acked_ms)).alias("left_ms"),
            )
        )
        if joined.late is not None:
            for row in joined.late.groupBy("origin_region", "region").count().collect():
                self._totals.arrive((row["origin_region"], row["region"]), row["count"])
        found = {(row["origin_region"], row["region"]): row.asDict() for row in of_links.collect()}
        shared = {link for one in folder.namespaces.values() for link in permutations(set(one.regions), 2)}
        for link in shared | set(found):
            self._links[link] = self._totals.of_link(link, found.get(link, _NO_MESSAGES))

    def _link(self, link: Link, now_ms: float) -> FollowedLink:
        acknowledged, stored, oldest_ms = self._links[link]
        lag_s = 0.0 if oldest_ms is None else max(_seconds(now_ms - oldest_ms), 0.0)
        highest = self._totals.lag_max_s[link] = max(self._totals.lag_max_s.get(link, 0.0), lag_s)
        return FollowedLink(*link, acknowledged, stored, lag_s, highest)


def _publishing_sessions(events: DataFrame) -> list[Mapping[str, Any]]:
    """Return the sequence ids and the numbers of requests and outcomes of each session of a producer."""
    is_asked = F.col("outcome") == "asked"
    sessions = (
        operations(events, "publish")
        .groupBy("topic", "region", "producer", "session")
        .agg(
            F.min(F.when(is_asked, F.col("sequence_id"))).alias("first"),
            F.max(F.when(is_asked, F.col("sequence_id"))).alias("last"),
            F.count_if(is_asked).alias("published"),
            F.count_if(~is_asked).alias("receipts"),
            F.count_if(F.col("outcome") == "ok").alias("acknowledged"),
            F.count_if(F.col("transaction").isNotNull()).alias("in_transactions"),
        )
    )
    return [row.asDict() for row in sessions.collect()]


def _claims(entries: DataFrame) -> DataFrame:
    """Return the rows of snapshots and updates, as `read_position_claims` requires them."""
    return entries.where(F.col("claim").isNotNull()).select(*MARKER_COLUMNS)


def _seconds(milliseconds: float) -> float:
    return round(milliseconds / 1000, 3)
