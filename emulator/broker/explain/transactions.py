"""Explains transactions, transaction keys, and the transaction that blocks a topic's readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from emulator.broker.region import Region
from emulator.broker.topic.topic import Topic
from emulator.core.transactions.live import LiveTransaction
from emulator.model.explanations import Explanation
from emulator.model.reasons import NO_REASON, Cause, Reason
from emulator.model.transaction_names import SEPARATOR, TransactionStatus, TxnId, full_text
from emulator.model.values import Position

NAMED_MAX = 10
ExplanationBuilder = Callable[[str, int | None, Iterable[Reason]], Explanation]
"""Builds an explanation: (state of the object, ms since 1970 of the state's begin or None, reasons)."""


def known_transactions(region: Region) -> Iterable[tuple[str]]:
    """Yield the transactions of the loaded coordinators that have not ended, or whose outcome is still stored."""
    for coordinator in region.coordinators.loaded:
        for least in (*coordinator.core.live, *coordinator.core.outcomes):
            yield (TxnId(coordinator.number, least).text,)


def explain_transaction(region: Region, words: tuple[str, ...], build: ExplanationBuilder) -> Explanation:
    """Explain a known transaction."""
    coordinator_number, least = map(int, words[0].strip("()").split(","))
    coordinator = region.coordinators.get(coordinator_number)
    transaction = coordinator.core.live.get(least)
    if transaction is None:
        outcome = coordinator.core.outcomes[least]
        return build(f"{outcome.status.name}: {outcome.why}", None, [])
    summary = f"{transaction.status.name}; {_holder(transaction)}; {_participants(transaction)}"
    refused = coordinator.notifier.refused.get(least, {})
    return build(summary, transaction.opened_at_ms, _why_not_over(transaction, refused))


def _why_not_over(
    transaction: LiveTransaction, refused: Mapping[tuple[str, str | None], str]
) -> list[Reason]:
    if transaction.status is TransactionStatus.OPEN:
        return [Cause.TRANSACTION_NOT_ENDED(timeout_s=transaction.timeout_ms / 1000)]
    for (topic, subscription), failure in refused.items():
        participant = _participant(topic, subscription)
        return [Cause.PARTICIPANT_REFUSED(why=transaction.why, participant=participant, failure=failure)]
    return [Cause.PARTICIPANTS_PENDING(why=transaction.why)]


def known_keys(region: Region) -> Iterable[tuple[str]]:
    """Yield the keys of the loaded coordinators, as `geoemu transactions list-transaction-keys` prints them."""
    for coordinator in region.coordinators.loaded:
        for state in coordinator.keys.book.keys.values():
            yield (full_text(state.owner, state.key),)


def explain_key(region: Region, words: tuple[str, ...], build: ExplanationBuilder) -> Explanation:
    """Explain a known transaction key: its epoch, its last client, its newest transactions, and those that block it."""
    owner, _, key = words[0].rpartition(SEPARATOR)
    coordinator = next(one for one in region.coordinators.loaded if (owner, key) in one.keys.book.keys)
    state = coordinator.keys.book.keys[owner, key]
    known = coordinator.core.known_of_key(owner, key)
    listed = ", ".join(f"{one.txn.text} {one.status.name}" for one in known[-NAMED_MAX:])
    more = f" and {len(known) - NAMED_MAX} older" if len(known) > NAMED_MAX else ""
    client = f"last used by {state.client}" if state.client else "its last client is not known"
    summary = f"epoch {state.epoch}, {client}; transactions: {listed or 'none'}{more}"
    blocking = [one for one in known if not one.status.is_over]
    reasons = [
        Cause.KEY_IN_USE(transaction=one.txn.text, status=one.status.name)
        for one in reversed(blocking[-NAMED_MAX:])
    ]
    return build(summary, state.since_ms, reasons)


def _participants(transaction: LiveTransaction) -> str:
    named = [*transaction.topics, *(_participant(*each) for each in transaction.subscriptions)]
    if not named:
        return "it has no participants yet"
    more = f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
    return f"participants are {', '.join(named[:NAMED_MAX])}{more}"


def _participant(topic: str, subscription: str | None) -> str:
    return topic if subscription is None else f"subscription {subscription} of {topic}"


def _holder(transaction: LiveTransaction) -> str:
    holder = transaction.holder
    if holder is None:
        return "begun without a key"
    return f"begun under key {full_text(holder.owner, holder.key)!r}, epoch {holder.epoch}"


def why_not_readable(region: Region, topic: Topic) -> Reason:
    """Return the open transaction that hides stored messages from readers; NO_REASON without one."""
    blocking = topic.state.buffer.blocking
    if blocking is None:
        return NO_REASON
    txn, part = blocking
    transaction = _live(region, txn)
    return Cause.TRANSACTION_OPEN(
        position=Position(topic.ledger_id, part.first_entry_id),
        count=topic.state.stored_end - part.first_entry_id,
        transaction=txn.text,
        producers=f" of {', '.join(part.producers)}" if part.producers else "",
        seconds=max(0, region.environment.wall_clock_ms() - part.since_ms) / 1_000,
        holder="" if transaction is None else f", {_holder(transaction)}",
    )


def _live(region: Region, txn: TxnId) -> LiveTransaction | None:
    loaded = [coordinator for coordinator in region.coordinators.loaded if coordinator.number == txn.most]
    return loaded[0].core.live.get(txn.least) if loaded else None
