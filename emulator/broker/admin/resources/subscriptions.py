"""Subscriptions: create, reset, inspect and delete them without a consumer.

For a partitioned topic, operations without a position apply to each partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emulator.broker.admin.parsing import (
    MESSAGE_ID,
    PROPERTIES_BODY,
    RequestedMessageId,
    codec_body,
    whole_number,
)
from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Body, Query, Resource, changes, reads
from emulator.broker.admin.resources.messages import nth_unacked
from emulator.broker.connection.consumers import PROPERTIES_LENGTH_MAX
from emulator.broker.subscription.subscription import Subscription, check_subscription_name
from emulator.broker.topic import reading
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.core.authorization.rule import Permission
from emulator.core.policies.codecs import BOOLEAN
from emulator.model.values import AFTER_EVERYTHING, Position
from emulator.net.http_server import HttpError

ANALYSED_ENTRIES_MAX = 10_000
READ_ENTRIES = 500
READ_BYTES = 4_194_304


async def create(call: AdminRequest) -> None:
    """Create a subscription at the id in the body or, without one, at the end of the log, with the properties in the
    body. A missing topic is created if policies allow that. HttpError 409 if a partition has the subscription."""
    name, message_id = call.names["subscription"], call.body
    check_subscription_name(name)
    properties = {} if message_id is None else message_id.properties
    _check_length(properties)
    topics = await call.load_partitions(OpenMode.CREATE)
    if any(name in topic.subscriptions for topic in topics):
        raise HttpError(409, "Subscription already exists for topic")
    if call.flag("replicated"):
        for topic in topics:
            topic.subscriptions.check_region_replicates()
    for topic in topics:
        cursor = topic.region.environment.components.subscriptions.cursor(
            _start_entry_id(topic, message_id) - 1
        )
        cursor.set_properties(properties)
        subscription = topic.subscriptions.create(name, cursor)
        if call.flag("replicated"):
            topic.subscriptions.replicate(subscription)
        await subscription.persisted()


def _start_entry_id(topic: Topic, message_id: RequestedMessageId | None) -> int:
    """Return the entry id at which a subscription begins: at a message id, or after it if it is excluded."""
    position = AFTER_EVERYTHING if message_id is None else message_id.position
    begin = reading.start_of(topic.reading, position)
    is_one = message_id is not None and position.ledger == topic.ledger_id and position.entry >= 0
    return (
        min(begin + 1, topic.state.readable_end)
        if message_id is not None and message_id.is_excluded and is_one
        else begin
    )


async def delete(call: AdminRequest) -> None:
    force = call.flag("force")
    found = await call.subscriptions()
    if not force and any(one.consumers for _, one in found):
        raise HttpError(412, "Subscription has active connected consumers")
    for _, subscription in found:
        subscription.close_consumers()
        await subscription.delete()


# Skipping.


async def skip(call: AdminRequest) -> None:
    topic, subscription = await call.subscription()
    n = whole_number(call.names["count"], "count")
    if n < 1:
        raise HttpError(412, "count: at least one message must be skipped")
    if n >= subscription.backlog():
        await acknowledge_before(topic, subscription, topic.state.readable_end)
    else:
        await acknowledge_before(topic, subscription, nth_unacked(topic, subscription.cursor, n) + 1)


async def skip_all(call: AdminRequest) -> None:
    for topic, subscription in await call.subscriptions():
        await acknowledge_before(topic, subscription, topic.state.readable_end)


async def expire(call: AdminRequest) -> None:
    """Acknowledge the messages of a subscription that are older than the seconds in the path."""
    for topic, subscription in await call.subscriptions():
        await _expire(topic, subscription, _age_ms(call))


async def expire_everywhere(call: AdminRequest) -> None:
    for topic in await call.load_partitions():
        for subscription in list(topic.subscriptions.values()):
            await call.ignoring_deletion(topic, subscription, _expire(topic, subscription, _age_ms(call)))


async def expire_to(call: AdminRequest) -> None:
    """Acknowledge the messages of a subscription up to the id in the body, and that message unless `isExcluded`."""
    topic, subscription = await call.subscription()
    message_id: RequestedMessageId = call.required_body("a message id")
    end_entry_id = _start_entry_id(topic, message_id._replace(is_excluded=not message_id.is_excluded))
    await acknowledge_before(topic, subscription, end_entry_id)


def _age_ms(call: AdminRequest) -> int:
    seconds = whole_number(call.names["seconds"], "seconds")
    if seconds < 0:
        raise HttpError(412, f"seconds: {seconds} is less than 0")
    return seconds * 1_000


async def _expire(topic: Topic, subscription: Subscription, age_ms: int) -> None:
    now_ms = topic.region.environment.wall_clock_ms()
    await acknowledge_before(
        topic, subscription, await reading.published_from(topic.reading, now_ms - age_ms)
    )


async def acknowledge_before(topic: Topic, subscription: Subscription, end_entry_id: int) -> None:
    """Acknowledge all entries before `end_entry_id`, as consumers do. The cursor is durable on return."""
    subscription.move(lambda cursor: cursor.ack_cumulative(end_entry_id - 1))
    topic.subscriptions.mark_delete_moved(subscription.name)
    await subscription.persisted()


# Resetting.


async def reset_to_time(call: AdminRequest) -> None:
    timestamp_ms = whole_number(call.names["timestamp"], "timestamp")
    for topic, subscription in await call.subscriptions():
        await subscription.seek(await reading.published_from(topic.reading, timestamp_ms))


async def reset_to_id(call: AdminRequest) -> None:
    topic, subscription = await call.subscription()
    await subscription.seek(_start_entry_id(topic, call.required_body("a message id")))


# Inspecting.


async def analyze(call: AdminRequest) -> Content:
    """Count the backlog, or the entries from the message id in the body on. As in Pulsar, entries before the backlog
    are counted if the id is before it."""
    message_id: RequestedMessageId | None = call.body
    topic, subscription = await call.subscription()
    cursor = subscription.cursor
    backlog_start = next_entry_id = cursor.mark_delete + 1
    if message_id is not None:
        next_entry_id = reading.start_of(topic.reading, message_id.position)
    counts = {"entries": 0, "messages": 0, "markerMessages": 0}
    scanned, first, last = 0, -1, -1
    while scanned < ANALYSED_ENTRIES_MAX and next_entry_id < topic.state.readable_end:
        entries = await topic.reading.read(next_entry_id, READ_ENTRIES, READ_BYTES)
        if not entries:
            break
        for entry in entries:
            scanned += 1
            if entry.entry_id >= backlog_start and cursor.is_acked(entry.entry_id):
                continue
            first, last = entry.entry_id if first < 0 else first, entry.entry_id
            counts["entries"] += 1
            counts["markerMessages" if entry.hidden else "messages"] += 1 if entry.hidden else entry.messages
        next_entry_id = entries[-1].entry_id + 1
    return {
        **counts,
        "filterAcceptedEntries": counts["entries"] - counts["markerMessages"],
        "filterAcceptedMessages": counts["messages"],
        "filterRejectedEntries": 0,
        "filterRejectedMessages": 0,
        "filterRescheduledEntries": 0,
        "filterRescheduledMessages": 0,
        "aborted": next_entry_id < topic.state.readable_end,
        "firstMessageId": str(Position(topic.ledger_id, first)) if first >= 0 else None,
        "lastMessageId": str(Position(topic.ledger_id, last)) if last >= 0 else None,
    }


async def get_replicated(call: AdminRequest) -> Content:
    found = await call.subscriptions()
    return {topic.full_name: one.cursor.replicated for topic, one in found}


async def set_replicated(call: AdminRequest) -> None:
    is_replicated = call.required_body("true or false")
    found = await call.subscriptions()
    if is_replicated:
        for topic, subscription in found:
            topic.subscriptions.check_replicable(subscription)
    for topic, subscription in found:
        if is_replicated:
            topic.subscriptions.replicate(subscription)
        elif subscription.durable:
            topic.subscriptions.disable_replication(subscription)
        await subscription.persisted()


# Properties, which users and tools choose freely. They are stored with the cursor.


async def get_properties(call: AdminRequest) -> Content:
    """Return the properties of a subscription; of several partitions, the union of their properties."""
    found = await call.subscriptions()
    return {name: one for _, each in found for name, one in each.cursor.properties.items()}


def _check_length(properties: Mapping[str, str]) -> None:
    """Raise HttpError 412 for more than PROPERTIES_LENGTH_MAX characters."""
    length = sum(len(name) + len(one) for name, one in properties.items())
    if length > PROPERTIES_LENGTH_MAX:
        raise HttpError(
            412, f"properties of {length:,} characters; a subscription may have {PROPERTIES_LENGTH_MAX:,}"
        )


async def put_properties(call: AdminRequest) -> None:
    properties = call.body or {}
    _check_length(properties)
    found = await call.subscriptions()
    for _, subscription in found:
        subscription.move(lambda cursor: cursor.set_properties(properties))
    for _, subscription in found:
        await subscription.persisted()


_TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_SUBSCRIPTION = f"{_TOPIC}/subscription/{{subscription}}"


def _post(path: str, run: Any, doc: str, body: Body | None = None) -> Resource:
    return Resource(
        f"{_SUBSCRIPTION}/{path}", post=changes(run, doc, body=body, permission=Permission.CONSUME)
    )


RESOURCES = (
    Resource(
        _SUBSCRIPTION,
        put=changes(
            create,
            "Create the subscription at the message id in the body, else at the end, with the `properties` in the "
            "body; 409 if it exists.",
            Query("replicated", "Replicate its position to other regions."),
            body=MESSAGE_ID,
            permission=Permission.CONSUME,
        ),
        delete=changes(
            delete,
            "Delete the subscription; 412 while it has consumers.",
            Query("force", "Even if it has consumers; they are disconnected."),
            permission=Permission.CONSUME,
        ),
    ),
    _post("skip/{count}", skip, "Acknowledge this number of messages."),
    _post("skip_all", skip_all, "Acknowledge everything."),
    _post("expireMessages/{seconds}", expire, "Acknowledge messages that are older than this."),
    _post("expireMessages", expire_to, "Acknowledge everything up to and including a message.", MESSAGE_ID),
    Resource(
        f"{_TOPIC}/all_subscription/expireMessages/{{seconds}}",
        post=changes(expire_everywhere, "The same for all subscriptions.", permission=Permission.CONSUME),
    ),
    _post(
        "resetcursor/{timestamp}",
        reset_to_time,
        "Continue at the first message published at or after a time (ms). Its consumers reconnect.",
    ),
    _post("resetcursor", reset_to_id, "Continue at a message or, with `isExcluded`, after it.", MESSAGE_ID),
    Resource(
        f"{_SUBSCRIPTION}/analyzeBacklog",
        post=reads(
            analyze,
            "Numbers of entries, messages and markers in the backlog, or from the message id in the body on; of the "
            f"first {ANALYSED_ENTRIES_MAX} entries.",
            body=MESSAGE_ID,
            permission=Permission.CONSUME,
        ),
    ),
    Resource(
        f"{_SUBSCRIPTION}/replicatedSubscriptionStatus",
        get=reads(
            get_replicated, "Whether its position is replicated, by topic.", permission=Permission.CONSUME
        ),
        post=changes(
            set_replicated,
            "Send its position to other regions and apply theirs, or stop both until this region enables it again; "
            "405 for one that is not durable.",
            body=codec_body(BOOLEAN),
            permission=Permission.CONSUME,
        ),
    ),
    Resource(
        f"{_SUBSCRIPTION}/properties",
        get=reads(get_properties, "All properties.", permission=Permission.CONSUME),
        put=changes(
            put_properties,
            "Replace the properties; an empty object removes all.",
            body=PROPERTIES_BODY,
            permission=Permission.CONSUME,
        ),
    ),
)
