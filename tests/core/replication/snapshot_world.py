"""A miniature of regions that replicate one topic and take snapshots: logs are lists, links are pointers.

It does what the broker does around `emulator.core.replication.snapshots`, one step at a time, so that a test can
try any interleaving. It does not use the broker: it tests whether the rules are right, not whether the broker
follows them.

    publish ──▶ log ──(one pointer per link, in order, only what originated here)──▶ log of the other region
    consumer acknowledges ──▶ cursor ──▶ update ──▶ cursor of the other region

`World.check` is the claim of PIP-33.6: whatever is acknowledged anywhere was consumed somewhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.stored_format import CursorParts, PartName
from emulator.core.replication.progress import Forwarding, forwarding
from emulator.core.replication.schedule import QUIET_INTERVALS, SnapshotDemand, SnapshotSettings
from emulator.core.replication.snapshot_types import Effect, LogEnd, OfferSnapshot, WriteMarker
from emulator.core.replication.snapshots import SnapshotController
from emulator.core.replication.subscription_updates import (
    ReplicatedSubscription,
    apply_update,
    never_reaches,
    own_entry_id,
)
from emulator.core.topic.deduplication import SourceWatermarks
from emulator.model.markers import (
    SNAPSHOT,
    SNAPSHOT_REQUEST,
    SNAPSHOT_RESPONSE,
    SUBSCRIPTION_UPDATE,
    Snapshot,
    SnapshotRequest,
    SnapshotResponse,
    SubscriptionUpdate,
)
from emulator.model.values import Position
from tests.core.ids import id_set

LEDGER = 1
SUBSCRIPTION = "orders"
INTERVAL_MS = 1_000


Marker = SnapshotRequest | SnapshotResponse | Snapshot | SubscriptionUpdate


@dataclass(frozen=True)
class StoredEntry:
    """One entry of one region's log."""

    content: Marker | str
    """A marker, or the name of a message."""
    origin: str
    replicate_to: tuple[str, ...]

    @property
    def is_marker(self) -> bool:
        return not isinstance(self.content, str)

    @property
    def marker_type(self) -> int | None:
        match self.content:
            case SnapshotRequest():
                return SNAPSHOT_REQUEST
            case SnapshotResponse():
                return SNAPSHOT_RESPONSE
            case Snapshot():
                return SNAPSHOT
            case SubscriptionUpdate():
                return SUBSCRIPTION_UPDATE
            case _:
                return None


