"""The failure detector of a link: how long the peer may send nothing before it counts as dead.

The link sends a PING at every interval. At first, a peer that sends nothing for one interval counts as dead. On a slow
link, however, the PING may be queued behind too many bytes for a response to arrive in time. The link would then be
dropped, all entries sent again, and the next PING queued behind the same bytes, for ever. So each time a peer counts as
dead the next connection is allowed twice as many intervals, and half as many after CALM_INTERVALS with traffic.
"""

from __future__ import annotations

INTERVALS_MAX = 64
CALM_INTERVALS = 20
"""Number of consecutive intervals with traffic after which the allowance is halved."""


class FailureDetector:
    """The failure detector of one link, over all its connections."""

    def __init__(self) -> None:
        self.intervals_allowed = 1
        """Number of intervals without traffic after which the peer counts as dead, from 1 to INTERVALS_MAX."""
        self._silent = 0
        """Number of intervals since the peer last sent anything."""
        self._calm = 0
        self._heard = True

    def heard(self) -> None:
        """Note that the peer sent something, or that the connection is new and no PING was sent yet."""
        self._heard = True

    def interval_over(self) -> bool:
        """End an interval. Returns whether the peer counts as dead; if so, the allowance is doubled."""
        if self._heard:
            self._heard, self._silent = False, 0
            self._count_calm_interval()
            return False
        self._silent, self._calm = self._silent + 1, 0
        if self._silent < self.intervals_allowed:
            return False
        self._silent, self.intervals_allowed = 0, min(2 * self.intervals_allowed, INTERVALS_MAX)
        return True

    def _count_calm_interval(self) -> None:
        self._calm += 1
        if self._calm == CALM_INTERVALS:
            self._calm, self.intervals_allowed = 0, max(1, self.intervals_allowed // 2)
