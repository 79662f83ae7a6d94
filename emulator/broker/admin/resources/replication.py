"""Resources of replication that an operator must look at: positions that are not applied, regions that prevent
snapshots, and what other regions lack."""

from __future__ import annotations

from typing import Any, Final

from emulator.broker.admin.replication_metrics import ReplicationLag, lags_of
from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Resource, reads
from emulator.broker.topic.topic import Topic


async def conflicts(call: AdminRequest) -> Content:
    """Return the subscriptions of loaded topics whose positions from other regions are not applied."""
    region = call.region
    return [
        {"topic": topic.full_name, "subscription": name, "source": source, "region": region.config.region}
        for topic in region.directory.serving.values()
        if topic.subscriptions.replicated is not None
        for name, source in topic.subscriptions.replicated.unapplied_positions()
    ]


async def blocked_snapshots(call: AdminRequest) -> Content:
    """Return the remote regions that prevent snapshots of loaded topics."""
    rows: dict[str, dict[str, Any]] = {}
    for topic in call.region.directory.serving.values():
        if topic.subscriptions.replicated is None:
            continue
        snapshots = topic.subscriptions.replicated.snapshots
        for remote, waited_ms in snapshots.blocked_ms().items():
            row = rows.setdefault(remote, {"region": call.region.config.region, "blocked_by": remote})
            row["topics"] = row.get("topics", 0) + 1
            if waited_ms >= row.get("waited_ms", 0):
                reason = snapshots.why_not()
                row |= {"waited_ms": waited_ms, "topic": topic.full_name, "why": reason, "cause": reason.code}
    return [rows[remote] for remote in sorted(rows)]


MEASURED_TOPICS_MAX: Final = 100
"""Maximum number of topics whose entries are read to count what a remote region lacks, those with the largest backlogs.
Of other topics, the entries count as messages, and their age is unknown."""


async def replication_lag(call: AdminRequest) -> Content:
    """Return what remote regions lack of loaded topics, by remote region."""
    here, rows = call.region.config.region, dict[str, dict[str, Any]]()
    lagging = [topic for topic in call.region.directory.serving.values() if _backlog(topic)]
    for index, topic in enumerate(sorted(lagging, key=_backlog, reverse=True)):
        measured = index < MEASURED_TOPICS_MAX
        lags = await lags_of(topic) if measured else _unmeasured(topic)
        for remote, lag in lags.items():
            if lag.messages:
                empty = {"from": here, "to": remote, "topics": 0, "messages": 0, "age_ms": 0, "topic": ""}
                row = rows.setdefault(remote, empty)
                row["topics"] += 1
                row["messages"] += lag.messages
                if not row["topic"] or lag.age_ms > row["age_ms"]:
                    row |= {"age_ms": lag.age_ms, "topic": topic.full_name}
    return [rows[remote] for remote in sorted(rows)]


def _backlog(topic: Topic) -> int:
    return max((one.backlog for one in topic.replicators.values()), default=0) if topic.keeps_messages else 0


def _unmeasured(topic: Topic) -> dict[str, ReplicationLag]:
    return {remote: ReplicationLag(one.backlog, 0) for remote, one in topic.replicators.items()}


RESOURCES = (
    Resource(
        "/geoemu/v1/replication-lag",
        get=reads(
            replication_lag,
            "What remote regions lack of loaded topics: number of topics and messages, and the topic with the oldest "
            "message, whose age is by its producer's clock.",
        ),
    ),
    Resource(
        "/geoemu/v1/replication-conflicts",
        get=reads(
            conflicts,
            "Subscriptions of loaded topics whose positions from another region are not applied, because they are not "
            "replicated here.",
        ),
    ),
    Resource(
        "/geoemu/v1/blocked-snapshots",
        get=reads(
            blocked_snapshots,
            "Remote regions that prevent snapshots of replicated subscriptions: number of loaded topics, and the topic "
            "that has waited longest, for how long and why.",
        ),
    ),
)
