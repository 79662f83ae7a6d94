"""Transaction coordinators, and open and slow transactions (docs/components/transactions.md)."""

from __future__ import annotations

from typing import Any

from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Body, Query, Resource, changes, reads
from emulator.broker.topic.topic import Topic
from emulator.broker.transactions.coordinator import RunningCoordinator
from emulator.broker.transactions.coordinators import NOT_ENABLED, TransactionCoordinators
from emulator.core.transactions.coordinator import BY_OPERATOR
from emulator.core.transactions.journal_format import Holder
from emulator.core.transactions.live import LiveTransaction
from emulator.core.transactions.pending_acks import PendingAcks
from emulator.errors import ProtocolError
from emulator.model.transaction_names import TxnId
from emulator.net.http_server import HttpError

NUMBER_MAX = 2**64 - 1


def coordinators_of(call: AdminRequest) -> TransactionCoordinators:
    """Return the coordinators of the region. HttpError 503 if transactions are not enabled."""
    coordinators = call.region.coordinators
    if not coordinators.count:
        raise HttpError(503, NOT_ENABLED)
    return coordinators


def _number(text: str, what: str) -> int:
    if not text.isdecimal() or len(text) > 20 or int(text) > NUMBER_MAX:
        raise HttpError(400, f"{what}: {text!r} must be a whole number, 0 or more")
    return int(text)


def _txn(call: AdminRequest) -> TxnId:
    return TxnId(_number(call.names["most"], "coordinator"), _number(call.names["least"], "transaction"))


def _coordinator(call: AdminRequest, text: str) -> RunningCoordinator:
    coordinators = coordinators_of(call)
    try:
        return coordinators.get(_number(text, "coordinator"))
    except ProtocolError as problem:
        raise HttpError(404, str(problem)) from None


def _named_coordinators(call: AdminRequest) -> list[RunningCoordinator]:
    number = call.query.get("coordinatorId")
    return coordinators_of(call).loaded if number is None else [_coordinator(call, number)]


# Coordinators.


async def coordinators(call: AdminRequest) -> Content:
    url = call.service_url
    return [{"id": number, "brokerServiceUrl": url} for number in range(coordinators_of(call).count)]


async def coordinator_stats(call: AdminRequest) -> Content:
    loaded = _named_coordinators(call)
    if "coordinatorId" in call.query:
        return _stats(loaded[0])
    return {str(coordinator.number): _stats(coordinator) for coordinator in loaded}


def _stats(coordinator: RunningCoordinator) -> dict[str, Any]:
    return {
        "state": "Ready",
        "leastSigBits": coordinator.core.next_least - 1,
        "lowWaterMark": coordinator.core.low_watermark,
        "ongoingTxnSize": len(coordinator.core.live),
        "rememberedOutcomes": len(coordinator.core.outcomes),
        "transactionKeys": len(coordinator.keys.book.keys),
    }


async def internal_stats(call: AdminRequest) -> Content:
    coordinator = _coordinator(call, call.names["coordinator"])
    return {"transactionLogStats": coordinator.journal.stats()}


async def set_replicas(call: AdminRequest) -> None:
    raise HttpError(
        406,
        "transaction_coordinators is a setting of the region: change it in the topology and restart the"
        " region",
    )


def _parse_count(body: Any) -> int:
    if not isinstance(body, int) or isinstance(body, bool):
        raise HttpError(400, "the body must be a whole number")
    return body


# Transactions.


async def metadata(call: AdminRequest) -> Content:
    coordinator = _coordinator(call, call.names["most"])
    least = _number(call.names["least"], "transaction")
    transaction = coordinator.core.live.get(least)
    if transaction is not None:
        return _metadata(call, transaction)
    outcome = coordinator.core.outcomes.get(least)
    if outcome is None:
        raise HttpError(404, f"transaction {TxnId(coordinator.number, least).text} is not known")
    text = TxnId(coordinator.number, least).text
    return {"txnId": text, "status": outcome.status.name, "why": outcome.why, **_key_fields(outcome.holder)}


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
        "ageMs": call.region.environment.wall_clock_ms() - opened_at_ms,
        **_key_fields(transaction.holder),
        "owner": transaction.owner,
        "producedPartitions": {topic: {} for topic in transaction.topics},
        "ackedPartitions": acked,
    }


