"""Mutants of replicated subscriptions (PIP-33): snapshots and cursor updates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.stored_format import CursorParts, PartName
from emulator.core.replication.schedule import SnapshotBackoff
from emulator.core.replication.snapshot_types import Effect, PendingSnapshot, Received
from emulator.core.replication.snapshots import SnapshotController
from emulator.core.replication.subscription_updates import Applied, apply_update
from emulator.model.markers import SnapshotRequest
from emulator.model.values import Position
from tests.swarm.mutant import Mutants, part, parts

MUTANTS = Mutants()


@MUTANTS.mutant("pending-update-forgotten", "INV-17", patch=part("cursor_parts"))
class _PendingUpdateForgotten(CursorParts):
    """After a restart a subscription forgets that its position is ahead of the last update that it sent."""

    @classmethod
    def load(cls, head: bytes, parts: Mapping[PartName, bytes]) -> CursorParts:
        loaded = super().load(head, parts)
        loaded.cursor.ahead_of_peers = False
        return loaded


@MUTANTS.mutant("snapshot-triggers-snapshot", "INV-19", patch=part("snapshots"))
class _SnapshotTriggersSnapshot(SnapshotController):
    """A snapshot that was started without new messages makes other regions start one, too."""

    def request_stored(
        self, request: SnapshotRequest, last_position: Position, received: Received | None = None
    ) -> list[Effect]:
        news = replace(request, snapshot_id=f"{request.snapshot_id}?")
        answers = super().request_stored(news, last_position, received)
        return super().request_stored(request, last_position, received) if answers else []


class _ConstantTimeout(SnapshotBackoff):
    def set_timeout(self, milliseconds: int) -> None:
        """Keep the timeout constant, regardless of how many snapshots timed out."""


@MUTANTS.mutant("snapshots-without-backoff", "INV-17", "INV-19", patch=part("snapshots"))
class _SnapshotsWithoutBackoff(SnapshotController):
    """A snapshot is started at every interval, regardless of how many are pending or timed out."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.backoff = _ConstantTimeout(self.schedule.settings)

    @property
    def _waited_for(self) -> list[PendingSnapshot]:
        return []


@MUTANTS.mutant("update-moves-backward", "INV-8", "INV-9", patch=part("apply_update"))
def _update_moves_backward(
    cursor: Cursor, own_position_entry: int, last_entry_id: int, unseen: Iterable[int]
) -> Applied:
    """An update moves mark-delete to its position, even backwards."""
    if own_position_entry >= min(cursor.mark_delete, last_entry_id):
        return apply_update(cursor, own_position_entry, last_entry_id, unseen)
    cursor.seek(own_position_entry + 1)
    return Applied.MOVED


MUTANTS.mutant(
    "one-round-snapshots",
    "INV-5",
    safeguard="A snapshot is used after one round of responses, regardless of the number of regions.",
)(parts(snapshots=partial(SnapshotController, rounds=1)))
MUTANTS.mutant(
    "update-acknowledges-unreceived",
    "INV-5",
    safeguard="An update acknowledges messages that its source never received.",
)(parts(never_reaches=lambda *_, **__: False))
