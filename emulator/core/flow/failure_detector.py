"""How long the peer of a link may stay silent before it counts as dead.

A PING is sent at every interval, and a peer that sent nothing for an interval is dead. On a slow link, however, the
PING may be queued behind too many bytes for a response to arrive in time. The link would then be dropped, everything
sent again, and the next PING queued behind the same bytes, for ever. So each time a link is dropped for silence the
next connection is allowed twice as many intervals. The allowance shrinks after many intervals in a row with traffic.
"""

from __future__ import annotations

INTERVALS_MAX = 64
CALM_INTERVALS = 20
"""After this many intervals in a row with traffic, the allowed silence is halved."""


class FailureDetector:
    """Of one link, over all its connections."""

    def __init__(self) -> None:
        self.intervals_allowed = 1
        """From 1 to INTERVALS_MAX."""
        self._silent = 0
        """Intervals since the peer last sent anything."""
        self._calm = 0
        self._heard = True

    def heard(self) -> None:
        """The peer sent something; or the connection is new, and no PING was sent yet."""
        self._heard = True

    def interval_over(self) -> bool:
        """Return whether the peer counts as dead."""
        if self._heard:
            self._heard, self._silent = False, 0
            self._calm_down()
            return False
        self._silent, self._calm = self._silent + 1, 0
        if self._silent < self.intervals_allowed:
            return False
        self._silent, self.intervals_allowed = 0, min(2 * self.intervals_allowed, INTERVALS_MAX)
        return True

    def _calm_down(self) -> None:
        self._calm += 1
        if self._calm == CALM_INTERVALS:
            self._calm, self.intervals_allowed = 0, max(1, self.intervals_allowed // 2)