def _key_fields(holder: Holder | None) -> dict[str, str | None]:
    """Return the fields for the key of a transaction; owner "" and key None if it was begun without a key."""
    return {
        "owner": "" if holder is None else holder.owner,
        "transactionKey": None if holder is None else holder.key,
    }


async def slow(call: AdminRequest) -> Content:
    timeout_ms = _number(call.names["timeout"], "timeout")
    now_ms = call.region.environment.wall_clock_ms()
    return {
        transaction.txn.text: _metadata(call, transaction)
        for coordinator in _named_coordinators(call)
        for transaction in coordinator.core.live.values()
        if now_ms - transaction.opened_at_ms > timeout_ms
    }


async def abort(call: AdminRequest) -> None:
    coordinator = _coordinator(call, call.names["most"])
    try:
        least = _number(call.names["least"], "transaction")
        await coordinator.finish(least, commit=False, why=BY_OPERATOR)
    except ProtocolError as problem:
        raise HttpError(
            409 if coordinator.core.status(int(call.names["least"])) else 404, str(problem)
        ) from None


# Transactions of a topic.


async def _topic(call: AdminRequest) -> Topic:
    coordinators_of(call)
    return await call.load()


async def buffer_stats(call: AdminRequest) -> Content:
    topic = await _topic(call)
    buffer = topic.state.buffer
    return {
        "state": "Ready",
        "maxReadPosition": f"{topic.ledger_id}:{topic.state.readable_end - 1}",
        "ongoingTxnSize": len(buffer.open),
        "ongoingTransactions": [txn.text for txn in list(buffer.open)[:1_000]],
        "totalCommitted": buffer.committed,
        "totalAborted": buffer.aborted,
    }


async def get_in_buffer(call: AdminRequest) -> Content:
    topic = await _topic(call)
    txn = _txn(call)
    found = topic.state.buffer.open.get(txn)
    if found is None:
        raise HttpError(404, f"{topic.full_name} has no open messages of transaction {txn.text}")
    start = f"{topic.ledger_id}:{found.first_entry_id}"
    return {"startPosition": start, "aborted": False, "messages": found.messages}


# Transactions of a subscription.


async def _pending_acks(call: AdminRequest) -> tuple[Topic, PendingAcks]:
    topic, name = await _topic(call), call.names["subscription"]
    subscription = topic.subscriptions.get(name)
    if subscription is None:
        raise HttpError(404, f"{topic.full_name} has no subscription {name!r}")
    return topic, PendingAcks() if subscription.pending_acks is None else subscription.pending_acks.acks


async def pending_ack_stats(call: AdminRequest) -> Content:
    _, acks = await _pending_acks(call)
    return {
        "state": "Ready",
        "ongoingTxnSize": len(acks.by_txn),
        "ongoingTransactions": [txn.text for txn in list(acks.by_txn)[:1_000]],
        "heldEntries": len(acks),
    }


async def get_in_pending_acks(call: AdminRequest) -> Content:
    topic, acks = await _pending_acks(call)
    txn = _txn(call)
    pending = acks.by_txn.get(txn)
    if pending is None:
        raise HttpError(404, f"the subscription has no pending acknowledgements of transaction {txn.text}")
    cumulative = None if pending.cumulative is None else f"{topic.ledger_id}:{pending.cumulative.entry_id}"
    return {
        "cumulativeAckPosition": cumulative,
        "individualAcks": len(pending.entries) + len(pending.batches),
    }