class RegionModel:
    """One region with one topic and one replicated subscription."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        self.log: list[StoredEntry] = []
        self._cursor = CursorParts(Cursor(-1))
        self._stored_cursor: dict[PartName | None, bytes] = {}
        self.persist()
        self.watermarks = SourceWatermarks()
        self.start()

    def start(self) -> None:
        """Start from the durable state."""
        parts = {name: value for name, value in self._stored_cursor.items() if name is not None}
        self._cursor = CursorParts.load(self._stored_cursor[None], parts)
        self.unwritten: deque[WriteMarker] = deque()
        self.subscription = ReplicatedSubscription(SUBSCRIPTION, cache_size=self.world.cache_size)
        self.controller = SnapshotController(
            self.name,
            frozenset(self.world.names) - {self.name},
            SnapshotSettings(INTERVAL_MS, adaptive=self.world.adaptive),
            rounds=self.world.rounds,
        )

    @property
    def cursor(self) -> Cursor:
        return self._cursor.cursor

    def persist(self) -> None:
        """Store the cursor."""
        changes = self._cursor.take_changes()
        for group in changes.puts:
            self._stored_cursor.update(group)
        for name in changes.deletes:
            self._stored_cursor.pop(name, None)

    # Entries become durable.

    def store(self, entry: StoredEntry) -> None:
        self.log.append(entry)
        self.controller.schedule.stored(
            self.world.now_ms,
            messages=not entry.is_marker,
            markers=entry.is_marker,
            cost=self.controller.cost,
        )
        self._pass_markers()
        self._act_on(entry, len(self.log) - 1)

    def _act_on(self, entry: StoredEntry, entry_id: int) -> None:
        here, now_ms = Position(LEDGER, entry_id), self.world.now_ms
        match entry.content:
            case SnapshotRequest() as request:
                self._perform(self.controller.request_stored(request, here, self.watermarks.highest))
            case SnapshotResponse() as response:
                log_end = LogEnd(Position(LEDGER, len(self.log) - 1), self.watermarks.highest)
                self._perform(self.controller.response_stored(response, here, now_ms, log_end))
            case Snapshot() as snapshot:
                self._perform(self.controller.snapshot_stored(snapshot, now_ms))
            case SubscriptionUpdate() as update if entry.origin != self.name:
                self._apply(update, entry.origin)

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case WriteMarker():
                    self.unwritten.append(effect)
                case OfferSnapshot(snapshot):
                    self._offer(snapshot)

    def _offer(self, snapshot: Snapshot) -> None:
        cursor = self.cursor
        self._write(
            self.subscription.snapshot_offered(
                snapshot, cursor.mark_delete, ahead_of_peers=cursor.ahead_of_peers
            )
        )

    def _write(self, update: SubscriptionUpdate | None) -> None:
        """Store the cursor before its update is published."""
        if update is not None:
            self.persist()
            self.unwritten.append(WriteMarker(update, ()))

    def write_marker(self) -> None:
        """Make the oldest issued marker durable."""
        if self.unwritten:
            wish = self.unwritten.popleft()
            self.store(StoredEntry(wish.marker, self.name, wish.replicate_to))

    def _apply(self, update: SubscriptionUpdate, source: str) -> None:
        own = own_entry_id(update, self.name, LEDGER)
        assert own is not None
        unseen = self.unseen_by(source) if self.world.spares_unseen else []
        apply_update(self.cursor, own, len(self.log) - 1, unseen)
        self._pass_markers()
        mark_delete, leads = self.cursor.mark_delete, self.cursor.ahead_of_peers
        self._write(self.subscription.moved_by_update(update, source, own, mark_delete, ahead_of_peers=leads))

    def unseen_by(self, source: str) -> list[int]:
        return [
            entry_id
            for entry_id, entry in self.messages()
            if never_reaches(source, origin=entry.origin, replicate_to=entry.replicate_to)
        ]

    # Consumers.

    def consume(self, at: int, *, cumulative: bool) -> None:
        """Acknowledge the `at`-th message that is not acknowledged (all up to it, if cumulative)."""
        open_ = [entry_id for entry_id, _ in self.messages() if not self.cursor.is_acked(entry_id)]
        if not open_:
            return
        at %= len(open_)
        for entry_id in open_[: at + 1] if cumulative else [open_[at]]:
            self.world.consumed.add(str(self.log[entry_id].content))
            self.cursor.ack(entry_id)
        self._pass_markers()
        self._write(
            self.subscription.mark_delete_moved(
                self.cursor.mark_delete, ahead_of_peers=self.cursor.ahead_of_peers
            )
        )

    def seek(self, next_entry_id: int) -> None:
        """Seek back: deliver everything from here on again."""
        self.cursor.seek(next_entry_id)
        self.subscription.cursor_reset()

    def _pass_markers(self) -> None:
        self.cursor.ack_hidden(id_set(entry_id for entry_id, entry in enumerate(self.log) if entry.is_marker))

    def read_backlog(self) -> None:
        """Read from mark-delete on and find snapshots, as after a restart."""
        for entry in self.log[self.cursor.mark_delete + 1 :]:
            if isinstance(entry.content, Snapshot):
                self._offer(entry.content)

    # The rest.

    def tick(self) -> None:
        last = max((entry_id for entry_id, _ in self.messages()), default=None)
        self.controller.schedule.demand = SnapshotDemand(
            self.cursor.ahead_of_peers, len(self.subscription.cache)
        )
        self._perform(
            self.controller.tick(
                self.world.now_ms,
                self.world.new_id(),
                last_data_position=None if last is None else Position(LEDGER, last),
                disconnected={other for other in self.world.names if (self.name, other) in self.world.cut},
            )
        )

    def restart(self) -> None:
        """Kill and restart: unconfirmed acknowledgements, pending snapshots and the cache are lost."""
        self.start()
        for other in self.world.regions.values():
            other.controller.link_lost(self.name)
        for link, sent in self.world.sent.items():
            if link[0] == self.name:
                self.world.sent[link] = sent // 2

    def messages(self) -> Iterator[tuple[int, StoredEntry]]:
        return ((entry_id, entry) for entry_id, entry in enumerate(self.log) if not entry.is_marker)


class World:
    """Some regions, their links, and what consumers have consumed so far."""

    def __init__(
        self,
        names: str = "abc",
        *,
        rounds: int | None = None,
        spares_unseen: bool = True,
        cache_size: int = 30,
        adaptive: bool = False,
    ) -> None:
        self.names, self.adaptive = names, adaptive
        self.rounds, self.spares_unseen, self.cache_size = rounds, spares_unseen, cache_size
        self.now_ms = 0
        self.ids = 0
        self.consumed: set[str] = set()
        """Names of messages that some consumer somewhere has acknowledged."""
        self.sent = dict.fromkeys(((one, other) for one in names for other in names if one != other), 0)
        self.cut: set[tuple[str, str]] = set()
        self.regions = {name: RegionModel(name, self) for name in names}

    def new_id(self) -> str:
        self.ids += 1
        return f"s{self.ids}"

    # Steps.

    def publish(self, region: str, replicate_to: tuple[str, ...] = ()) -> str:
        self.ids += 1
        name = f"{region}{self.ids}"
        self.regions[region].store(StoredEntry(name, region, replicate_to))
        return name

    def forward(self, source: str, target: str, *, messages: int = 1) -> bool:
        """Deliver the next entries of `source` that `target` gets. Return false when there are none."""
        arrived = False
        log = self.regions[source].log
        while messages and (source, target) not in self.cut and self.sent[source, target] < len(log):
            position = Position(LEDGER, self.sent[source, target])
            entry = log[position.entry]
            self.sent[source, target] += 1
            replicated_from = None if entry.origin == source else entry.origin
            decision = forwarding(target, replicated_from, entry.replicate_to, entry.marker_type)
            if decision is Forwarding.SEND:
                self._arrive(entry, position, self.regions[target])
                messages -= 1
                arrived = True
        return arrived

    def _arrive(self, entry: StoredEntry, position: Position, target: RegionModel) -> None:
        if target.watermarks.advance(entry.origin, position):
            target.store(entry)

    def exchange(self, slow: Collection[tuple[str, str]]) -> None:
        """Store all issued markers, and deliver some entries over every link that is not slow."""
        self._write_markers()
        for link in self.sent:
            if link not in slow:
                self.forward(*link, messages=4)

    def flow(self) -> None:
        """Store everything issued and deliver everything over links that are up, until nothing is left."""
        while self._write_markers() or self._forward_everywhere():
            pass

    def _forward_everywhere(self) -> bool:
        arrived = [self.forward(*link) for link in self.sent]
        return any(arrived)

    def _write_markers(self) -> bool:
        wrote = any(region.unwritten for region in self.regions.values())
        for region in self.regions.values():
            while region.unwritten:
                region.write_marker()
        return wrote

    def settle(self, seconds_max: int = 120) -> None:
        """Restore all links and let time pass without new messages or acknowledgements, until no marker is written any
        more, and no region waits for the time of its next snapshot."""
        self.cut.clear()
        quiet, longest_wait = 0, QUIET_INTERVALS if self.adaptive else 1
        deadline_ms = self.now_ms + 1_000 * seconds_max
        while quiet < longest_wait + 2 or any(region.controller.pending for region in self.regions.values()):
            assert self.now_ms < deadline_ms, "markers never stop in an idle topic"
            self.now_ms += INTERVAL_MS
            before = self.entries
            for region in self.regions.values():
                region.tick()
            self.flow()
            quiet = quiet + 1 if self.entries == before else 0
            self.check()

    @property
    def entries(self) -> int:
        return sum(len(region.log) for region in self.regions.values())

    # The claim.

    def check(self) -> None:
        skipped = self.skipped()
        assert not skipped, f"acknowledged, but consumed nowhere: {skipped}"

    def skipped(self) -> list[tuple[str, str]]:
        """Return each (region, message) that no consumer will ever receive there, though none has received it
        anywhere."""
        return [
            (region.name, str(entry.content))
            for region in self.regions.values()
            for entry_id, entry in region.messages()
            if region.cursor.is_acked(entry_id) and entry.content not in self.consumed
        ]

    def open_messages(self, region: str) -> list[str]:
        """Return the messages that a new consumer in `region` receives."""
        model = self.regions[region]
        return [
            str(entry.content) for entry_id, entry in model.messages() if not model.cursor.is_acked(entry_id)
        ]
