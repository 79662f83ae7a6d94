"""Replicates what subscriptions of one topic acknowledged beyond their positions (docs/components/individual-acks.md):
connects `IndividualAcks` and claims to the log, the cursors and timers. Exists only while the topic's switch
`replicate_individual_acks` is on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from emulator.broker.topic.view import TopicView
from emulator.core.cursor.cursor import Cursor
from emulator.core.policies.replicated_subscriptions import (
    INDIVIDUAL_ACK_INTERVAL,
    INDIVIDUAL_ACKS_MAX,
    REPLICATE_INDIVIDUAL_ACKS,
)
from emulator.core.replication.ack_claims import AckClaim, StoredClaim
from emulator.core.replication.individual_acks import (
    IndividualAcks,
    ReplicatedOrigins,
    SenderLog,
    apply_claims,
    apply_stored_claims,
)
from emulator.core.replication.origins import OriginLedger
from emulator.errors import StorageError
from emulator.model.markers import AckedEntries, SubscriptionUpdate

if TYPE_CHECKING:
    from emulator.broker.subscription.subscription import Subscription
    from emulator.broker.topic.stored_entry import StoredEntry

OBEYS = (REPLICATE_INDIVIDUAL_ACKS, INDIVIDUAL_ACK_INTERVAL, INDIVIDUAL_ACKS_MAX)
"""Policies that this module acts upon (PO1)."""
LOADED_ENTRIES: Final = 4_096
"""Number of newest entries whose origins are read from the log when the topic is loaded."""
READ_BYTES: Final = 1_048_576
ENTRIES_PER_STEP: Final = 100
APPLIED_AT_ONCE_MAX: Final = 4_000
"""Maximum number of entries in memory to which a claim is applied when it arrives; the dispatcher applies it to the
others when it reads them."""

Send = Callable[["Subscription", SubscriptionUpdate], None]
"""Sends an update once the cursor is durable as it is now."""


def is_on(topic: TopicView) -> bool:
    """Return whether a topic replicates individual acknowledgements."""
    return topic.policies.or_setting(REPLICATE_INDIVIDUAL_ACKS, topic.region.config.settings)


class _Sender:
    """The claims of one subscription, and when the next one is due."""

    def __init__(self, subscription: Subscription, machine: IndividualAcks) -> None:
        self.subscription = subscription
        self.machine = machine
        self.timer: asyncio.TimerHandle | None = None
        self.looked_at = 0.0
        """Time of the event loop at which a claim was last computed."""

    def close(self) -> None:
        self.subscription.stored_cursor.on_change = None
        if self.timer is not None:
            self.timer.cancel()


class TopicIndividualAcks:
    """The individual acknowledgements of the replicated subscriptions of one topic."""

    def __init__(self, topic: TopicView, send: Send) -> None:
        self._topic = topic
        self._send = send
        self._components = topic.region.environment.components.replication
        self._own = OriginLedger(topic.region.config.region, topic.ledger_id)
        self.policies_changed()
        self._origins = ReplicatedOrigins(topic.state.stored_end)
        self._senders: dict[str, _Sender] = {}
        self._is_loaded = False
        self._closed = False
        self.claims_received = 0
        """Number of claims of other regions, since the topic was loaded."""

    def policies_changed(self) -> None:
        """Apply the topic's policies to the next claims."""
        policies, settings = self._topic.policies, self._topic.region.config.settings
        self._interval = policies.or_setting(INDIVIDUAL_ACK_INTERVAL, settings) / 1000
        self._size_max = policies.or_setting(INDIVIDUAL_ACKS_MAX, settings)

    # Sending.

    def subscription_added(self, subscription: Subscription) -> None:
        """Send what the subscription acknowledged and acknowledges from now on."""
        machine = self._components.individual_acks(subscription.name)
        sender = self._senders[subscription.name] = _Sender(subscription, machine)
        subscription.stored_cursor.on_change = lambda: self._schedule(sender)
        self._schedule(sender)
        if not self._is_loaded:
            self._is_loaded = True
            self._topic.region.spawn(self._load_origins())

    def subscription_removed(self, name: str) -> None:
        sender = self._senders.pop(name, None)
        if sender is not None:
            sender.close()

    async def _load_origins(self) -> None:
        """Read the origins of entries that were stored before the topic was loaded."""
        end = self._topic.state.stored_end
        first = at = max(self._topic.reading.first_entry_id, end - LOADED_ENTRIES)
        found = []
        while at < end:
            try:
                entries = await self._topic.reading.read(at, end - at, READ_BYTES)
            except StorageError:
                return  # claims then contain no replicated entries from before the start
            if not entries:
                break
            found += [(entry.entry_id, entry.info) for entry in entries if entry.entry_id < end]
            at = entries[-1].entry_id + 1
        self._origins.prepend(first, found)

    def positions_sent(self, update: SubscriptionUpdate, base: int | None) -> None:
        """Note an update with the positions of a snapshot. `base`: entry id of its request; None: unknown."""
        sender = self._senders.get(update.subscription)
        if sender is not None:
            sender.machine.positions_sent(update.positions, base)

    def snapshot_completed(self, remotes: int) -> None:
        """Send the claims again if there are several remote regions: one may have stored claimed entries of another one
        only now."""
        if remotes > 1:
            for sender in self._senders.values():
                sender.machine.repeat()
                self._schedule(sender)

    def cursor_reset(self, subscription: Subscription) -> None:
        sender = self._senders.get(subscription.name)
        if sender is not None:
            sender.machine.cursor_reset(subscription.cursor.mark_delete)

    def skipped(self, subscription: Subscription) -> None:
        """Claim nothing that the broker skipped, for example expired messages (INV-37)."""
        sender = self._senders.get(subscription.name)
        if sender is not None:
            sender.machine.skipped_to(subscription.cursor.mark_delete)

    def _schedule(self, sender: _Sender) -> None:
        """Set a timer for the next claim, at most one per interval."""
        if sender.timer is None and not self._closed:
            loop = asyncio.get_running_loop()
            sender.timer = loop.call_at(
                max(loop.time(), sender.looked_at + self._interval), self._due, sender
            )

    def _due(self, sender: _Sender) -> None:
        sender.timer = None
        sender.looked_at = asyncio.get_running_loop().time()
        if self._closed or sender.subscription.closed:
            return
        first = self._topic.reading.first_entry_id
        log = SenderLog(self._own, first, self._topic.state.visibility.hidden, self._origins)
        update = sender.machine.next_update(sender.subscription.cursor, log, self._size_max)
        if update is not None:
            self._send(sender.subscription, update)
            self._origins.forget_below(1 + min(one.machine.base for one in self._senders.values()))

    # Receiving.

    def entries_stored(self, entries: Sequence[StoredEntry]) -> None:
        """Note the origins of durable entries. Called once for each entry, in log order."""
        for entry in entries:
            self._origins.stored(entry.entry_id, entry.info)

    def claim_stored(self, subscription: Subscription, source: str, acked: Sequence[AckedEntries]) -> None:
        """Apply a claim of region `source` to the entries that are in memory, and keep it for the others."""
        self.claims_received += 1
        claim = AckClaim.from_marker(acked, self._newest, self._size_max)
        sender = self._senders.get(subscription.name)
        if sender is not None:
            sender.machine.heard(source, claim)
        subscription.move(lambda cursor: self._apply(cursor, source, claim))
        self._moved(subscription)

    def _newest(self, region: str, ledger: int) -> int:
        """Return the highest entry id of an origin in this log; -1: there is none."""
        if (region, ledger) == self._own:
            return self._topic.state.readable_end - 1
        newest = self._topic.state.watermarks.highest(region)
        return newest.entry if newest.ledger == ledger else -1

    def _apply(self, cursor: Cursor, source: str, claim: AckClaim) -> None:
        state, reading = self._topic.state, self._topic.reading
        end, left = state.readable_end, APPLIED_AT_ONCE_MAX
        at = cursor.next_unacked(cursor.claims.first)
        is_whole = end == state.stored_end and not cursor.held
        while at < end:
            entries = reading.recent(at, ENTRIES_PER_STEP)
            if entries is None:
                at = cursor.next_unacked(max(at + 1, reading.cache.start_entry_id))
            if entries is None or left <= 0:
                is_whole = False
            if left <= 0 or entries == []:
                break
            for_step = entries or ()
            apply_claims(cursor, for_step, {source: claim}, self._own, self._components.never_reaches)
            left -= len(for_step)
            if for_step:
                at = cursor.next_unacked(for_step[-1].entry_id + 1)
        cursor.ack_hidden(state.visibility.hidden)
        left_over = None if is_whole or not claim else StoredClaim(claim, state.stored_end)
        cursor.version += cursor.claims.replace(source, left_over)

    def entries_read(self, subscription: Subscription, entries: Sequence[StoredEntry]) -> None:
        """Apply the stored claims to entries that are about to be dispatched."""
        subscription.move(lambda cursor: self._apply_stored(cursor, entries))
        self._moved(subscription)

    def _apply_stored(self, cursor: Cursor, entries: Sequence[StoredEntry]) -> None:
        apply_stored_claims(cursor, entries, self._own, self._components.never_reaches)
        cursor.ack_hidden(self._topic.state.visibility.hidden)

    def _moved(self, subscription: Subscription) -> None:
        """Send the position if a claim moved mark-delete past acknowledgements of consumers here."""
        if subscription.cursor.ahead_of_peers:
            self._topic.subscriptions.mark_delete_moved(subscription.name)

    # Reporting.

    @property
    def is_due(self) -> bool:
        """Whether a claim may be sent without a further acknowledgement."""
        return any(sender.timer is not None for sender in self._senders.values())

    def summary(self) -> dict[str, Any]:
        """Return the counters of claims."""
        machines = [sender.machine for sender in self._senders.values()]
        return {
            "individual_updates": sum(one.updates for one in machines),
            "individual_evicted": sum(one.evicted for one in machines),
            "individual_received": self.claims_received,
        }

    def close(self) -> None:
        self._closed = True
        for sender in self._senders.values():
            sender.close()
