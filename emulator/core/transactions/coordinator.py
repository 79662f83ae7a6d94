"""One transaction coordinator: its transactions and their legal operations (docs/components/transactions.md).

Each operation changes the state at once and returns the journal entry that records the change. The broker makes the
entry durable before it responds to the client. When that fails, the whole coordinator is loaded again from the store,
so clients never receive a state that the journal lacks. After a restart `apply` builds the same state from the same
entries.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, TypeVar

from emulator.core.transactions.journal_format import (
    Began,
    Checkpoint,
    Decided,
    Holder,
    JournalEntry,
    PartitionsAdded,
    SubscriptionsAdded,
    TransactionEnded,
    name_bytes,
)
from emulator.core.transactions.live import Deadlines, KeyTransaction, LiveTransaction, TransactionOutcome
from emulator.errors import EXPIRED_TRANSACTION, ProtocolError, ServerError
from emulator.model.transaction_names import FOLLOWS, TransactionStatus, TxnId

_OPEN: Final = TransactionStatus.OPEN
P = TypeVar("P", str, tuple[str, str])
"""A participant: a topic, or (topic, subscription)."""
REQUESTED: Final = "requested by its client"
TIMED_OUT: Final = "timed out"
FENCED: Final = "fenced"
"""Beginning of the reason when a newer connection has the transaction's key, the key began another transaction, or it
was deleted. Later requests for the transaction fail as expired."""
BY_OPERATOR: Final = "requested by an operator"
PARTICIPANT_BYTES: Final = 256
"""Memory of one participant, besides its name."""
PARTICIPANTS_BYTES_MAX: Final = 33_554_432
"""Maximum memory of all participants of one coordinator's live transactions, whose names clients choose. A checkpoint
is one append: this is half its maximum, and the other half is for outcomes, times and the keys of transactions."""


@dataclass(frozen=True, slots=True)
class CoordinatorLimits:
    """Limits of one coordinator."""

    open_max: int
    participants_max: int
    """Maximum number of topics and subscriptions of one transaction."""
    timeout_ms_max: int
    outcomes_max: int
    outcome_ms: int


class Coordinator:
    """A transaction coordinator of one region. Times are milliseconds of any monotonic clock, except `opened_at_ms`."""

    def __init__(self, number: int, bounds: CoordinatorLimits) -> None:
        self.number = number
        self.bounds = bounds
        self.next_least = 0
        self.live: dict[int, LiveTransaction] = {}
        """Number -> live transaction, the oldest first. INV-54: every number below `next_least` that is not a key here
        is of a transaction that is over."""
        self.outcomes: OrderedDict[int, TransactionOutcome] = OrderedDict()
        """Number -> remembered outcome, the newest last."""
        self._deadlines = Deadlines()
        self._by_key: dict[tuple[str, str], dict[int, None]] = {}
        """(owner, key) -> numbers of its transactions in `live`."""
        self._participants_bytes = 0
        """Memory of the participants of all transactions in `live`."""

    # State.

    @property
    def low_watermark(self) -> int:
        """Number up to which every transaction is over; -1: there is none."""
        return next(iter(self.live), self.next_least) - 1

    def status(self, least: int) -> TransactionStatus | None:
        """Return the status of a transaction; None: it never began, or its outcome is forgotten."""
        transaction = self.live.get(least)
        if transaction is not None:
            return transaction.status
        outcome = self.outcomes.get(least)
        return None if outcome is None else outcome.status

    def transaction(self, least: int) -> LiveTransaction:
        """Return an open transaction. Raises ProtocolError, with the code for its client, when it is not open."""
        live = self.live.get(least)
        if live is not None and live.status is _OPEN:
            return live
        txn = TxnId(self.number, least)
        found = live or self.outcomes.get(least)
        if found is None:
            what = (
                "has ended, and its outcome is no longer stored"
                if least < self.next_least
                else "was never begun"
            )
            raise ProtocolError(ServerError.TransactionNotFound, f"transaction {txn.text} {what}")
        raise _decided(txn, found.status, found.why)

    def check_publish(self, least: int, topic: str) -> None:
        """Raise ProtocolError unless the transaction is open and the topic's addition is durable (TP1)."""
        transaction = self.transaction(least)
        if not transaction.topics.get(topic, False):
            raise _not_added(transaction.txn, f"topic {topic}")

    def check_acknowledge(self, least: int, topic: str, subscription: str) -> None:
        """Raise ProtocolError unless the transaction is open and the subscription's addition is durable (TP1)."""
        transaction = self.transaction(least)
        if not transaction.subscriptions.get((topic, subscription), False):
            raise _not_added(transaction.txn, f"subscription {subscription} of {topic}")

    # Requests of clients.

    def begin(
        self, timeout_ms: int, opened_at_ms: int, holder: Holder | None, now_ms: float, owner: str = ""
    ) -> Began:
        """Begin a transaction. Raises ProtocolError as `check_begin`. `timeout_ms`: 0 means the maximum."""
        self.check_begin(timeout_ms)
        timeout_ms = timeout_ms or self.bounds.timeout_ms_max
        owner = owner if holder is None else holder.owner
        entry = Began(self.next_least, timeout_ms, opened_at_ms, holder, owner)
        self._apply_began(entry, now_ms)
        return entry

    def check_owner(self, least: int, role: str) -> None:
        """Raise ProtocolError, with Pulsar's code, if another role began this transaction. One that is over has no
        owner: requests for it change nothing."""
        transaction = self.live.get(least)
        if transaction is not None and transaction.owner not in ("", role):
            raise ProtocolError(
                ServerError.TransactionNotFound,
                f"role {role!r} is neither the owner of transaction {transaction.txn.text} nor a superuser",
            )

    def check_begin(self, timeout_ms: int) -> None:
        """Raise ProtocolError when there are too many transactions, or the timeout is negative or over its maximum."""
        if not 0 <= timeout_ms <= self.bounds.timeout_ms_max:
            sentence = f"a time-out of {timeout_ms} ms is over the limit of {self.bounds.timeout_ms_max} ms"
            raise ProtocolError(ServerError.NotAllowedError, sentence)
        if len(self.live) >= self.bounds.open_max:
            sentence = f"coordinator {self.number} has {len(self.live)} open transactions, the limit"
            raise ProtocolError(ServerError.TooManyRequests, sentence)

    def add_partitions(self, least: int, topics: Iterable[str]) -> PartitionsAdded | None:
        """Add topics to a transaction; None: it has them all. ProtocolError: not open, or too many participants."""
        transaction = self.transaction(least)
        known = transaction.topics
        new = tuple([topic for topic in dict.fromkeys(topics) if topic not in known])
        size_bytes = _topics_bytes(new)
        self._check_participants(transaction, len(new), size_bytes)
        if not new:
            return None
        self._add(transaction, known, new, size_bytes)
        return PartitionsAdded(least, new)

    def add_subscriptions(
        self, least: int, subscriptions: Iterable[tuple[str, str]]
    ) -> SubscriptionsAdded | None:
        """Add subscriptions, (topic, subscription), to a transaction, as `add_partitions` does."""
        transaction = self.transaction(least)
        new = tuple(each for each in dict.fromkeys(subscriptions) if each not in transaction.subscriptions)
        size_bytes = _subscriptions_bytes(new)
        self._check_participants(transaction, len(new), size_bytes)
        if not new:
            return None
        self._add(transaction, transaction.subscriptions, new, size_bytes)
        return SubscriptionsAdded(least, new)

    def _check_participants(self, transaction: LiveTransaction, more: int, size_bytes: int) -> None:
        if transaction.participants + more > self.bounds.participants_max:
            sentence = (
                f"transaction {transaction.txn.text} may have {self.bounds.participants_max} topics and "
                "subscriptions"
            )
            raise ProtocolError(ServerError.NotAllowedError, sentence)
        if more and self._participants_bytes + size_bytes > PARTICIPANTS_BYTES_MAX:
            sentence = (
                f"the topics and subscriptions of coordinator {self.number}'s open transactions need "
                f"{self._participants_bytes} bytes; {PARTICIPANTS_BYTES_MAX} are the limit"
            )
            raise ProtocolError(ServerError.NotAllowedError, sentence)

    def decide(self, least: int, *, commit: bool, why: str) -> Decided | None:
        """Commit or abort a transaction; None: it has that outcome. ProtocolError: it has the other one (TX3)."""
        wanted = TransactionStatus.COMMITTING if commit else TransactionStatus.ABORTING
        status = self.status(least)
        if status in (wanted, FOLLOWS[wanted]):
            return None
        transaction = self.transaction(least)
        transaction.status, transaction.why = wanted, why
        return Decided(least, wanted, why)

    def end(self, least: int, now_ms: float) -> TransactionEnded:
        """End a decided transaction whose outcome every participant has confirmed."""
        transaction = self.live[least]
        entry = TransactionEnded(least, FOLLOWS[transaction.status], transaction.why)
        self._apply_ended(entry, now_ms)
        return entry

    # Time.

    def due(self, now_ms: float) -> list[int]:
        """Return the numbers of open transactions that timed out. Each is returned once."""
        return self._deadlines.pop_due(now_ms, self.live)

    @property
    def next_due_ms(self) -> float | None:
        """Time at which to call `due` next; None: there is no deadline."""
        return self._deadlines.next_ms(self.live)

    # Keys.

    def of_key(self, owner: str, key: str) -> list[LiveTransaction]:
        """Return the live transactions of a key. At most one of them is open (INV-57)."""
        return [self.live[least] for least in self._by_key.get((owner, key), ())]

    def known_of_key(self, owner: str, key: str) -> list[KeyTransaction]:
        """Return the transactions of a key that are live or whose outcome is remembered, sorted by number."""
        over = [
            (least, outcome.holder, outcome.status, outcome.why) for least, outcome in self.outcomes.items()
        ]
        live = [(one.txn.least, one.holder, one.status, one.why) for one in self.of_key(owner, key)]
        return [
            KeyTransaction(TxnId(self.number, least), holder.epoch, status, why)
            for least, holder, status, why in sorted([*over, *live], key=itemgetter(0))
            if holder is not None and (holder.owner, holder.key) == (owner, key)
        ]

    # The journal.

    def apply(self, entry: JournalEntry, now_ms: float) -> None:
        """Apply a stored entry to the state. KeyError: an addition or decision for no live transaction."""
        match entry:
            case Began():
                self._apply_began(entry, now_ms)
            case PartitionsAdded():
                transaction = self.live[entry.least]
                self._add(transaction, transaction.topics, entry.topics, _topics_bytes(entry.topics))
            case SubscriptionsAdded():
                transaction, new = self.live[entry.least], entry.subscriptions
                self._add(transaction, transaction.subscriptions, new, _subscriptions_bytes(new))
            case Decided():
                transaction = self.live[entry.least]
                transaction.status, transaction.why = entry.status, entry.why
            case TransactionEnded():
                self._apply_ended(entry, now_ms)
            case Checkpoint():
                self.live.clear()
                self._by_key.clear()
                self.outcomes.clear()
                self._deadlines.clear()
                self._participants_bytes = 0
                self.next_least = entry.next_least

    def _apply_began(self, entry: Began, now_ms: float) -> None:
        deadline_ms = now_ms + entry.timeout_ms
        transaction = LiveTransaction(
            TxnId(self.number, entry.least),
            entry.timeout_ms,
            entry.opened_at_ms,
            entry.holder,
            deadline_ms,
            entry.owner,
        )
        self._deadlines.add(transaction, self.live)
        self.live[entry.least] = transaction
        if entry.holder is not None:
            self._by_key.setdefault((entry.holder.owner, entry.holder.key), {})[entry.least] = None
        self.next_least = max(self.next_least, entry.least + 1)

    def _add(
        self, transaction: LiveTransaction, known: dict[P, bool], new: Iterable[P], size_bytes: int
    ) -> None:
        """Add participants to a transaction that are not durable yet (TP1)."""
        known.update(dict.fromkeys(new, False))
        transaction.participants_bytes += size_bytes
        self._participants_bytes += size_bytes

    def _apply_ended(self, entry: TransactionEnded, now_ms: float) -> None:
        ended = self.live.pop(entry.least, None)
        self._unindex(ended)
        self._remember(entry, entry.holder if ended is None else ended.holder, now_ms)

    def _unindex(self, transaction: LiveTransaction | None) -> None:
        if transaction is None:
            return
        self._participants_bytes -= transaction.participants_bytes
        if transaction.holder is None:
            return
        of_key = (transaction.holder.owner, transaction.holder.key)
        others = self._by_key[of_key]
        del others[transaction.txn.least]
        if not others:
            del self._by_key[of_key]

    def _remember(self, entry: TransactionEnded, holder: Holder | None, now_ms: float) -> None:
        until_ms = now_ms + self.bounds.outcome_ms
        self.outcomes[entry.least] = TransactionOutcome(entry.status, entry.why, until_ms, holder)
        self.next_least = max(self.next_least, entry.least + 1)
        while self.outcomes:
            least, oldest = next(iter(self.outcomes.items()))
            if len(self.outcomes) <= self.bounds.outcomes_max and oldest.until_ms > now_ms:
                break
            del self.outcomes[least]

    def mark_durable(self, entry: JournalEntry) -> None:
        """Mark the participants that an entry adds as durable (TP1). Other entries have no effect."""
        match entry:
            case PartitionsAdded() if (transaction := self.live.get(entry.least)) is not None:
                transaction.topics.update(dict.fromkeys(entry.topics, True))
            case SubscriptionsAdded() if (transaction := self.live.get(entry.least)) is not None:
                transaction.subscriptions.update(dict.fromkeys(entry.subscriptions, True))

    def checkpoint_entries(self) -> Iterator[JournalEntry]:
        """Yield a checkpoint: the entries from which `apply` builds this state (TX7)."""
        yield Checkpoint(self.next_least)
        for least, outcome in self.outcomes.items():
            yield TransactionEnded(least, outcome.status, outcome.why, outcome.holder)
        for least, transaction in self.live.items():
            yield Began(
                least,
                transaction.timeout_ms,
                transaction.opened_at_ms,
                transaction.holder,
                transaction.owner,
            )
            if transaction.topics:
                yield PartitionsAdded(least, tuple(transaction.topics))
            if transaction.subscriptions:
                yield SubscriptionsAdded(least, tuple(transaction.subscriptions))
            if transaction.status is not TransactionStatus.OPEN:
                yield Decided(least, transaction.status, transaction.why)


def _decided(txn: TxnId, status: TransactionStatus, why: str) -> ProtocolError:
    if why.startswith(FENCED):
        return ProtocolError(ServerError.NotAllowedError, f"{EXPIRED_TRANSACTION} {txn.text}: {why}")
    return ProtocolError(ServerError.InvalidTxnStatus, f"transaction {txn.text} is {status.name} ({why})")


def _not_added(txn: TxnId, what: str) -> ProtocolError:
    return ProtocolError(ServerError.InvalidTxnStatus, f"{what} was not added to transaction {txn.text}")


def _topics_bytes(topics: Iterable[str]) -> int:
    return sum([PARTICIPANT_BYTES + name_bytes(topic) for topic in topics])


def _subscriptions_bytes(subscriptions: Iterable[tuple[str, str]]) -> int:
    return sum(PARTICIPANT_BYTES + name_bytes(topic) + name_bytes(name) for topic, name in subscriptions)
