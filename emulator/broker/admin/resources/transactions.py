"""Transactions: coordinators, open ones, slow ones, and transaction keys (docs/components/transactions.md)."""

from __future__ import annotations

import asyncio
from typing import Any

from emulator.broker.admin.context import topic_name
from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Body, Query, Resource, changes, reads
from emulator.broker.authorization import ResourceScope
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.broker.transactions.coordinator import RunningCoordinator
from emulator.broker.transactions.coordinators import NOT_ENABLED, TransactionCoordinators
from emulator.core.transactions.coordinator import BY_OPERATOR, LiveTransaction, OfKey
from emulator.core.transactions.journal_format import Holder
from emulator.core.transactions.keys import KeyState
from emulator.core.transactions.names import TxnId
from emulator.core.transactions.pending_acks import PendingAcks
from emulator.errors import ProtocolError
from emulator.model.transaction_names import SEPARATOR, full_text

NUMBER_MAX = 2**64 - 1


def _coordinators(call: AdminRequest) -> TransactionCoordinators:
    coordinators = call.context.region.coordinators
    if not coordinators.count:
        raise HttpError(503, NOT_ENABLED)
    return coordinators


def _number(text: str, what: str) -> int:
    if not text.isdecimal() or len(text) > 20 or int(text) > NUMBER_MAX:
        raise HttpError(400, f"{what}: {text!r} must be a whole number, 0 or more")
    return int(text)


def _life(coordinators: TransactionCoordinators, text: str) -> RunningCoordinator:
    try:
        return coordinators.life(_number(text, "coordinator"))
    except ProtocolError as problem:
        raise HttpError(404, str(problem)) from None


def _asked_lives(call: AdminRequest) -> list[RunningCoordinator]:
    coordinators = _coordinators(call)
    number = call.query.get("coordinatorId")
    return coordinators.lives if number is None else [_life(coordinators, number)]


# Coordinators.


async def coordinators(call: AdminRequest) -> Response:
    url = call.service_url
    return Response([{"id": number, "brokerServiceUrl": url} for number in range(_coordinators(call).count)])


async def coordinator_stats(call: AdminRequest) -> Response:
    lives = _asked_lives(call)
    if "coordinatorId" in call.query:
        return Response(_stats(lives[0]))
    return Response({str(life.number): _stats(life) for life in lives})


def _stats(life: RunningCoordinator) -> dict[str, Any]:
    return {
        "state": "Ready",
        "leastSigBits": life.core.next_least - 1,
        "lowWaterMark": life.core.low_watermark,
        "ongoingTxnSize": len(life.core.live),
        "rememberedOutcomes": len(life.core.outcomes),
        "transactionKeys": len(life.keys.book.keys),
    }


async def internal_stats(call: AdminRequest) -> Response:
    life = _life(_coordinators(call), call.names["coordinator"])
    return Response({"transactionLogStats": life.journal.figures()})


async def set_replicas(call: AdminRequest) -> Response:
    raise HttpError(
        406,
        "transaction_coordinators is a setting of the region: change it in the topology and restart the"
        " region",
    )


def _whole(body: Any) -> int:
    if not isinstance(body, int) or isinstance(body, bool):
        raise HttpError(400, "the body must be a whole number")
    return body


# Transactions.


async def metadata(call: AdminRequest) -> Response:
    life = _life(_coordinators(call), call.names["most"])
    least = _number(call.names["least"], "transaction")
    transaction = life.core.live.get(least)
    if transaction is not None:
        return Response(_metadata(call, transaction))
    outcome = life.core.outcomes.get(least)
    if outcome is None:
        raise HttpError(404, f"transaction {TxnId(life.number, least).text} is not known")
    text = TxnId(life.number, least).text
    return Response(
        {"txnId": text, "status": outcome.status.name, "why": outcome.why, **_named(outcome.holder)}
    )


