"""Updates of replicated subscriptions: sending a subscription's position and applying those of other regions (PIP-33).

On the sending side a replicated subscription remembers snapshots and waits for its mark-delete to pass one:

    snapshot known ────┬─▶ newest one with local position <= mark-delete ─▶ update marker, to all regions
    mark-delete moved ─┘   (it and older ones are forgotten)

Either event may be the last, so both are triggers. Only a subscription whose own consumers are ahead of the updates it
received sends updates (`Cursor.ahead_of_peers`). Otherwise its update could move another region forward again whose
consumer has just sought back. A snapshot is offered when its marker becomes durable and again when the dispatcher reads
it from a backlog; the second offer has no effect.

On the receiving side the update becomes acknowledgements of a subscription that is replicated there, too
(`takes_updates`), under three rules that take precedence over upstream's behaviour (INV-5):
  * forward only: acknowledged entries stay acknowledged;
  * never past the end: a position beyond the end of our log belongs to another log, and is refused;
  * nothing unseen: an entry that never reached the sender cannot have been consumed there. It stays
    unacknowledged, even when the update's position is beyond it (`never_reaches`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from enum import Enum

from emulator.core.cursor.cursor import Cursor
from emulator.errors import ProtocolError, ServerError
from emulator.model.markers import Snapshot, SubscriptionUpdate
from emulator.model.reasons import NO_REASON, Cause, Reason
from emulator.model.values import BEFORE_EVERYTHING


class SnapshotCache:
    """The snapshots that one subscription remembers: at most `max_size`, spread over its backlog (INV-12).

    When the cache is full, it drops the snapshot whose neighbours are closest together, never the first or the last: a
    consumer far behind keeps a snapshot that it reaches soon, and one that catches up keeps the newest. A cache of size
    one keeps the newest: a topic without new messages gets no other snapshot (INV-17).

    Snapshots may arrive in any order: new ones from the end of the log while the dispatcher reads old ones from the
    backlog. A snapshot stays valid for ever, so an older one does not clear the cache, unlike upstream; a seek does.
    """

    def __init__(self, max_size: int = 30, *, drops_oldest: bool = False) -> None:
        """`drops_oldest`: whether a full cache drops the oldest snapshot, as upstream did."""
        assert max_size >= 1
        self.max_size = max_size
        self._drops_oldest = drops_oldest
        self._snapshots: list[Snapshot] = []
        """Invariant: local positions strictly ascending, all above `_newest_taken`."""
        self._entry_ids: list[int] = []
        """Local entry ids of `_snapshots`, same index."""
        self._newest_taken = -1
        """Local entry id of the newest snapshot that was returned; -1: none. Older snapshots are not added any more."""

    def __len__(self) -> int:
        return len(self._snapshots)

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """The remembered snapshots, oldest first."""
        return tuple(self._snapshots)

    def add(self, snapshot: Snapshot) -> bool:
        """Add a snapshot. Returns False when it is known, not newer than the last one returned, or dropped at once
        because the cache is full."""
        entry_id = snapshot.local_position.entry
        at = bisect_left(self._entry_ids, entry_id)
        if entry_id <= self._newest_taken or (at < len(self._entry_ids) and self._entry_ids[at] == entry_id):
            return False
        self._entry_ids.insert(at, entry_id)
        self._snapshots.insert(at, snapshot)
        if len(self._snapshots) <= self.max_size:
            return True
        victim = self._victim()
        del self._entry_ids[victim], self._snapshots[victim]
        return victim != at

    def resize(self, max_size: int) -> None:
        """Set the maximum size, and drop snapshots beyond it as a full cache does."""
        assert max_size >= 1
        self.max_size = max_size
        while len(self._snapshots) > max_size:
            victim = self._victim()
            del self._entry_ids[victim], self._snapshots[victim]

    def _victim(self) -> int:
        """Return the index whose neighbours are closest together, never the last; of several, the oldest."""
        if self._drops_oldest:
            return 0
        ids = self._entry_ids
        return min(range(1, len(ids) - 1), key=lambda i: ids[i + 1] - ids[i - 1], default=0)

    def pop_newest_reached(self, mark_delete: int) -> Snapshot | None:
        """Remove and return the newest snapshot that mark-delete has reached; older ones are removed, too."""
        usable = bisect_right(self._entry_ids, mark_delete)
        if not usable:
            return None
        snapshot, self._newest_taken = self._snapshots[usable - 1], self._entry_ids[usable - 1]
        del self._entry_ids[:usable], self._snapshots[:usable]
        return snapshot

    def keep_newest_reached(self, mark_delete: int) -> None:
        """Remove the snapshots before the one that `pop_newest_reached` would return."""
        older = bisect_right(self._entry_ids, mark_delete) - 1
        if older > 0:
            del self._entry_ids[:older], self._snapshots[:older]

    def clear(self) -> None:
        """Remove all snapshots after a seek: the subscription may reach any snapshot again."""
        self._snapshots.clear()
        self._entry_ids.clear()
        self._newest_taken = -1


class ReplicatedSubscription:
    """Decides when one subscription of this region sends its position to the other regions.

    `ahead_of_peers` is the field of its cursor. While it is False no update is sent, and the newest snapshot reached is
    kept until it becomes True.
    """

    def __init__(self, name: str, cache_size: int = 30, *, drops_oldest: bool = False) -> None:
        """`cache_size`, `drops_oldest`: see `SnapshotCache`."""
        self.name = name
        self.cache = SnapshotCache(cache_size, drops_oldest=drops_oldest)
        self.updates = 0
        """Number of updates returned."""

    def remember(self, snapshots: Iterable[Snapshot]) -> None:
        """Add snapshots that were completed before the subscription was replicated; they are still valid."""
        for snapshot in snapshots:
            self.cache.add(snapshot)

    def snapshot_offered(
        self, snapshot: Snapshot, mark_delete: int, *, ahead_of_peers: bool = True
    ) -> SubscriptionUpdate | None:
        """Process a snapshot that became durable or was read by the dispatcher. Returns the update to write, if any."""
        if not self.cache.add(snapshot):
            return None
        return self.mark_delete_moved(mark_delete, ahead_of_peers=ahead_of_peers)

    def mark_delete_moved(
        self, mark_delete: int, *, ahead_of_peers: bool = True
    ) -> SubscriptionUpdate | None:
        """Process a move of mark-delete by acknowledgements of consumers. Returns the update to write, if any."""
        snapshot = self._take_snapshot(mark_delete, ahead_of_peers)
        if snapshot is None:
            return None
        self.updates += 1
        return update_for(self.name, snapshot)

    def _take_snapshot(self, mark_delete: int, ahead_of_peers: bool) -> Snapshot | None:
        if ahead_of_peers:
            return self.cache.pop_newest_reached(mark_delete)
        self.cache.keep_newest_reached(mark_delete)
        return None

    def moved_by_update(
        self,
        update: SubscriptionUpdate,
        source_region: str,
        own_entry_id: int,
        mark_delete: int,
        *,
        ahead_of_peers: bool = True,
    ) -> SubscriptionUpdate | None:
        """Process a move of mark-delete by an update of `source_region` with our position `own_entry_id`.

        Returns the update to write in turn, if any: when our snapshot has a later position for a third region than the
        source's update, or when mark-delete also passed acknowledgements of our own consumers. Any other update would
        circulate among the regions.
        """
        snapshot = self._take_snapshot(mark_delete, ahead_of_peers)
        if snapshot is None:
            return None
        sent = dict(update.positions)
        is_newer = any(
            position > sent.get(region, BEFORE_EVERYTHING)
            for region, position in snapshot.positions
            if region != source_region
        )
        if snapshot.local_position.entry <= own_entry_id and not is_newer:
            return None
        self.updates += 1
        return update_for(self.name, snapshot)

    def cursor_reset(self) -> None:
        """Remove the snapshots after a seek of the subscription."""
        self.cache.clear()

    def why_not(self, mark_delete: int, *, ahead_of_peers: bool) -> Reason:
        """Return why no update is written, in the order of the table of reasons; empty when it lacks a snapshot."""
        if not ahead_of_peers:
            return Cause.POSITION_FOLLOWS()
        snapshots = self.cache.snapshots
        if not snapshots:
            return NO_REASON
        entry = snapshots[0].local_position.entry
        if entry <= mark_delete:
            return Cause.UPDATE_WITH_NEXT_MOVE(entry=entry, gap=mark_delete + 1)
        return Cause.SNAPSHOT_NOT_REACHED(
            mark_delete=mark_delete, count=len(snapshots), entry=entry, distance=entry - mark_delete
        )


def update_for(subscription: str, snapshot: Snapshot) -> SubscriptionUpdate:
    """Return the update of a subscription that has reached `snapshot`."""
    return SubscriptionUpdate(subscription, snapshot.positions)


# Receiving.


class Applied(Enum):
    """The outcome of applying an update."""

    MOVED = "something was acknowledged"
    BEHIND = "all of it was acknowledged before"
    REFUSED = "it names a position beyond the end of this log"


def own_entry_id(update: SubscriptionUpdate, region: str, ledger_id: int) -> int | None:
    """Return the entry id of an update in the log of `region`; None when the update lacks the region or refers to
    another incarnation of the topic."""
    for name, position in update.positions:
        if name == region:
            return position.entry if position.ledger == ledger_id else None
    return None


def check_replicable(name: str, *, durable: bool) -> None:
    """Raise ProtocolError for a subscription that ends with its last consumer: another region would keep its copy for
    ever."""
    if not durable:
        raise ProtocolError(
            ServerError.NotAllowedError,
            f"subscription {name} is not durable; only durable subscriptions can be replicated",
        )


def takes_updates(cursor: Cursor, is_durable: bool, follows_upstream: bool) -> bool:
    """Whether an update may move an existing subscription: only if it is durable and replicated in this region.
    Upstream moves every durable subscription."""
    return is_durable and (cursor.replicated or follows_upstream)


def apply_update(
    cursor: Cursor, own_position_entry: int, last_entry_id: int, unseen_by_source: Iterable[int]
) -> Applied:
    """Acknowledge everything up to and including `own_position_entry`, except `unseen_by_source`; nothing if the
    position is beyond the log.

    `last_entry_id`: the newest durable entry. `unseen_by_source`: entries that never reach the region which sent the
    update (`never_reaches`), in any order; ids beyond the position are ignored.
    """
    if own_position_entry > last_entry_id:
        return Applied.REFUSED
    changed = cursor.ack_cumulative_except(own_position_entry, unseen_by_source)
    return Applied.MOVED if changed else Applied.BEHIND


def never_reaches(region: str, *, origin: str, replicate_to: tuple[str, ...]) -> bool:
    """Return whether a message published in `origin` never reaches `region` because its producer named other regions
    (no names: all regions). Not for markers, which no consumer receives."""
    return region != origin and bool(replicate_to) and region not in replicate_to
