"""Sends one topic's own messages to one other region: the shell around ReplicationProgress."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from emulator.broker.keeper import StateKeeper
from emulator.core.replication import Forwarding, ReplicationProgress, forwarding
from emulator.errors import StorageError
from emulator.model import Position
from emulator.wire.codec import send_frame
from emulator.wire.metadata import with_replication

if TYPE_CHECKING:
    from emulator.broker.peer import PeerLink
    from emulator.broker.tail import StoredEntry
    from emulator.broker.topic import Topic

logger = logging.getLogger(__name__)

PROGRESS_WRITE_DELAY_SECONDS = 0.2
"""The remote drops what it has already, so progress that is a little old costs only sending again."""
READ_ENTRIES = 500
READ_BYTES = 4_194_304
RETRY_SECONDS = 0.1
RETRY_SECONDS_MAX = 5.0


def progress_key(topic: str, remote: str) -> str:
    """Key of a replicator's progress in the store."""
    return f"replicator/{topic}/{remote}"


class Replicator:
    """Owned by its Topic. A PeerUser."""

    def __init__(self, topic: Topic, peer: PeerLink) -> None:
        settings = topic.region.config.settings
        self.topic = topic
        self.peer = peer
        self.remote = peer.config.region
        self.producer_id = 0
        key = progress_key(topic.full_name, self.remote)
        self.progress = ReplicationProgress(
            self._stored_progress(key),
            entries_max=settings.replication_window_entries,
            bytes_max=settings.replication_window_bytes,
        )
        self._keeper = StateKeeper(topic.region.store, key, self._progress_bytes, self._not_written)
        self.ready = False
        """The remote has opened our producer."""
        self.why_not = "no link yet"
        self._reading = False
        self._retry_seconds = RETRY_SECONDS
        self._closed = False
        self._generation = 0
        """Grows with each reset, so that a read begun before it is dropped."""

    def _stored_progress(self, key: str) -> int:
        stored = self.topic.region.store.get(key)
        if stored is None:
            # A new replicator begins with the first entry there is: a region added later gets the history too.
            return self.topic.log.first_entry_id - 1
        position = Position.parse(stored.value.decode())
        return position.entry if position.ledger == self.topic.log.ledger_id else -1

    def _progress_bytes(self) -> bytes:
        return str(Position(self.topic.log.ledger_id, self.progress.confirmed)).encode()

    @property
    def backlog(self) -> int:
        """Entries the remote does not have yet, as far as we know (ids; markers and others' messages included
        until they are passed)."""
        return max(0, self.topic.end_entry_id - 1 - self.progress.confirmed)

    # What the peer connection tells us.

    def link_up(self) -> None:
        self.peer.open_producer(self, self.topic.full_name)

    def link_down(self) -> None:
        self._reset("the link is down")
        if self.topic.sync is not None:
            self.topic.sync.link_lost(self.remote)

    def producer_ready(self) -> None:
        self.ready = True
        self.why_not = ""
        self._retry_seconds = RETRY_SECONDS
        self.pump()
        if self.topic.sync is not None:
            self.topic.sync.links_changed()

    def refused(self, message: str) -> None:
        """The remote would not open our producer, or closed it: try again later, from what is confirmed."""
        self._reset(f"{self.remote} refuses: {message}")
        if not self._closed:
            asyncio.get_running_loop().call_later(self._retry_seconds, self._open_again)
            self._retry_seconds = min(self._retry_seconds * 2, RETRY_SECONDS_MAX)

    def _open_again(self) -> None:
        if not self._closed and self.peer.connected and not self.ready:
            self.peer.open_producer(self, self.topic.full_name)

    def receipt(self, ledger_id: int, entry_id: int) -> None:
        if not self.ready:
            return
        if not self.progress.received(self.topic.log.ledger_id, Position(ledger_id, entry_id)):
            logger.warning("%s acknowledged %d:%d out of turn", self.remote, ledger_id, entry_id)
            self.refused("acknowledgements out of turn")
            return
        self._keeper.soon(PROGRESS_WRITE_DELAY_SECONDS)

    def _reset(self, why: str) -> None:
        self.ready = False
        self.why_not = why
        self._generation += 1
        self.progress.reset()

    # Sending.

    def pump(self) -> None:
        """Send everything the window has room for."""
        while self.ready and not self._reading and self.peer.writable:
            start, room = self.progress.next_entry_id, self.progress.room
            if room <= 0 or start >= self.topic.end_entry_id:
                return
            entries = self.topic.tail.read(start, min(room, READ_ENTRIES))
            if entries is None:
                self._reading = True
                work = self._read_and_send(start, min(room, READ_ENTRIES), self._generation)
                self.topic.region.spawn(work)
                return
            self._send(entries)
            if not entries:
                return

    async def _read_and_send(self, start: int, entries_max: int, generation: int) -> None:
        """`generation`: when `start` was the next. By the time this begins there may have been a reset."""
        try:
            entries = await self.topic.read(start, entries_max, READ_BYTES)
        except StorageError as failure:
            self.topic.failed(failure)
            return
        finally:
            self._reading = False
        if generation == self._generation and self.ready and entries:
            self._send(entries)
        self.pump()

    def _send(self, entries: list[StoredEntry]) -> None:
        frames: list[bytes] = []
        progress, confirmed, room = self.progress, self.progress.confirmed, self.progress.room
        for entry in entries:
            if room <= 0:
                break
            info = entry.info
            decision = forwarding(self.remote, info.replicated_from, info.replicate_to, info.marker_type)
            if decision is not Forwarding.SEND:
                progress.skipped(entry.entry_id)
                continue
            data = self._replicated_form(entry)
            frames.append(
                send_frame(
                    self.producer_id,
                    info.sequence_id,
                    info.num_messages,
                    info.highest_sequence_id,
                    marker=info.marker_type is not None,
                    data=data,
                )
            )
            progress.sent(entry.entry_id, len(data))
            room = progress.room
        if progress.confirmed != confirmed:
            self._keeper.soon(PROGRESS_WRITE_DELAY_SECONDS)
        if frames:
            self.peer.write(b"".join(frames))

    def _replicated_form(self, entry: StoredEntry) -> bytes:
        if entry.replicated is None:
            position = Position(self.topic.log.ledger_id, entry.entry_id)
            entry.replicated = with_replication(entry.data, self.topic.region.config.region, position)
        return entry.replicated

    # Ending.

    async def flush(self) -> None:
        """Write pending progress, for an orderly stop."""
        pending = self._keeper.flush()
        if pending is not None:
            await pending

    async def settled(self) -> None:
        """After `close`: wait until what is being written has its outcome."""
        await self._keeper.settled()

    def close(self) -> None:
        self._closed = True
        self._reset("closed")
        self._keeper.close()
        self.peer.remove(self)

    def _not_written(self, failure: BaseException) -> None:
        self.topic.failed(failure)
