"""How long the other side of a link may say nothing before it is taken for dead.

At every interval it is asked (PING), and whoever has said nothing for an interval is dead: unless the question itself
lies behind so much on a slow link that no answer could come yet. Then the link would be dropped, everything sent
again, and the same question be asked behind the same bytes, for ever. So each time that a link is dropped for its
silence the next connection is allowed twice as many intervals, until it has been heard at each of many in a row.
"""

from __future__ import annotations

INTERVALS_MAX = 64
CALM_INTERVALS = 20
"""After so many in a row in which it was heard, half as long a silence is allowed."""


class Silence:
    """Of one link, over all its connections."""

    def __init__(self) -> None:
        self.intervals_allowed = 1
        """From 1 to INTERVALS_MAX."""
        self._silent = 0
        """Intervals since it was heard last."""
        self._calm = 0
        self._heard = True

    def heard(self) -> None:
        """It said something; or there is a new connection, which is not asked yet."""
        self._heard = True

    def interval_over(self) -> bool:
        """Whether the other side has to be taken for dead."""
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
