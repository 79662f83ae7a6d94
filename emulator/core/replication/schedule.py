"""When snapshots of one topic are started, and how long a pending one is waited for.

The *periodic* schedule starts a snapshot once per interval. The *adaptive* one starts it when a subscription gains:

  * Early, when the consumers of a subscription have passed every known snapshot. Markers then have a budget, a tenth of
    the messages in this log: a snapshot starts when the budget pays for its markers, or when traffic pauses and the
    budget is not overdrawn.
  * After one interval in any case, so that slow traffic has the periodic schedule.
  * After n intervals, up to QUIET_INTERVALS, while the consumers must still reach n snapshots: one more would not be
    used soon. After QUIET_INTERVALS while no consumer here is ahead of the positions that other regions sent: no update
    could be sent. Those few snapshots serve consumers that come later and find a backlog.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """The settings of a topic's snapshots, which policies change at run time. Times are milliseconds."""

    interval_ms: int = 1_000
    timeout_ms: int = 30_000
    timeout_growth_max: int = 8
    """Maximum factor by which the timeout grows."""
    partial_after_ms: int = 0
    """Absence of a region after which snapshots continue without it; 0: never."""
    new_messages_only: bool = False
    """Whether, as upstream, only new messages require a snapshot: not a lost connection, nor the return of a region."""
    adaptive: bool = False
    """Whether snapshots are taken when a subscription gains from one, in place of once per interval."""


DEFAULT_SETTINGS = SnapshotSettings()

QUIET_INTERVALS: Final = 20
"""Maximum number of intervals between two snapshots of the adaptive schedule while there is traffic."""
MARKER_SHARE: Final = 0.1
"""Markers per message of this log that early snapshots may cost."""
SPACING_MS: Final = 20
"""Minimum time between the starts of two snapshots of the adaptive schedule."""
PAUSE_MS_MAX: Final = 100
"""Time without a message that counts as a pause of traffic: a tenth of the interval, at most this."""


class SnapshotDemand(NamedTuple):
    """What the replicated subscriptions of a topic would gain from a snapshot."""

    leads: bool = True
    """Whether the consumers here of a subscription are ahead of the positions that other regions sent."""
    unreached: int = 0
    """Number of snapshots that such a subscription must still reach: of the one that must reach the fewest."""


class SnapshotSchedule:
    """The time of the next snapshot. Times are milliseconds of a clock that never goes back."""

    def __init__(self, settings: SnapshotSettings = DEFAULT_SETTINGS) -> None:
        self.settings = settings
        """Replaced when policies change."""
        self.demand = SnapshotDemand()
        """Set by the caller whenever it changes; only the adaptive schedule reads it."""
        self.last_start_ms: int | None = None
        """Time of the last start; None: there was none."""
        self._budget = 0.0
        """Number of markers that may be spent on early snapshots; negative: overdrawn."""
        self._message_ms = 0
        """Time at which the newest message was stored."""

    def stored(self, now_ms: int, *, messages: int, markers: int, cost: int) -> None:
        """Note durable entries of the log. `cost`: markers of one snapshot; the budget stays within twice that."""
        if messages:
            self._message_ms = now_ms
        budget = self._budget + MARKER_SHARE * messages - markers
        self._budget = max(-2.0 * cost, min(budget, 2.0 * cost))

    def due_ms(self, now_ms: int, cost: int, *, is_pending: bool) -> int:
        """Return the earliest time of the next snapshot; `now_ms` if there was none. `cost`: its markers in this log.
        `is_pending`: whether one is waited for, so that none starts early."""
        if self.last_start_ms is None:
            return now_ms
        interval_ms, demand = self.settings.interval_ms, self.demand
        if not self.settings.adaptive:
            return self.last_start_ms + interval_ms
        intervals = max(1, demand.unreached) if demand.leads else QUIET_INTERVALS
        regular_ms = self.last_start_ms + min(intervals, QUIET_INTERVALS) * interval_ms
        if not demand.leads or demand.unreached or is_pending or self._budget < 0:
            return regular_ms
        early_ms = self.last_start_ms + SPACING_MS
        if self._budget < cost:
            early_ms = max(early_ms, self._message_ms + min(PAUSE_MS_MAX, interval_ms // 10))
        return min(regular_ms, early_ms)


PENDING_MAX = 8
"""Maximum number of pending snapshots, not counting doubtful ones. More than one, because a round trip may take longer
than the interval; few, because regions may never respond and requests must not accumulate in the log."""


class SnapshotBackoff:
    """The timeout and the maximum number of pending snapshots, adapted to the outcomes of the last snapshots.

    Markers of snapshots must not congest the links. A region that starts a snapshot whenever responses are late delays
    responses further, and each of its requests starts follow-ups in other regions. With five regions, small windows and
    slow links such snapshots continued for ever in a topic without producers. Therefore

    * a snapshot that covers every message is started again only after a wait: twice the duration of the last snapshot,
      doubled each time that a snapshot times out or is started again;
    * when snapshots time out, fewer may be pending at once until they complete again, and the timeout doubles unless
      only links broke: where a marker is queued for longer than the timeout, each new snapshot would delay the others.
    """

    def __init__(self, settings: SnapshotSettings) -> None:
        self._settings = settings
        self.reset()

    def reset(self) -> None:
        """Start from the configured values, because the set of regions changed."""
        self.retry_after_ms: int = self._settings.interval_ms
        """Time that a pending snapshot which covers every message is waited for before another one is started."""
        self.pending_max = PENDING_MAX
        """Present maximum number of pending snapshots that are not doubtful, from 1 to PENDING_MAX."""
        self.timeout_ms: int = self._settings.timeout_ms
        """Timeout of a snapshot, from the configured timeout to `timeout_growth_max` times that."""

    def configure(self, settings: SnapshotSettings) -> None:
        """Apply changed settings. The present timeout is kept within the new bounds."""
        self._settings = settings
        self.set_timeout(self.timeout_ms)
        self.retry_after_ms = min(max(settings.interval_ms, self.retry_after_ms), self.timeout_ms)

    def lengthen_wait(self) -> None:
        """Double the wait: a snapshot timed out, or is started again."""
        self.retry_after_ms = min(2 * self.retry_after_ms, self.timeout_ms)

    def timed_out(self) -> None:
        self.pending_max = max(1, self.pending_max // 2)
        self.lengthen_wait()

    def completed(self, duration_ms: int) -> None:
        self.pending_max = min(self.pending_max + 1, PENDING_MAX)
        self.set_timeout(2 * duration_ms)
        self.retry_after_ms = min(max(self._settings.interval_ms, 2 * duration_ms), self.timeout_ms)

    def set_timeout(self, milliseconds: int) -> None:
        """Set the timeout of the next snapshots, within its bounds."""
        configured = self._settings.timeout_ms
        self.timeout_ms = max(configured, min(milliseconds, self._settings.timeout_growth_max * configured))
