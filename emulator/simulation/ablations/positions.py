"""Careless ways of carrying a subscription's position to other regions (PIP-33)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from emulator.core.cursor import Cursor
from emulator.core.cursor_parts import CursorParts, PartName
from emulator.core.snapshots import PENDING_MAX, Effect, SnapshotController
from emulator.core.subscription_updates import Applied, apply_update
from emulator.markers import SnapshotRequest
from emulator.model import Position
from emulator.simulation.ablation import Ablation, parts


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


class _ImpatientSnapshots(SnapshotController):
    def _lose_patience(self) -> None:
        self._room = PENDING_MAX

    def _is_under_way(self, last_data_position: Position) -> bool:
        return False


def _go_where_told(
    cursor: Cursor, own_position_entry: int, last_entry_id: int, unseen: Iterable[int]
) -> Applied:
    """Forward as ever, but backward too. (What lies before where it goes is acknowledged already.)"""
    if own_position_entry >= min(cursor.mark_delete, last_entry_id):
        return apply_update(cursor, own_position_entry, last_entry_id, unseen)
    cursor.seek(own_position_entry + 1)
    return Applied.MOVED


ABLATIONS = (
    Ablation(
        "one-round-snapshots",
        "A snapshot is used after one round of answers, however many regions there are.",
        ("INV-5",),
        parts(snapshots=partial(SnapshotController, rounds=1)),
    ),
    Ablation(
        "pending-update-forgotten",
        "After a restart a subscription does not know that its consumers are ahead of what other regions were told.",
        ("INV-17",),
        parts(cursor_parts=_ForgetsItLeads),
    ),
    Ablation(
        "snapshots-without-backoff",
        "Snapshots are begun at every interval, however many wait for answers and however many came too late.",
        ("INV-17", "INV-19"),
        parts(snapshots=_ImpatientSnapshots),
    ),
    Ablation(
        "snapshot-triggers-snapshot",
        "A snapshot that was begun without news makes other regions begin one in turn.",
        ("INV-19",),
        parts(snapshots=_EndlessSnapshots),
    ),
    Ablation(
        "update-acknowledges-unreceived",
        "An update acknowledges messages that its source never received.",
        ("INV-5",),
        parts(never_reaches=lambda *_, **__: False),
    ),
    Ablation(
        "update-moves-backward",
        "An update puts mark-delete where it says, even if that is behind.",
        ("INV-8", "INV-9"),
        parts(apply_update=_go_where_told),
    ),
)