def _metadata(call: AdminRequest, transaction: LiveTransaction) -> dict[str, Any]:
    acked: dict[str, dict[str, Any]] = {}
    for topic, subscription in transaction.subscriptions:
        acked.setdefault(topic, {})[subscription] = {}
    opened_at_ms = transaction.opened_at_ms
    return {
        "txnId": transaction.txn.text,
        "status": transaction.status.name,
        "why": transaction.why,
        "openTimestamp": opened_at_ms,
        "timeoutAt": transaction.timeout_ms,
        "ageMs": call.context.region.environment.wall_clock_ms() - opened_at_ms,
        **_named(transaction.holder),
        "producedPartitions": {topic: {} for topic in transaction.topics},
        "ackedPartitions": acked,
    }


def _named(holder: Holder | None) -> dict[str, str | None]:
    """The key of a transaction, if it was begun with one."""
    return {
        "owner": "" if holder is None else holder.owner,
        "transactionKey": None if holder is None else holder.key,
    }


async def slow(call: AdminRequest) -> Response:
    timeout_ms = _number(call.names["timeout"], "timeout")
    now_ms = call.context.region.environment.wall_clock_ms()
    return Response(
        {
            transaction.txn.text: _metadata(call, transaction)
            for life in _asked_lives(call)
            for transaction in life.core.live.values()
            if now_ms - transaction.opened_at_ms > timeout_ms
        }
    )


async def abort(call: AdminRequest) -> Response:
    life = _life(_coordinators(call), call.names["most"])
    try:
        least = _number(call.names["least"], "transaction")
        await asyncio.shield(life.finish(least, commit=False, why=BY_OPERATOR))
    except ProtocolError as problem:
        raise HttpError(409 if life.core.status(int(call.names["least"])) else 404, str(problem)) from None
    return Response(status=204)


# Transactions of a topic.


async def _topic(call: AdminRequest) -> Topic:
    _coordinators(call)
    return await call.context.region.directory.acquire(topic_name(call.names), OpenMode.EXISTING)


async def buffer_stats(call: AdminRequest) -> Response:
    topic = await _topic(call)
    buffer = topic.state.buffer
    return Response(
        {
            "state": "Ready",
            "maxReadPosition": f"{topic.ledger_id}:{topic.readable_end - 1}",
            "ongoingTxnSize": len(buffer.open),
            "ongoingTransactions": [txn.text for txn in list(buffer.open)[:1_000]],
            "totalCommitted": buffer.committed,
            "totalAborted": buffer.aborted,
        }
    )


async def in_buffer(call: AdminRequest) -> Response:
    topic = await _topic(call)
    txn = TxnId(_number(call.names["most"], "coordinator"), _number(call.names["least"], "transaction"))
    found = topic.state.buffer.open.get(txn)
    if found is None:
        raise HttpError(404, f"{topic.full_name} has no open messages of transaction {txn.text}")
    start = f"{topic.ledger_id}:{found.first_entry_id}"
    return Response({"startPosition": start, "aborted": False, "messages": found.messages})


# Transactions of a subscription.


async def _pending_acks(call: AdminRequest) -> tuple[Topic, PendingAcks]:
    topic, name = await _topic(call), call.names["subscription"]
    subscription = topic.subscriptions.get(name)
    if subscription is None:
        raise HttpError(404, f"{topic.full_name} has no subscription {name!r}")
    return topic, PendingAcks() if subscription.pending_acks is None else subscription.pending_acks.acks


async def pending_ack_stats(call: AdminRequest) -> Response:
    _, acks = await _pending_acks(call)
    return Response(
        {
            "state": "Ready",
            "ongoingTxnSize": len(acks.by_txn),
            "ongoingTransactions": [txn.text for txn in list(acks.by_txn)[:1_000]],
            "heldEntries": len(acks),
        }
    )


async def in_pending_acks(call: AdminRequest) -> Response:
    topic, acks = await _pending_acks(call)
    txn = TxnId(_number(call.names["most"], "coordinator"), _number(call.names["least"], "transaction"))
    held = acks.by_txn.get(txn)
    if held is None:
        raise HttpError(404, f"the subscription has no pending acknowledgements of transaction {txn.text}")
    cumulative = None if held.cumulative is None else f"{topic.ledger_id}:{held.cumulative.entry_id}"
    return Response(
        {"cumulativeAckPosition": cumulative, "individualAcks": len(held.entries) + len(held.batches)}
    )


