"""Regions that are absent from the snapshots of one topic: since when, and whether snapshots continue without them.

A region is absent while the topic's link to or from it is down, and while it leaves every snapshot request unanswered
although the link is up. After `partial_after_ms` of absence snapshots are *partial*: they are complete without that
region. `core.replication.snapshots` explains which guarantee a partial snapshot keeps (INV-12).
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from emulator.core.replication.snapshot_types import seconds_text
from emulator.model.reasons import NO_REASON, Cause, Reason


class RegionAbsence:
    """Since when each remote region of a topic is absent. Times are milliseconds of a clock that never goes back.

    The times are not stored: after a restart, or when the topic is loaded again, absence begins anew.
    """

    def __init__(self, partial_after_ms: int = 0) -> None:
        """`partial_after_ms`: absence after which snapshots continue without a region; 0: never."""
        self.partial_after_ms = partial_after_ms
        self.down_since_ms: dict[str, int] = {}
        """Region whose link is down in one direction -> time at which that was first noticed."""
        self.left_out: frozenset[str] = frozenset()
        """Regions that snapshots continue without. Set by `update_left_out`."""
        self._unanswered_since_ms: dict[str, int] = {}
        """Region without a response since, whose link is up -> start of the oldest request that timed out."""
        self._responded_ms: dict[str, int] = {}
        """Region -> time of its last response."""

    def links_observed(self, down: Iterable[str], now_ms: int) -> None:
        """Set the regions whose link is down."""
        unanswered = self._unanswered_since_ms
        self.down_since_ms = {
            region: min(self.down_since_ms.get(region, now_ms), unanswered.pop(region, now_ms))
            for region in down
        }

    def timed_out(self, unanswered: Iterable[str], started_ms: int) -> None:
        """Note that a snapshot which was started at `started_ms` timed out without responses of these regions."""
        for region in unanswered:
            if region not in self.down_since_ms and self._responded_ms.get(region, -1) < started_ms:
                self._unanswered_since_ms.setdefault(region, started_ms)

    def responded(self, region: str, now_ms: int) -> None:
        """Note a response of a region, to any request."""
        self._responded_ms[region] = now_ms
        self._unanswered_since_ms.pop(region, None)

    def keep_only(self, remotes: Set[str]) -> None:
        """Forget all regions but these."""
        for times in (self.down_since_ms, self._unanswered_since_ms, self._responded_ms):
            for region in times.keys() - remotes:
                del times[region]
        self.left_out &= remotes

    @property
    def since_ms(self) -> dict[str, int]:
        """Absent region -> beginning of its absence."""
        return {**self._unanswered_since_ms, **self.down_since_ms}

    def update_left_out(self, now_ms: int) -> frozenset[str]:
        """Determine the regions that snapshots continue without. Returns those that snapshots no longer leave out."""
        before, self.left_out = self.left_out, self._absent_long_enough(now_ms)
        return before - self.left_out

    def _absent_long_enough(self, now_ms: int) -> frozenset[str]:
        if not self.partial_after_ms:
            return frozenset()
        return frozenset(
            region for region, since in self.since_ms.items() if now_ms - since >= self.partial_after_ms
        )

    def next_left_out_ms(self, now_ms: int) -> int | None:
        """Return the time at which snapshots begin to continue without another region; None: they never do."""
        if not self.partial_after_ms:
            return None
        due = [since + self.partial_after_ms for since in self.since_ms.values()]
        return min((at for at in due if at > now_ms), default=None)

    # Explaining.

    def waited_text(self, region: str, now_ms: int) -> str:
        """Return for how long a region has been absent, as text."""
        return seconds_text(now_ms - self.since_ms.get(region, now_ms))

    def why_partial(self, now_ms: int) -> Reason:
        """Return which regions snapshots continue without; empty: none."""
        left_out = sorted(self.left_out)
        if not left_out:
            return NO_REASON
        waited = self.waited_text(left_out[0], now_ms)
        return Cause.SNAPSHOT_PARTIAL(regions=" and ".join(left_out), waited=waited)
