"""What a region says about a transaction, and about one that blocks a topic."""

from __future__ import annotations

from collections.abc import Iterable

from emulator.broker.region import Region
from emulator.broker.topic.topic import Topic
from emulator.core.transactions.coordinator import Transaction
from emulator.core.transactions.status import Status, TxnId
from emulator.explanations import Explanation
from emulator.transaction_names import SEPARATOR, full_text

NAMED_MAX = 10


def known_transactions(region: Region) -> Iterable[tuple[str]]:
    """Those that are not over, and those whose outcome is remembered."""
    for life in region.coordinators.lives:
        for least in (*life.core.live, *life.core.outcomes):
            yield (TxnId(life.number, least).text,)


def explain_transaction(region: Region, words: tuple[str, ...]) -> Explanation:
    """Of one that is known."""
    most, least = map(int, words[0].strip("()").split(","))
    life = region.coordinators.life(most)
    transaction = life.core.live.get(least)
    name = region.config.region
    if transaction is None:
        outcome = life.core.outcomes[least]
        return Explanation(name, "transaction", words[0], f"{outcome.status.name}: {outcome.why}")
    refused = life.teller.refused.get(least, {})
    waits_for = [
        f"{_participant(topic, subscription)} to be told: {why}"
        for (topic, subscription), why in list(refused.items())[:NAMED_MAX]
    ]
    why = transaction.why
    if transaction.status is Status.OPEN:
        why = "its client has not ended it"
        waits_for = [f"its client to end it, or its time-out of {transaction.timeout_ms / 1000:g} s"]
    return Explanation(
        name,
        "transaction",
        words[0],
        f"{transaction.status.name}; {_holder(transaction)}; {_participants(transaction)}",
        transaction.opened_at_ms,
        why,
        tuple(waits_for),
    )


def known_keys(region: Region) -> Iterable[tuple[str]]:
    """Every transaction key, as `geoemu transactions list-transaction-keys` prints it."""
    for life in region.coordinators.lives:
        for state in life.keys.book.keys.values():
            yield (full_text(state.owner, state.key),)


def explain_key(region: Region, words: tuple[str, ...]) -> Explanation:
    """Explain a key that exists: its epoch, its last client, its transactions."""
    owner, _, key = words[0].rpartition(SEPARATOR)
    life = next(one for one in region.coordinators.lives if (owner, key) in one.keys.book.keys)
    state = life.keys.book.keys[owner, key]
    known = life.core.known_of_key(owner, key)
    listed = ", ".join(f"{one.txn.text} {one.status.name}" for one in known[-NAMED_MAX:])
    more = f" and {len(known) - NAMED_MAX} older" if len(known) > NAMED_MAX else ""
    client = f"last granted to {state.client}" if state.client else "its last client is not known"
    what = f"epoch {state.epoch}, {client}; transactions: {listed or 'none'}{more}"
    blocking = [one for one in known if not one.status.is_over]
    why = f"transaction {blocking[-1].txn.text} is {blocking[-1].status.name}" if blocking else ""
    waits_for = tuple(f"transaction {one.txn.text}" for one in blocking[:NAMED_MAX])
    name = region.config.region
    return Explanation(name, "transaction-key", words[0], what, state.since_ms, why, waits_for)


def _participants(transaction: Transaction) -> str:
    named = [*transaction.topics, *(_participant(*each) for each in transaction.subscriptions)]
    if not named:
        return "it has no participants yet"
    more = f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
    return f"participants are {', '.join(named[:NAMED_MAX])}{more}"


def _participant(topic: str, subscription: str | None) -> str:
    return topic if subscription is None else f"subscription {subscription} of {topic}"


def _holder(transaction: Transaction) -> str:
    holder = transaction.holder
    if holder is None:
        return "begun without a key"
    return f"begun under key {full_text(holder.owner, holder.key)!r}, epoch {holder.epoch}"


def why_transactions_block(region: Region, topic: Topic) -> tuple[str, list[str]]:
    """(why what is stored is not readable, what it waits for); empty when no transaction is open here."""
    blocking = topic.state.buffer.blocking
    if blocking is None:
        return "", []
    txn, part = blocking
    age_seconds = max(0, region.environment.wall_clock_ms() - part.since_ms) / 1_000
    who = f" of {', '.join(part.producers)}" if part.producers else ""
    transaction = _live(region, txn)
    holder = "" if transaction is None else f", {_holder(transaction)}"
    behind = topic.stored_end - part.first_entry_id
    why = (
        f"nothing from {topic.ledger_id}:{part.first_entry_id} on is readable ({behind} entries): "
        f"transaction {txn.text}{who} has been open for {age_seconds:.1f} s{holder}"
    )
    return why, [f"transaction {txn.text}"]


def _live(region: Region, txn: TxnId) -> Transaction | None:
    lives = [life for life in region.coordinators.lives if life.number == txn.most]
    return lives[0].core.live.get(txn.least) if lives else None
