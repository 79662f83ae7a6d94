"""Inspects the stored messages of a topic."""

from __future__ import annotations

from typing import Any

from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.message import as_response
from emulator.broker.admin.message_ids import MESSAGE_ID, as_json, whole_number
from emulator.broker.admin.resource import AdminRequest, Operation, Query, Resource, reads
from emulator.broker.admin.topics_named import missing, one_topic
from emulator.broker.authorization import Action, ResourceScope
from emulator.broker.topic import positions
from emulator.broker.topic.topic import Topic
from emulator.core.cursor.cursor import Cursor
from emulator.model.values import BEFORE_EVERYTHING, Position

_OCTETS = "The payload is the body; the rest are headers `X-Pulsar-…`. A batch is one body."


async def peek(call: AdminRequest) -> Response:
    topic = await one_topic(call)
    subscription = topic.subscriptions.get(call.names["subscription"])
    n = whole_number(call.names["n"], "position")
    if n < 1:
        raise HttpError(412, "position: the first message that was not acknowledged has the number 1")
    if subscription is None or subscription.closed:
        cursor = _cursor_of_a_new_subscription(call, topic)
    else:
        cursor = subscription.cursor
    return await _entry(topic, nth_unacked(topic, cursor, n))


def _cursor_of_a_new_subscription(call: AdminRequest, topic: Topic) -> Cursor:
    """Return the cursor that a subscription from the earliest message on has. Upstream creates the subscription at the
    first peek; a GET creates nothing here."""
    if call.names["subscription"].startswith("pulsar.repl."):
        raise missing(call)
    return Cursor(topic.first_entry_id - 1)


def nth_unacked(topic: Topic, cursor: Cursor, n: int) -> int:
    """Return the id of the nth entry that a cursor has not acknowledged, without markers. HttpError 404 when there are
    fewer."""
    low, high = cursor.mark_delete + 1, topic.readable_end
    if cursor.unacked_count(high, topic.hidden_ids) < n:
        raise _not_found()
    while low < high:
        middle = (low + high) // 2
        if cursor.unacked_count(middle + 1, topic.hidden_ids) >= n:
            high = middle
        else:
            low = middle + 1
    return low


async def by_id(call: AdminRequest) -> Response:
    topic = await one_topic(call)
    ledger, entry_id = (whole_number(call.names[what], what) for what in ("ledger", "entry"))
    if ledger != topic.ledger_id:
        raise _not_found()
    return await _entry(topic, entry_id)


async def examine(call: AdminRequest) -> Response:
    topic = await one_topic(call)
    start = call.query.get("initialPosition") or "latest"
    if start not in ("earliest", "latest"):
        raise HttpError(412, "Initial position must be 'earliest' or 'latest'")
    n = max(1, call.query.get("messagePosition", 1))
    everything = Cursor(topic.first_entry_id - 1)
    if start == "latest":
        n = everything.unacked_count(topic.readable_end, topic.hidden_ids) - n + 1
        if n < 1:
            raise _not_found()
    return await _entry(topic, nth_unacked(topic, everything, n))


async def _entry(topic: Topic, entry_id: int) -> Response:
    if not topic.first_entry_id <= entry_id < topic.readable_end:
        raise _not_found()
    found = await topic.read(entry_id, 1, 1)
    if not found or found[0].entry_id != entry_id or found[0].is_aborted:
        raise _not_found()
    return as_response(topic, entry_id, found[0].data)


def _not_found() -> HttpError:
    return HttpError(404, "Message not found")


async def id_at(call: AdminRequest) -> Response:
    topic = await one_topic(call)
    entry_id = await positions.published_from(topic, whole_number(call.names["timestamp"], "timestamp"))
    if entry_id < topic.readable_end:
        return _id(topic, Position(topic.ledger_id, entry_id))
    return _id(topic, (await positions.last_message(topic))[0])


async def last_id(call: AdminRequest) -> Response:
    topic = await one_topic(call)
    return _id(topic, (await positions.last_message(topic))[0])


def _id(topic: Topic, position: Position) -> Response:
    return Response(as_json(position, topic.name.partition_index))


async def backlog_size(call: AdminRequest) -> Response:
    """Estimate the size: entries behind it have the topic's average size."""
    topic = await one_topic(call)
    begin = positions.start_of(topic, BEFORE_EVERYTHING if call.body is None else call.body.position)
    entries = topic.log.next_entry_id - topic.log.first_entry_id
    behind = max(0, topic.readable_end - begin)
    return Response(topic.log.size_bytes * behind // entries if entries else 0)


def _message(run: Any, doc: str, *query: Query) -> Operation:
    return Operation(run, f"{doc} {_OCTETS}", Action.READ, query, text=True)


_TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

RESOURCES = (
    Resource(
        f"{_TOPIC}/subscription/{{subscription}}/position/{{n}}",
        ResourceScope.TOPIC,
        get=_message(
            peek,
            "The nth message that the subscription has not acknowledged, from 1; 404 when there is none.",
        ),
    ),
    Resource(
        f"{_TOPIC}/ledger/{{ledger}}/entry/{{entry}}",
        ResourceScope.TOPIC,
        get=_message(by_id, "The entry with this id; 404 when there is none."),
    ),
    Resource(
        f"{_TOPIC}/examinemessage",
        ResourceScope.TOPIC,
        get=_message(
            examine,
            "The nth message from the beginning or from the end.",
            Query("initialPosition", "earliest or latest (the default).", str),
            Query("messagePosition", "n, from 1.", int),
        ),
    ),
    Resource(
        f"{_TOPIC}/messageid/{{timestamp}}",
        ResourceScope.TOPIC,
        get=reads(
            id_at, "The id of the first message published at or after a time (ms), else of the last one."
        ),
    ),
    Resource(
        f"{_TOPIC}/lastMessageId", ResourceScope.TOPIC, get=reads(last_id, "The id of the last message.")
    ),
    Resource(
        f"{_TOPIC}/backlogSize",
        ResourceScope.TOPIC,
        put=Operation(
            backlog_size,
            "Bytes that follow a message id, estimated from the average entry size.",
            Action.READ,
            body=MESSAGE_ID,
        ),
    ),
)