async def position_in_pending_acks(call: AdminRequest) -> Response:
    topic, acks = await _pending_acks(call)
    entry_id = _number(call.names["entry"], "entry")
    if _number(call.names["ledger"], "ledger") != topic.ledger_id or entry_id >= topic.readable_end:
        return Response({"state": "InvalidPosition"})
    if topic.subscriptions[call.names["subscription"]].cursor.mark_delete >= entry_id:
        return Response({"state": "MarkDelete"})
    index = call.query.get("batchIndex")
    bits, _ = acks.held_bits(entry_id)
    part = bits > 0 if index is None else bool(bits >> min(index, 2**20) & 1)
    ends = (held.cumulative.entry_id for held in acks.by_txn.values() if held.cumulative is not None)
    held = acks.holds(entry_id) or part or any(entry_id <= end for end in ends)
    return Response({"state": "PendingAck" if held else "NotInPendingAck"})


async def no_buffer_log(call: AdminRequest) -> Response:
    """There is none: the log of the topic itself contains the transaction of each entry."""
    await _topic(call)
    return Response({"snapshotType": None})


async def no_pending_ack_log(call: AdminRequest) -> Response:
    """There is none: pending acknowledgements are rows of the region's store."""
    await _pending_acks(call)
    return Response({"pendingAckLogStats": None})


# Keys.


async def keys(call: AdminRequest) -> Response:
    names = [
        full_text(state.owner, state.key)
        for life in _coordinators(call).lives
        for state in life.keys.book.keys.values()
    ]
    return Response(sorted(names))


async def key(call: AdminRequest) -> Response:
    life, state = _key(call)
    status = None if state.least is None else life.core.status(state.least)
    return Response(
        {
            "transactionKey": state.key,
            "owner": state.owner,
            "coordinatorId": life.number,
            "epoch": state.epoch,
            "transactionId": None if state.least is None else TxnId(life.number, state.least).text,
            "transactionStatus": None if status is None else status.name,
            "transactions": [_of_key(one) for one in life.core.known_of_key(state.owner, state.key)],
            "connected": life.keys.is_connected(state.owner, state.key),
            "lastClient": state.client or None,
            "sinceMs": state.since_ms,
            "createdMs": state.created_ms,
        }
    )


def _of_key(one: OfKey) -> dict[str, Any]:
    return {"txnId": one.txn.text, "status": one.status.name, "why": one.why, "epoch": one.epoch}


async def delete_key(call: AdminRequest) -> Response:
    life, state = _key(call)
    await life.keys.delete(state.owner, state.key)
    return Response(status=204)


def _key(call: AdminRequest) -> tuple[RunningCoordinator, KeyState]:
    """Return `key` or `owner&key`. HttpError 404 if it does not exist, 409 when two owners have it."""
    name = call.names["key"]
    owner, separator, short = name.rpartition(SEPARATOR)
    found = [
        (life, state)
        for life in _coordinators(call).lives
        for state in life.keys.book.keys.values()
        if state.key == short and (not separator or state.owner == owner)
    ]
    if not found:
        raise HttpError(404, f"there is no transaction key {name!r}")
    if len(found) > 1:
        owners = ", ".join(repr(state.owner) for _, state in found)
        raise HttpError(
            409, f"transaction key {name!r} belongs to several owners: use OWNER&{name} with one of {owners}"
        )
    return found[0]


_V3 = "/admin/v3/transactions"
_COORDINATOR = Query("coordinatorId", "Of this coordinator only.", str)
_OF_TOPIC = "{tenant}/{namespace}/{topic}"


