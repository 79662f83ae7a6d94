"""The status of a run as JSON, with what its running regions report of replicated subscriptions."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from emulator.runtimes.contract import RegionStatus, RunStatus
from emulator.runtimes.explain_queries import blocked_snapshots, replication_conflicts, replication_lag


async def status_to_json(status: RunStatus) -> dict[str, Any]:
    """Return the status of a run and the reports of its running regions as JSON values."""
    conflicts, blocked, lag = await asyncio.gather(
        replication_conflicts(status), blocked_snapshots(status), replication_lag(status)
    )
    return {
        **_as_json(status),
        "replication_conflicts": conflicts,
        "blocked_snapshots": blocked,
        "replication_lag": lag,
    }


def _as_json(status: RunStatus) -> dict[str, Any]:
    return {
        "run": str(status.run_dir),
        "regions": [
            {
                "name": region.name,
                "cluster": region.cluster,
                "state": region.state,
                "service_url": region.service_url,
                "admin_url": region.admin_url,
                **_tls_json(region),
                "pid": region.pid,
                "waiting_for": region.waiting_for,
                "disk": dataclasses.asdict(region.disk),
                "clock": dataclasses.asdict(region.clock),
            }
            for region in status.regions
        ],
        "links": [
            {
                "from": link.source,
                "to": link.target,
                **dataclasses.asdict(link.shape),
                "profile": link.profile,
                "via": link.via,
            }
            for link in status.links
        ],
    }


def _tls_json(region: RegionStatus) -> dict[str, Any]:
    """Return the addresses without TLS, and the files for TLS; nothing for a region without TLS."""
    if region.tls is None:
        return {}
    plain = {"plain_service_url": region.plain_service_url, "plain_admin_url": region.plain_admin_url}
    return {**plain, "tls": dataclasses.asdict(region.tls)}
