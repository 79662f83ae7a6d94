"""How long snapshots may take and how many may be pending, from how the last ones went.

Markers of snapshots must not take the links from each other. A region that starts a snapshot whenever responses are
late makes responses later still, and each of its requests starts follow-ups in other regions. With five regions, small
windows and slow links that continued for ever in a topic without producers. So

* a snapshot that covers every message is waited for before it is tried again: twice as long as the last one took, and
  twice as long after each that was started in vain;
* when snapshots time out, fewer may be pending at once, until they complete again, and the next has twice the time:
  where a marker waits longer behind others than a snapshot may take, each new one would only delay the others.
"""

from __future__ import annotations

PENDING_MAX = 8
"""Maximum number of pending snapshots. More than one, because a round trip may take longer than the interval; few,
because regions may never respond and requests must not pile up in the log."""
TIMEOUT_GROWTH_MAX = 8
"""Maximum factor by which the configured timeout grows after snapshots timed out."""


class SnapshotBackoff:
    """Owned by a `SnapshotController`."""

    def __init__(self, interval_ms: int, timeout_ms: int) -> None:
        self._interval_ms = interval_ms
        self._configured_timeout_ms = timeout_ms
        self.reset()

    def reset(self) -> None:
        """The set of regions changed: what was learnt is of no use."""
        self.retry_after_ms = self._interval_ms
        """How long a snapshot that covers every message is waited for before the next one is started."""
        self.pending_max = PENDING_MAX
        """From 1 to PENDING_MAX."""
        self.timeout_ms = self._configured_timeout_ms
        """From the configured timeout to TIMEOUT_GROWTH_MAX times that."""

    def started_in_vain(self) -> None:
        """A snapshot timed out, or is started again."""
        self.retry_after_ms = min(2 * self.retry_after_ms, self.timeout_ms)

    def timed_out(self) -> None:
        self.pending_max = max(1, self.pending_max // 2)
        self.started_in_vain()

    def completed(self, duration_ms: int) -> None:
        self.pending_max = min(self.pending_max + 1, PENDING_MAX)
        self.set_timeout(2 * duration_ms)
        self.retry_after_ms = min(max(self._interval_ms, 2 * duration_ms), self.timeout_ms)

    def set_timeout(self, milliseconds: int) -> None:
        """Set the timeout of the next snapshots, within its bounds."""
        most = TIMEOUT_GROWTH_MAX * self._configured_timeout_ms
        self.timeout_ms = max(self._configured_timeout_ms, min(milliseconds, most))
