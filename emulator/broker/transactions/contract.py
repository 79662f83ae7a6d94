"""The contract between a transaction's coordinator and its participants (docs/components/transactions.md).

A participant is a topic that a transaction publishes to, or a subscription that it acknowledges at. The coordinator
finds a topic through the region's directory, which loads it if necessary, and a subscription in its topic. A topic or
subscription that does not exist counts as confirmed.

    TP1  The coordinator knows a participant durably before the participant accepts anything of the transaction:
        `check_publish` and `check_acknowledge` verify it before each message and acknowledgement.
    TP2  `end_*` is called only when the decision is durable. It may be called more than once, also for a transaction
        that is unknown to the participant, or has ended there: then it changes nothing.
    TP3  `end_*` completes when the outcome is durable at the participant; a subscription confirms an abort earlier
        (PA8). If it fails (StorageError, ProtocolError), the coordinator calls it again until it succeeds, also after a
        restart of the region.
    TP4  The coordinator returns "over" (COMMITTED, ABORTED) only when every participant has confirmed. So a participant
        that holds an open transaction of which `status` is None must abort it: no client received a commit of it.
    TP5  Coordinators are loaded before the first topic.

`TopicTransactions.end_partition` writes the marker, unless there is one; `Subscription.end_subscription` applies the
pending acknowledgements, or drops them. All transactions of this coordinator with numbers up to `low_watermark` are
over; -1: none is known to be over.
"""

from __future__ import annotations

from typing import Protocol

from emulator.model.transaction_names import TransactionStatus, TxnId


class TransactionAuthority(Protocol):
    """The coordinators of a region, as participants see them (`RegionServices.coordinators`). No method waits."""

    def status(self, txn: TxnId) -> TransactionStatus | None:
        """Return the status of a transaction; None: unknown or forgotten (TP4). ProtocolError ServiceNotReady while its
        coordinator is being loaded again after a failure, or cannot be loaded: then the outcome is unknown."""
        ...

    def check_publish(self, txn: TxnId, topic: str) -> None:
        """Raise ProtocolError unless the transaction is open and the topic (full name) was durably added to it:
        NotAllowedError, which fails only this message, or ServiceNotReady. Called for each SEND with a transaction."""
        ...

    def check_acknowledge(self, txn: TxnId, topic: str, subscription: str) -> None:
        """Raise ProtocolError unless the transaction is open and the subscription was durably added to it. Called for
        each ACK with a transaction."""
        ...

    def abort(self, txn: TxnId, why: str) -> None:
        """Abort a transaction if it is open and its coordinator is loaded; otherwise do nothing. The participants are
        notified later."""
        ...