async def position_in_pending_acks(call: AdminRequest) -> Content:
    topic, acks = await _pending_acks(call)
    entry_id = _number(call.names["entry"], "entry")
    if _number(call.names["ledger"], "ledger") != topic.ledger_id or entry_id >= topic.state.readable_end:
        return {"state": "InvalidPosition"}
    if topic.subscriptions[call.names["subscription"]].cursor.mark_delete >= entry_id:
        return {"state": "MarkDelete"}
    index = call.query.get("batchIndex")
    bits, _ = acks.held_bits(entry_id)
    is_batch_pending = bits > 0 if index is None else bool(bits >> min(index, 2**20) & 1)
    cumulative_ends = (one.cumulative.entry_id for one in acks.by_txn.values() if one.cumulative is not None)
    pending = acks.holds(entry_id) or is_batch_pending or any(entry_id <= end for end in cumulative_ends)
    return {"state": "PendingAck" if pending else "NotInPendingAck"}


async def no_buffer_log(call: AdminRequest) -> Content:
    """Return no transaction buffer log: the topic's own log contains the transaction of each entry."""
    await _topic(call)
    return {"snapshotType": None}


async def no_pending_ack_log(call: AdminRequest) -> Content:
    """Return no pending ack log: pending acknowledgements are rows of the region's store."""
    await _pending_acks(call)
    return {"pendingAckLogStats": None}


V3 = "/admin/v3/transactions"
_COORDINATOR = Query("coordinatorId", "Only this coordinator.", str)
_OF_TOPIC = "{tenant}/{namespace}/{topic}"


RESOURCES = (
    Resource(f"{V3}/coordinators", get=reads(coordinators, "The transaction coordinators.")),
    Resource(
        f"{V3}/coordinatorStats",
        get=reads(coordinator_stats, "Counters of each coordinator, by its number.", _COORDINATOR),
    ),
    Resource(
        f"{V3}/coordinatorInternalStats/{{coordinator}}", get=reads(internal_stats, "A coordinator's log.")
    ),
    Resource(
        f"{V3}/transactionCoordinator/replicas",
        post=changes(
            set_replicas,
            "Refused (406): the number of coordinators is a setting.",
            body=Body(_parse_count, {"type": "integer"}),
        ),
    ),
    Resource(
        f"{V3}/transactionMetadata/{{most}}/{{least}}",
        get=reads(metadata, "A transaction: status, age, key, participants; its outcome if it ended."),
    ),
    Resource(
        f"{V3}/slowTransactions/{{timeout}}",
        get=reads(slow, "Transactions open for longer than this many milliseconds.", _COORDINATOR),
    ),
    Resource(f"{V3}/abortTransaction/{{most}}/{{least}}", post=changes(abort, "Abort a transaction.")),
    Resource(
        f"{V3}/transactionBufferStats/{_OF_TOPIC}", get=reads(buffer_stats, "Open transactions of a topic.")
    ),
    Resource(
        f"{V3}/transactionInBufferStats/{_OF_TOPIC}/{{most}}/{{least}}",
        get=reads(get_in_buffer, "Where a transaction begins in a topic."),
    ),
    Resource(
        f"{V3}/pendingAckStats/{_OF_TOPIC}/{{subscription}}",
        get=reads(pending_ack_stats, "Pending acknowledgements of a subscription."),
    ),
    Resource(
        f"{V3}/transactionInPendingAckStats/{_OF_TOPIC}/{{subscription}}/{{most}}/{{least}}",
        get=reads(get_in_pending_acks, "Pending acknowledgements of one transaction on a subscription."),
    ),
    Resource(
        f"{V3}/positionStatsInPendingAck/{_OF_TOPIC}/{{subscription}}/{{ledger}}/{{entry}}",
        get=reads(
            position_in_pending_acks,
            "Whether an open transaction acknowledged an entry at a subscription: `state` is `PendingAck`, "
            "`NotInPendingAck`, `MarkDelete` or `InvalidPosition`.",
            Query("batchIndex", "Only this message of the batch.", int),
        ),
    ),
    Resource(
        f"{V3}/transactionBufferInternalStats/{_OF_TOPIC}",
        get=reads(no_buffer_log, "No log: the topic's own log contains the state of its transaction buffer."),
    ),
    Resource(
        f"{V3}/pendingAckInternalStats/{_OF_TOPIC}/{{subscription}}",
        get=reads(no_pending_ack_log, "No log: the region's store contains the pending acknowledgements."),
    ),
)
