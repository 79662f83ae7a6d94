"""Mutants of the adaptive schedule of snapshots, detected by runs of the kind `adaptive-snapshots`."""

from __future__ import annotations

from typing import Any, Final

from emulator.core.replication.schedule import SnapshotSchedule
from emulator.core.replication.snapshots import SnapshotController
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
