"""Mutants of the adaptive schedule of snapshots, detected by runs of the kind `adaptive-snapshots`."""

from __future__ import annotations

from typing import Any, Final

from emulator.core.replication.schedule import SnapshotSchedule
from emulator.core.replication.snapshot_types import Effect, LogEnd
from emulator.core.replication.snapshots import SnapshotController
from emulator.model.markers import SnapshotResponse
from emulator.model.values import AFTER_EVERYTHING, Position
from tests.swarm.mutant import Mutants, part

MUTANTS = Mutants("adaptive-snapshots")
NEVER_MS: Final = 2**60


class _EarlyOnly(SnapshotSchedule):
    def due_ms(self, now_ms: int, cost: int, *, is_pending: bool) -> int:
        due_ms = super().due_ms(now_ms, cost, is_pending=is_pending)
        return NEVER_MS if self.settings.adaptive and self._budget < 0 else due_ms


@MUTANTS.mutant("adaptive-without-interval", "INV-17", patch=part("snapshots"))
class _AdaptiveWithoutInterval(SnapshotController):
    """While the budget of early snapshots is overdrawn, no snapshot starts, not even after an interval."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.schedule = _EarlyOnly(self.schedule.settings)


def _received_everything(region: str) -> Position:
    return AFTER_EVERYTHING


@MUTANTS.mutant("adaptive-round-unproven", "INV-5", patch=part("snapshots"))
class _AdaptiveRoundUnproven(SnapshotController):
    """The adaptive schedule uses a snapshot after one round although this region lacks entries that others received."""

    def response_stored(
        self,
        response: SnapshotResponse,
        at_position: Position,
        now_ms: int,
        log_end: LogEnd | None = None,
    ) -> list[Effect]:
        if log_end is not None and self.schedule.settings.adaptive:
            log_end = log_end._replace(received=_received_everything)
        return super().response_stored(response, at_position, now_ms, log_end)
