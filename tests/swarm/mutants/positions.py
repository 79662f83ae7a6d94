"""Careless ways of carrying a subscription's position to other regions (PIP-33)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.stored_format import CursorParts, PartName
from emulator.core.replication.snapshot_backoff import SnapshotBackoff
from emulator.core.replication.snapshot_types import Effect, PendingSnapshot
from emulator.core.replication.snapshots import SnapshotController
from emulator.core.replication.subscription_updates import Applied, apply_update
from emulator.model.markers import SnapshotRequest
from emulator.model.values import Position
from tests.swarm.mutant import Mutant, parts


class _ForgetsItLeads(CursorParts):
    @classmethod
    def load(cls, head: bytes, parts: Mapping[PartName, bytes]) -> CursorParts:
        loaded = super().load(head, parts)
        loaded.cursor.ahead_of_peers = False
        return loaded


class _EndlessSnapshots(SnapshotController):
    def request_stored(self, request: SnapshotRequest, last_position: Position) -> list[Effect]:
        news = SnapshotRequest(f"{request.snapshot_id}?", request.source_region)
        answers = super().request_stored(news, last_position)
        return super().request_stored(request, last_position) if answers else []


class _ConstantTimeout(SnapshotBackoff):
    def set_timeout(self, milliseconds: int) -> None:
        """Give each snapshot the same time, however many timed out."""


class _ImpatientSnapshots(SnapshotController):
    def __init__(self, *args: Any, interval_ms: int = 1_000, timeout_ms: int = 30_000, **named: Any) -> None:
        super().__init__(*args, interval_ms=interval_ms, timeout_ms=timeout_ms, **named)
        self.backoff = _ConstantTimeout(interval_ms, timeout_ms)

    @property
    def _waited_for(self) -> list[PendingSnapshot]:
        return []


def _go_where_told(
    cursor: Cursor, own_position_entry: int, last_entry_id: int, unseen: Iterable[int]
) -> Applied:
    """Apply updates forward as usual, but also backward, where every message is acknowledged already."""
    if own_position_entry >= min(cursor.mark_delete, last_entry_id):
        return apply_update(cursor, own_position_entry, last_entry_id, unseen)
    cursor.seek(own_position_entry + 1)
    return Applied.MOVED


MUTANTS = (
    Mutant(
        "one-round-snapshots",
        "A snapshot is used after one round of responses, regardless of the number of regions.",
        ("INV-5",),
        parts(snapshots=partial(SnapshotController, rounds=1)),
    ),
    Mutant(
        "pending-update-forgotten",
        "After a restart a subscription forgets that its position is ahead of the last update that it sent.",
        ("INV-17",),
        parts(cursor_parts=_ForgetsItLeads),
    ),
    Mutant(
        "snapshots-without-backoff",
        "A snapshot is started at every interval, regardless of how many are pending or timed out.",
        ("INV-17", "INV-19"),
        parts(snapshots=_ImpatientSnapshots),
    ),
    Mutant(
        "snapshot-triggers-snapshot",
        "A snapshot that was started without new messages makes other regions start one, too.",
        ("INV-19",),
        parts(snapshots=_EndlessSnapshots),
    ),
    Mutant(
        "update-acknowledges-unreceived",
        "An update acknowledges messages that its source never received.",
        ("INV-5",),
        parts(never_reaches=lambda *_, **__: False),
    ),
    Mutant(
        "update-moves-backward",
        "An update moves mark-delete to its position, even backwards.",
        ("INV-8", "INV-9"),
        parts(apply_update=_go_where_told),
    ),
)
