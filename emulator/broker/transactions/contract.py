"""What a transaction's coordinator and its participants owe each other (docs/components/transactions.md).

A participant is a topic that a transaction publishes to, or a subscription that it acknowledges at. The coordinator
finds a topic through the region's directory, which loads it if need be, and a subscription in its topic. A topic or
subscription that does not exist has nothing to end: that counts as told.

    T1  The coordinator knows a participant durably before the participant takes anything of the transaction:
        `check_publish` and `check_acknowledge` say so, and are asked before each message and acknowledgement.
    T2  `end_*` is called only when the decision is durable. It may be called more than once, also for a transaction
        that the participant never heard of, or has ended: then it returns at once.
    T3  `end_*` is done when the outcome is durable at the participant. If it fails (StorageError, ProtocolError), it
        is called again later, for ever, also after a restart of the region.
    T4  The coordinator says "over" (COMMITTED, ABORTED) only when every participant has returned. So a participant that
        holds an open transaction of which `status` is None must abort it: nobody was ever told that it committed.
    T5  Coordinators are ready before the first topic is loaded.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from emulator.core.transactions.names import TransactionStatus, TxnId


class PartitionParticipant(Protocol):
    """A topic, as the coordinator of a transaction sees it. `broker.topic.topic.Topic` is one."""

    def end_partition(self, txn: TxnId, committed: bool, low_watermark: int) -> asyncio.Future[None]:
        """Write the marker, unless there is one. Done when it is durable (T2, T3); not to be cancelled.

        `low_watermark`: all transactions of this coordinator whose number is at most this are over; -1: none is known
        to be.
        """
        ...


class SubscriptionParticipant(Protocol):
    """A subscription, seen likewise. `broker.subscription.subscription.Subscription` is one."""

    async def end_subscription(self, txn: TxnId, committed: bool, low_watermark: int) -> None:
        """Apply the pending acknowledgements, or drop them; durable when it returns (T2, T3)."""
        ...


class TransactionAuthority(Protocol):
    """The coordinators of a region, as participants see them. Nothing here waits. `RegionServices.transactions`."""

    def status(self, txn: TxnId) -> TransactionStatus | None:
        """None: never heard of, or forgotten. See T4. ProtocolError ServiceNotReady while its coordinator, whose store
        failed, is being loaded again: nothing may be presumed then."""
        ...

    def check_publish(self, txn: TxnId, topic: str) -> None:
        """ProtocolError unless the transaction is open and the topic (full name) was added to it: NotAllowedError,
        which fails the message alone, or ServiceNotReady. To be asked for each SEND with a transaction: a
        dictionary's look-up."""
        ...

    def check_acknowledge(self, txn: TxnId, topic: str, subscription: str) -> None:
        """The same for an ACK."""
        ...

    def abort(self, txn: TxnId, why: str) -> None:
        """Have a transaction aborted, if it is open; its participants are told as ever. Nobody waits for it."""
        ...