def _key_rows(base: str) -> tuple[Resource, ...]:
    return (
        Resource(f"{base}/transaction-keys", ResourceScope.REGION, get=reads(keys, "All transaction keys.")),
        Resource(
            f"{base}/transaction-keys/{{key}}",
            ResourceScope.REGION,
            get=reads(
                key,
                "A key's epoch, its last client, and every transaction of it that is not forgotten, with its status. "
                "`key`, or `owner%26key`.",
            ),
            delete=changes(
                delete_key,
                "Delete a key except its epoch; its transaction is aborted and its connection closed.",
            ),
        ),
    )


RESOURCES = (
    *_key_rows("/admin/v2/transactions"),
    *_key_rows(_V3),
    Resource(
        f"{_V3}/coordinators", ResourceScope.REGION, get=reads(coordinators, "The transaction coordinators.")
    ),
    Resource(
        f"{_V3}/coordinatorStats",
        ResourceScope.REGION,
        get=reads(coordinator_stats, "Figures of each coordinator, by its number.", _COORDINATOR),
    ),
    Resource(
        f"{_V3}/coordinatorInternalStats/{{coordinator}}",
        ResourceScope.REGION,
        get=reads(internal_stats, "A coordinator's log."),
    ),
    Resource(
        f"{_V3}/transactionCoordinator/replicas",
        ResourceScope.REGION,
        post=changes(
            set_replicas,
            "Refused (406): the number of coordinators is a setting.",
            body=Body(_whole, {"type": "integer"}),
        ),
    ),
    Resource(
        f"{_V3}/transactionMetadata/{{most}}/{{least}}",
        ResourceScope.REGION,
        get=reads(metadata, "A transaction: status, age, key, participants; its outcome if it ended."),
    ),
    Resource(
        f"{_V3}/slowTransactions/{{timeout}}",
        ResourceScope.REGION,
        get=reads(slow, "Transactions open for longer than this many milliseconds.", _COORDINATOR),
    ),
    Resource(
        f"{_V3}/abortTransaction/{{most}}/{{least}}",
        ResourceScope.REGION,
        post=changes(abort, "Abort a transaction."),
    ),
    Resource(
        f"{_V3}/transactionBufferStats/{_OF_TOPIC}",
        ResourceScope.TOPIC,
        get=reads(buffer_stats, "Open transactions of a topic."),
    ),
    Resource(
        f"{_V3}/transactionInBufferStats/{_OF_TOPIC}/{{most}}/{{least}}",
        ResourceScope.TOPIC,
        get=reads(in_buffer, "Where a transaction begins in a topic."),
    ),
    Resource(
        f"{_V3}/pendingAckStats/{_OF_TOPIC}/{{subscription}}",
        ResourceScope.TOPIC,
        get=reads(pending_ack_stats, "Pending acknowledgements of a subscription."),
    ),
    Resource(
        f"{_V3}/transactionInPendingAckStats/{_OF_TOPIC}/{{subscription}}/{{most}}/{{least}}",
        ResourceScope.TOPIC,
        get=reads(in_pending_acks, "Pending acknowledgements of one transaction on a subscription."),
    ),
    Resource(
        f"{_V3}/positionStatsInPendingAck/{_OF_TOPIC}/{{subscription}}/{{ledger}}/{{entry}}",
        ResourceScope.TOPIC,
        get=reads(
            position_in_pending_acks,
            "Whether an open transaction acknowledged an entry at a subscription: `state` is `PendingAck`, "
            "`NotInPendingAck`, `MarkDelete` or `InvalidPosition`.",
            Query("batchIndex", "Of this message of a batch.", int),
        ),
    ),
    Resource(
        f"{_V3}/transactionBufferInternalStats/{_OF_TOPIC}",
        ResourceScope.TOPIC,
        get=reads(no_buffer_log, "No log: the topic's own log holds what its transaction buffer needs."),
    ),
    Resource(
        f"{_V3}/pendingAckInternalStats/{_OF_TOPIC}/{{subscription}}",
        ResourceScope.TOPIC,
        get=reads(no_pending_ack_log, "No log: the region's store holds pending acknowledgements."),
    ),
)
