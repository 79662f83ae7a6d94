"""Resources of replicated subscriptions that an operator must look at: positions that are not applied, and regions that
prevent snapshots."""

from __future__ import annotations

from typing import Any

from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Resource, reads


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


RESOURCES = (
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
