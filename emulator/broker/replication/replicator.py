"""Sends the messages published to one topic in this region to one other region: connects `ReplicatorLifecycle` and
`ReplicationProgress` to the link."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from emulator.broker.replication.backlog_parts import LIVE_ENTRIES, BacklogParts
from emulator.broker.replication.replicator_state import (
    RETRY_SECONDS,
    RETRY_SECONDS_MAX,
    ReplicationRate,
    RetryTimer,
    StoredProgress,
)
from emulator.broker.replication.schema_wait import SchemaWait
from emulator.broker.replication.sending import RunsToSend, replicas_from
from emulator.broker.topic.metrics import Traffic
from emulator.broker.topic.new_entries import EntryGroup, GroupSlice, first_id, id_at
from emulator.broker.topic.stored_entry import PlainReplica
from emulator.core.flow.failure_detector import FailureDetector
from emulator.core.replication.progress import Forwarding, ReplicatorLifecycle, ReplicatorState
from emulator.errors import ServerError, StorageError
from emulator.model.reasons import NO_REASON, Cause, Reason
from emulator.model.values import Position
from emulator.wire.message_metadata import schema_version

if TYPE_CHECKING:
    from emulator.broker.replication.entry_forms import LogForms
    from emulator.broker.replication.link import PeerLink
    from emulator.broker.topic.new_entries import NewEntries
    from emulator.broker.topic.stored_entry import StoredEntry
    from emulator.broker.topic.view import TopicView
    from emulator.wire.codec_hot.send_runs import Run
    from emulator.wire.message_metadata import EntryInfo

logger = logging.getLogger(__name__)

READ_BYTES = 4_194_304
OPEN_SECONDS = 30.0
"""Maximum time that the replicator waits for a producer of the remote region."""


class Replicator:
    """Replicates one topic, which owns this object, to one remote region. A `LinkUser`."""

    def __init__(self, topic: TopicView, peer: PeerLink) -> None:
        components = topic.region.environment.components.replication
        self.topic = topic
        self.peer = peer
        self.remote = peer.config.region
        self.producer_id = 0
        self.sends_runs = False
        """Whether the remote region accepts runs of messages in the present stream."""
        self._stored = StoredProgress(topic, self.remote)
        self.progress = self._stored.progress
        self.lifecycle = ReplicatorLifecycle()
        self.lifecycle.link_lost(self._link_is_down())
        self._schemas = SchemaWait(
            topic,
            self.remote,
            self.lifecycle,
            components.schema_numbers(topic.region.schemas, topic.name, peer),
            self.pump,
        )
        self._forwarding = components.forwarding
        self.since_ms = topic.region.environment.wall_clock_ms()
        """Time at which it last connected or disconnected, by the region's clock."""
        self.sent = Traffic(asyncio.get_running_loop().time())
        self._receipts = FailureDetector()
        """Whether receipts arrive for the entries in flight."""
        self._retry_seconds = RETRY_SECONDS
        self._retry = RetryTimer(self._retry_due)
        """Timer that runs in the states OPENING and REFUSED only."""
        self.rate = ReplicationRate(topic, self.pump)
        self._backlog_parts = BacklogParts()

    @property
    def backlog(self) -> int:
        """Number of entry ids that the remote region has not confirmed; entries that are not replicated count until
        they are skipped."""
        return max(0, self.topic.state.replicable_end - 1 - self.progress.confirmed)

    @property
    def announces_partition(self) -> bool:
        """Whether the topic is a partition that the remote region may not know yet."""
        return self.topic.name.partitioned is not None and not self._stored.is_known_there

    # Events of the link.

    def link_up(self) -> None:
        self._open()

    def link_down(self) -> None:
        self._end_stream(self.lifecycle.link_lost, self._link_is_down())
        self.topic.subscriptions.link_lost(self.remote)

    def producer_ready(self, *, accepts_runs: bool) -> None:
        if not self.lifecycle.begin_stream():
            return
        self.sends_runs = accepts_runs
        self._retry.stop()
        self.since_ms = self.topic.region.environment.wall_clock_ms()
        self._retry_seconds = RETRY_SECONDS
        self._backlog_parts.begin_stream(self.topic.state.replicable_end)
        self._stored.opened()
        self.pump()
        self.topic.subscriptions.links_changed()

    def refused(self, message: str) -> None:
        """Open the producer again later, because the remote region rejected or closed it. Sending then resumes after
        the confirmed entries."""
        self._open_later(Cause.REPLICATOR_REFUSED(region=self.remote, message=message))

    def _open_later(self, why: Reason) -> None:
        if self._end_stream(self.lifecycle.refuse, why):
            self._retry.start(self._retry_seconds)
            self._retry_seconds = min(self._retry_seconds * 2, RETRY_SECONDS_MAX)

    def entry_refused(self, code: ServerError, message: str) -> None:
        """Handle a rejected entry: park if it is not allowed, otherwise open the producer again. Until then the remote
        region rejects all later entries, too."""
        if code is ServerError.NotAllowedError:
            self._park(Cause.ENTRY_REFUSED(region=self.remote, message=message))
        else:
            self.refused(message)

    def _park(self, why: Reason) -> None:
        """Stop sending this topic until the link or the topic is opened again: the remote region would reject the same
        entry again. Its limits are settings, which change only with a restart."""
        if self._end_stream(self.lifecycle.park, why):
            logger.error("%s: %s", self.topic.full_name, self.lifecycle.why_not)

    def _open(self) -> None:
        """Open the producer if the state requires it."""
        if self.peer.connected and self.lifecycle.begin_opening(Cause.PRODUCER_ASKED(region=self.remote)):
            self._retry.start(OPEN_SECONDS)
            self.peer.open_producer(self, self.topic.full_name)

    def _retry_due(self) -> None:
        """Open the producer again, or give up an unanswered request, depending on the state."""
        if self.lifecycle.state is ReplicatorState.OPENING:
            self._open_later(Cause.PRODUCER_UNANSWERED(region=self.remote, seconds=OPEN_SECONDS))
        elif self.lifecycle.state is ReplicatorState.REFUSED:
            self._open()

    def _end_stream(self, move: Callable[[Reason], bool], why: Reason) -> bool:
        """Make a state transition that ends the stream; unconfirmed entries are sent again in the next stream. Returns
        False, and changes nothing, when the state does not allow the transition."""
        was_connected = self.lifecycle.is_connected
        if not move(why):
            return False
        if was_connected:
            self.since_ms = self.topic.region.environment.wall_clock_ms()
        self._retry.stop()
        self.progress.reset()
        self._schemas.versions.forget()
        return True

    def receipts(self, receipts: Sequence[tuple[int, int, int]]) -> None:
        """Handle receipts of the remote region, in this order: (ledger, entry, number of entries) of the local log."""
        if not self.lifecycle.is_connected:
            return
        if not self.progress.received(self.topic.ledger_id, receipts):
            logger.warning(
                "region %s acknowledged entries of %s out of order", self.remote, self.topic.full_name
            )
            self._open_later(Cause.RECEIPT_OUT_OF_TURN(region=self.remote))
            return
        self._receipts.heard()
        self._stored.changed()

    def interval_over(self) -> None:
        """Open the producer again if entries are in flight and no receipt arrives: a lost receipt, or a lost last
        entry, would otherwise be noticed only when the next entry is sent."""
        if not self.lifecycle.is_connected or not self.progress.in_flight:
            self._receipts.heard()
        elif self._receipts.interval_over():
            self._open_later(Cause.RECEIPT_MISSING(region=self.remote, entries=self.progress.in_flight))

    # Sending.

    def rest(self) -> None:
        """Close the remote producer of an inactive topic until there are entries to send. No effect with a backlog, or
        unless the state is STREAMING."""
        if not self.backlog and self._end_stream(
            self.lifecycle.rest, Cause.REPLICATOR_RESTS(region=self.remote)
        ):
            self.peer.remove(self)
            self.topic.subscriptions.link_lost(self.remote)

    def wake(self) -> None:
        """Open the remote producer again. No effect unless the replicator rests."""
        if self.lifecycle.wake(self._link_is_down()):
            self.peer.add(self)

    def entries_stored(self, entries: NewEntries) -> None:
        """Handle the entries of one append, as `pump` does. If they are the next ones and none of them is for the
        remote region, they need not be read: most appends are messages or markers of other regions."""
        if not self._passes_over(entries):
            self.pump()
            return
        progress = self.progress
        confirmed = progress.confirmed
        progress.skipped(progress.next_entry_id + entries.entry_count - 1)
        if progress.confirmed != confirmed:
            self._stored.changed()

    def _passes_over(self, entries: NewEntries) -> bool:
        """Whether `pump` would pass over exactly these new entries, without reading the store."""
        begin = self.progress.next_entry_id
        return (
            self.lifecycle.state is ReplicatorState.STREAMING
            and self.peer.writable
            and self.progress.room > 0
            and self.rate.throttle is None
            and first_id(entries.parts[0]) == begin >= self.topic.reading.cache.start_entry_id
            and self.topic.state.replicable_end == begin + entries.entry_count
            and not self._sends_any(entries)
        )

    def _sends_any(self, entries: NewEntries) -> bool:
        """Whether any of the entries is for the remote region."""
        for part in entries.parts:
            if isinstance(part, EntryGroup):
                origin = part.replicated_from
                if self._forwarding(self.remote, origin, (), None) is Forwarding.SEND:
                    return True
                continue
            for entry in part:
                if self._forwards(entry.info):
                    return True
        return False

    def _forwards(self, info: EntryInfo) -> bool:
        decision = self._forwarding(self.remote, info.replicated_from, info.replicate_to, info.marker_type)
        return decision is Forwarding.SEND

    def pump(self) -> None:
        """Send as many entries as the window, the rate limit and the connection allow. Wakes a resting replicator that
        has a backlog."""
        if self.lifecycle.state is ReplicatorState.RESTING and self.backlog:
            self.wake()
        while self.lifecycle.state is ReplicatorState.STREAMING and self.peer.writable:
            if self.progress.next_entry_id >= self.topic.state.replicable_end:
                return
            self._pass_groups()
            start, end = self.progress.next_entry_id, self.topic.state.replicable_end
            if start >= end or (room := self.progress.room) <= 0:
                return
            if self.rate.throttle is not None:
                if self.rate.wait_if_limited():
                    return
                room = self.rate.throttle.portion(room)
            is_live = end - start <= LIVE_ENTRIES
            parts = self.topic.reading.recent_parts(start, min(room, LIVE_ENTRIES)) if is_live else None
            if parts is None:
                if self.progress.in_flight >= self._backlog_parts.in_flight_max:
                    return  # the next receipt continues
                read = self.lifecycle.begin_read()
                count = min(room, self._backlog_parts.next_part(end))
                self.topic.region.spawn(self._read_and_send(start, count, read))
                return
            self._send(parts)
            if self.progress.next_entry_id in (start, end):
                return  # There is no further entry, or the next one is too large and waits for receipts.

    def _pass_groups(self) -> None:
        """Pass over the groups that other regions sent, without reading their messages."""
        progress, end = self.progress, self.topic.state.replicable_end
        confirmed = progress.confirmed
        while progress.next_entry_id < end:
            group = self.topic.reading.group_with(progress.next_entry_id)
            if group is None or group.replicated_from is None:
                break
            if self._forwarding(self.remote, group.replicated_from, (), None) is Forwarding.SEND:
                break
            progress.skipped(min(group.end_entry_id, end) - 1)
        if progress.confirmed != confirmed:
            self._stored.changed()

    async def _read_and_send(self, start: int, entries_max: int, read: int) -> None:
        try:
            await self.topic.region.resources.appends.let_pass()
            parts = await self.topic.reading.read_parts(start, entries_max, READ_BYTES)
            if self.lifecycle.end_read(read):
                self._send(parts)
                if self.progress.next_entry_id > start:
                    self.pump()  # otherwise the next entry is too large and waits for receipts
        except Exception as failure:  # any: otherwise the replicator would wait for this read for ever
            self.topic.failed(failure)
            if not isinstance(failure, StorageError):
                raise

    def _send(self, parts: Sequence[Sequence[StoredEntry]]) -> None:
        """Send entries, in parts as those of `TopicReading.recent_parts`, as far as the window allows."""
        progress, forms, ledger_id = self.progress, self.topic.region.resources.forms, self.topic.ledger_id
        in_runs = self.sends_runs and not self.peer.needs_single_frames
        log = forms.of_log(ledger_id, in_runs=in_runs)
        confirmed = progress.confirmed
        sends = RunsToSend(self.producer_id, progress, self.peer.entry_bytes_max)
        skipped_up_to = -1
        for entries in parts:
            done, skipped_in_part = self._add_part(entries, log, sends)
            skipped_up_to = max(skipped_up_to, skipped_in_part)
            if done < len(entries):
                break
        forms.trim()
        if skipped_up_to >= progress.next_entry_id:
            progress.skipped(skipped_up_to)
        if progress.confirmed != confirmed:
            self._stored.changed()
        if sends.parts:
            frames = b"".join(sends.parts)
            self.sent.add(sends.messages, sends.size_bytes)
            self.rate.count(sends.messages, sends.size_bytes)
            self.peer.write(frames)
        elif sends.too_large and not progress.in_flight:
            self._park(
                Cause.ENTRY_TOO_LARGE(
                    region=self.remote,
                    position=Position(ledger_id, progress.next_entry_id),
                    size=sends.too_large,
                    limit=self.peer.entry_bytes_max,
                )
            )

    def _add_part(self, entries: Sequence[StoredEntry], log: LogForms, sends: RunsToSend) -> tuple[int, int]:
        """Add the entries of one part to those that are sent. Return how many were added or skipped, and the id of the
        last one that was skipped; -1: none was."""
        at, skipped_up_to = 0, -1
        while at < len(entries) and self.progress.room > 0:
            run = log.plain_run(entries, at)
            skipped = self._skipped(entries, at, run)
            if skipped:
                at += skipped
                skipped_up_to = id_at(entries, at - 1)
                continue
            run = run or self._form_of(entries[at], log)
            sent = 0 if run is None else sends.add(run, id_at(entries, at), len(entries) - at)
            if not sent:
                break
            at += sent
        return at, skipped_up_to

    def _skipped(self, entries: Sequence[StoredEntry], at: int, run: Run | None) -> int:
        """Return the number of entries from this index on that are not sent to the remote region; 0: this one is.
        `run`: the run that contains it, if it is a plain message that originated here."""
        if run is not None:
            return int(self._forwarding(self.remote, None, (), None) is not Forwarding.SEND)
        if isinstance(entries, GroupSlice) and (origin := entries.replicated_from) is not None:
            is_sent = self._forwarding(self.remote, origin, (), None) is Forwarding.SEND
            return 0 if is_sent else len(entries) - at
        entry = entries[at]
        if isinstance(entry, PlainReplica):
            origin = entry.replicated_from
            if self._forwarding(self.remote, origin, (), None) is Forwarding.SEND:
                return 0
            return replicas_from(entries, at, origin)
        return int(not self._forwards(entry.info) or (entry.hidden and entry.is_aborted))

    def _form_of(self, entry: StoredEntry, plain: LogForms) -> Run | None:
        """Return the form of an entry; None, and request its schema's version in the remote region, if that is not
        known. `plain`: the forms of the log's entries without schema."""
        found = plain.find(entry.entry_id)
        if found is not None:
            return found
        version = schema_version(entry.data, entry.info.payload_offset)
        if not version:
            return plain.add(entry)
        remote = self._schemas.versions.remote_version(version)
        if remote is None:
            self._schemas.begin(version)
            return None
        log = self.topic.region.resources.forms.of_log(self.topic.ledger_id, remote)
        return log.find(entry.entry_id) or log.add(entry, None if remote == version else remote)

    # Explanations.

    def why_not(self) -> Reason:
        """Return why the remote region lacks entries, or would not receive new ones; empty when neither is the case."""
        if self.lifecycle.why_not or not self.backlog:
            return self.lifecycle.why_not
        if self.progress.next_entry_id < self.topic.state.replicable_end:
            wait_ms = self.rate.wait_ms
            if wait_ms > 0:
                return Cause.REPLICATION_RATE(wait_ms=math.ceil(wait_ms))
            if not self.peer.writable:
                return Cause.LINK_FULL()
            if self.lifecycle.state is ReplicatorState.READING:
                return Cause.READING_STORE()
        return Cause.IN_FLIGHT(region=self.remote) if self.progress.in_flight else NO_REASON

    def _link_is_down(self) -> Reason:
        return Cause.LINK_DOWN(here=self.topic.region.config.region, region=self.remote)

    # Ending.

    async def flush(self) -> None:
        """Write pending progress, for an orderly stop."""
        pending = self._stored.writer.flush()
        if pending is not None:
            await pending

    async def settled(self) -> None:
        """After `close`: wait until the pending write is durable or has failed."""
        await self._stored.writer.settled()

    def close(self) -> None:
        self.lifecycle.close()
        self._retry.stop()
        self.rate.close()
        self.progress.reset()
        self._stored.writer.close()
        self.peer.remove(self)
