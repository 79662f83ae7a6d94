"""Reports remote regions that prevent snapshots of replicated subscriptions: to the log, the status and metrics.

A region blocks the snapshots of a topic while its link is down, and while it leaves requests unanswered although the
link is up. The log names such a region once, at the latest one `snapshot_timeout_ms` after it began to block the first
topic, and again when it blocks none any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from emulator.core.replication.snapshot_types import seconds_text
from emulator.core.replication.snapshots import SnapshotController

logger = logging.getLogger(__name__)


def blocked_ms(
    controller: SnapshotController, unreachable: Mapping[str, object], now_ms: int
) -> dict[str, int]:
    """Return the regions that prevent snapshots of a topic, and for how long, in milliseconds. `unreachable`: remote
    regions that cannot be reached now. Regions that snapshots continue without are omitted."""
    since = {**dict.fromkeys(unreachable, now_ms), **controller.absence.since_ms}
    return {
        region: max(0, now_ms - at)
        for region, at in sorted(since.items())
        if region in controller.remotes and region not in controller.absence.left_out
    }


class BlockedSnapshots:
    """The topics of a region whose snapshots a remote region blocks."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, int]] = {}
        """Remote region -> blocked topics, with the loop time in ms since which they are blocked."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._reported: set[str] = set()
        """Remote regions that the log has named."""

    def update(self, topic: str, blocked: Mapping[str, int], timeout_ms: int) -> None:
        """Set the regions that block a topic now; none for a closed topic. `blocked`: result of `blocked_ms`.
        `timeout_ms`: time after which the log names a region."""
        for region in [one for one, topics in self._topics.items() if topic in topics and one not in blocked]:
            del self._topics[region][topic]
            if not self._topics[region]:
                self._end(region)
        loop = asyncio.get_running_loop()
        for region, waited_ms in blocked.items():
            self._topics.setdefault(region, {}).setdefault(topic, int(loop.time() * 1000) - waited_ms)
            if region not in self._timers and region not in self._reported:
                delay_ms = max(0, timeout_ms - waited_ms)
                self._timers[region] = loop.call_later(delay_ms / 1000, self._report, region)

    def _report(self, region: str) -> None:
        del self._timers[region]
        self._reported.add(region)
        topics = self._topics[region]
        waited_ms = int(asyncio.get_running_loop().time() * 1000) - min(topics.values())
        logger.warning(
            "region %s blocks snapshots of replicated subscriptions for %s: %s, such as %s; positions are not sent to "
            "other regions. `geoemu explain snapshot` states the reason",
            region,
            seconds_text(waited_ms),
            "1 topic" if len(topics) == 1 else f"{len(topics)} topics",
            next(iter(topics)),
        )

    def _end(self, region: str) -> None:
        """Note that a region blocks no topic any more."""
        del self._topics[region]
        timer = self._timers.pop(region, None)
        if timer is not None:
            timer.cancel()
        if region in self._reported:
            self._reported.discard(region)
            logger.info("region %s does not block snapshots any more", region)
