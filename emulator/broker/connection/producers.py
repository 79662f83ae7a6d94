"""PRODUCER, SEND and CLOSE_PRODUCER."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from emulator.broker.authorization import ProtectedResource
from emulator.broker.connection import schemas
from emulator.broker.connection.dispatch import Continuation, Work
from emulator.broker.subscription.subscription import check_subscription_name
from emulator.broker.topic.producer import ConnectedProducer
from emulator.broker.topic_directory.loaded_topic import OpenMode, retry_delays
from emulator.core.admission import Peer
from emulator.errors import GeoemuError, ProtocolError, ServerError, StorageDamaged, StorageError
from emulator.wire.codec_hot.opening import encode_success
from emulator.wire.codec_hot.publishing import SendCommand
from emulator.wire.commands import CloseProducer, CreateProducer, SendError
from emulator.wire.frames import is_followed

if TYPE_CHECKING:
    from emulator.broker.connection.connection import ClientConnection
    from emulator.broker.topic.topic import Topic
    from emulator.wire.frames import Frame

logger = logging.getLogger(__name__)

NAME_LENGTH_MAX = 4_096
"""Maximum length of a producer's name, which deduplication, grants and records of fenced producers store for long."""


def create(connection: ClientConnection, command: CreateProducer) -> Work | None:
    """Open a producer, or put it into the wait queue. `ClientProducers` sends the response when the topic decides. The
    request is registered as it is read, because the next one may be the CLOSE_PRODUCER of the same id."""
    if command.producer_id in connection.producers.opening:
        raise ProtocolError(ServerError.ServiceNotReady, "already being created on this connection")
    connection.producers.check_count(command.producer_id)
    if len(command.producer_name) > NAME_LENGTH_MAX:
        sentence = (
            f"a producer name of {len(command.producer_name):,} characters; {NAME_LENGTH_MAX:,} are allowed"
        )
        raise ProtocolError(ServerError.NotAllowedError, sentence)
    connection.producers.opening[command.producer_id] = command
    if connection.peer is not None:
        return _create(connection, command)
    end = partial(connection.producers.end_opening, command)
    try:
        topic = connection.region.directory.request(command.topic, OpenMode.CREATE)
    except GeoemuError:
        end()
        raise
    if isinstance(topic, asyncio.Future):
        return Continuation(topic, partial(_create_on, connection, command), end)
    return _create_on(connection, command, topic)


def _create_on(connection: ClientConnection, command: CreateProducer, topic: Topic) -> Work | None:
    """Open a client's producer on a topic, at once unless it has to wait for anything."""
    name = _name_of(connection, command)
    if _has_to_wait(connection, command, topic, name):
        return _create(connection, command)
    try:
        connection.region.topic_rules.check_open_to_clients(topic.full_name)
        schemas.check_without_schema(connection, topic.name)
        _request_access(connection, _new_producer(connection, command, topic, name), topic)
    finally:
        connection.producers.end_opening(command)
    return None


def _has_to_wait(connection: ClientConnection, command: CreateProducer, topic: Topic, name: str) -> bool:
    """Whether `_open` may have to wait for a client's producer on a topic that was loaded just now."""
    return (
        topic.closed
        or schemas.is_registered(command.schema)
        or bool(command.initial_subscription_name)
        or topic.retention.has_quotas
        or topic.publishing.is_pending
        or _producer_named(topic, name) is not None
        or connection.region.directory.failed_stores.producer_delay(topic.full_name) > 0
    )


async def _create(connection: ClientConnection, command: CreateProducer) -> None:
    try:
        if connection.peer is not None:
            topic_name = connection.region.check_topic(command.topic)
            connection.region.topic_rules.check_not_deleted(topic_name, connection.peer.region)
            await connection.region.partitioned.learn(connection.peer.region, topic_name)
        await _open(connection, command)
    finally:
        connection.producers.end_opening(command)


async def repeat_create(connection: ClientConnection, command: CreateProducer) -> None:
    """Repeat the request of a producer that waited when its topic was unloaded. Retry after transient errors instead of
    sending them to the client, which would give up at the first error."""
    delays = retry_delays()
    try:
        while connection.producers.opening.get(command.producer_id) is command:
            try:
                await _open(connection, command)
                return
            except StorageDamaged:
                raise
            except StorageError as failure:
                logger.info(
                    "producer %s cannot be queued for %s yet: %s",
                    command.producer_name,
                    command.topic,
                    failure,
                )
            except ProtocolError as problem:
                if problem.code is not ServerError.ServiceNotReady:
                    raise
            await asyncio.sleep(next(delays))
    finally:
        connection.producers.end_opening(command)


async def _open(connection: ClientConnection, command: CreateProducer) -> None:
    mode = OpenMode.CREATE if connection.peer is None else OpenMode.REPLICATE
    topic = await connection.region.directory.acquire(command.topic, mode)
    if (delay_seconds := connection.region.directory.failed_stores.producer_delay(topic.full_name)) > 0:
        await asyncio.sleep(delay_seconds)
    if connection.peer is None:
        connection.region.topic_rules.check_open_to_clients(topic.full_name)
    version = await schemas.register_producer_schema(connection, topic.name, command.schema)
    if command.initial_subscription_name:
        await _create_initial_subscription(topic, command.initial_subscription_name)
    producer = _new_producer(connection, command, topic, _name_of(connection, command))
    producer.schema_version = version
    try:
        await _enter(connection, producer, topic)
    except BaseException:
        topic.access.left(producer, "its client stopped waiting")
        raise


def _name_of(connection: ClientConnection, command: CreateProducer) -> str:
    return command.producer_name or connection.region.incarnation.new_producer_name()


def _new_producer(
    connection: ClientConnection, command: CreateProducer, topic: Topic, name: str
) -> ConnectedProducer:
    publisher_of = connection.region.environment.components.connections.publisher_of
    publisher = publisher_of(connection.peer, name, connection.address)
    return ConnectedProducer(connection, command.producer_id, topic, name, publisher, command)


async def _enter(connection: ClientConnection, producer: ConnectedProducer, topic: Topic) -> None:
    if producer.is_limited:
        await topic.retention.before_producers()
    _check_may_publish(producer, topic)
    # The response's last sequence id must include sends of an earlier incarnation that are not durable yet. Otherwise
    # the client would reuse their ids for other messages, which would be acknowledged as duplicates.
    waits = topic.publishing.is_pending
    while waits or _producer_named(topic, producer.producer_name) not in (None, producer):
        await _replace_former(connection, producer, topic)
        await topic.issued_so_far()
        waits = False  # other producers may publish without end
    _request_access(connection, producer, topic)


def _request_access(connection: ClientConnection, producer: ConnectedProducer, topic: Topic) -> None:
    """Request access to the topic, unless the client has closed the producer meanwhile."""
    command = producer.request
    if connection.producers.opening.get(command.producer_id) is not command or not connection.is_open:
        topic.access.left(producer, "its client stopped waiting")
        return
    if topic.closed:
        raise ProtocolError(ServerError.ServiceNotReady, f"{topic.full_name} is being loaded again")
    _check_may_publish(producer, topic)
    connection.producers.claim(producer)
    if producer.source_region is not None:
        connection.producers.admitted(producer, None)  # X5: replicators need no exclusive access
    else:
        topic.access.enter(producer)


def _check_may_publish(producer: ConnectedProducer, topic: Topic) -> None:
    """Raise ProtocolError when the topic is terminated, over a backlog quota, or has too many producers. Replicators
    are rejected only by a terminated topic."""
    if topic.termination.is_terminated:
        raise topic.termination.refusal()
    if not producer.is_limited:
        return
    if topic.retention.quota_refusal is not None:
        raise topic.retention.quota_refusal
    limits = topic.client_limits
    if limits.producers:
        others = [one for one in topic.producers.values() if one.is_limited and not producer.replaces(one)]
        limits.check_producers(len(others), topic.full_name)


def _producer_named(topic: Topic, name: str) -> ConnectedProducer | None:
    """Return the producer of this name that is connected, waiting or being admitted."""
    return topic.producers.get(name) or topic.access.named(name)


async def _create_initial_subscription(topic: Topic, name: str) -> None:
    """Create a producer's initial subscription, which begins at the log's first entry: used for dead letter topics. An
    existing subscription stays as it is."""
    check_subscription_name(name)
    if len(name) > NAME_LENGTH_MAX:
        sentence = f"a subscription name of {len(name):,} characters; {NAME_LENGTH_MAX:,} are allowed"
        raise ProtocolError(ServerError.NotAllowedError, sentence)
    subscription = topic.subscriptions.get(name)
    if subscription is None:
        topic.client_limits.check_subscriptions(len(topic.subscriptions), topic.full_name)
        cursor = topic.region.environment.components.subscriptions.cursor(topic.reading.first_entry_id - 1)
        subscription = topic.subscriptions.create(name, cursor)
    await subscription.persisted()


async def _replace_former(connection: ClientConnection, producer: ConnectedProducer, topic: Topic) -> None:
    """Ensure one live producer per name. Replace older incarnations of the same client's producer, producers of dead
    connections, and earlier connections of a peer's replicator. ProtocolError for any other live producer."""
    name = producer.producer_name
    old = _producer_named(topic, name)
    if old is None or old is producer:
        return
    if old.connection is connection and old.producer_id == producer.producer_id:
        topic.access.machine.hand_over(old, producer)
        connection.producers.forget(old, "its client opened it again")
        return
    if isinstance(producer.publisher, Peer):
        # Send CLOSE_PRODUCER to the old producer: this request may be a late one of an earlier connection, delivered by
        # a healed link. Then the old producer is the live one, and must reconnect.
        old.connection.producers.close(old)
        return
    if await old.connection.is_alive() and _producer_named(topic, name) is old:
        raise ProtocolError(
            ServerError.ProducerBusy,
            f"ConnectedProducer with name '{name}' is already connected to topic {topic.full_name}",
        )
    if _producer_named(topic, name) is old:
        topic.access.machine.hand_over(old, producer)
        old.connection.producers.forget(old, "its connection did not respond")
        old.connection.abort()


def send(connection: ClientConnection, command: SendCommand, entry: bytes) -> None:
    """Add one entry to the next append of its topic. No task is created: one read contains many entries."""
    producer = connection.producers.open.get(command.producer_id)
    if producer is None:
        _send_without_producer(connection, command)
        return
    if command.run_messages and producer.accepts_runs:
        for size_bytes in producer.publish_run(command, entry):
            connection.flow_control.pending_bytes += size_bytes
    else:
        connection.flow_control.pending_bytes += producer.publish(command, entry)


def send_group(
    connection: ClientConnection, command: SendCommand, frames: Sequence[Frame], index: int
) -> int:
    """Add the group of plain messages that begins with a SEND to the next append of its topic. Return their number; 0:
    `send` has to handle this SEND alone. It also does if no other one would be in the group, which is quicker."""
    if command.highest_sequence_id or command.run_messages or not is_followed(frames, index):
        return 0
    producer = connection.producers.open.get(command.producer_id)
    if producer is None:
        return 0
    messages, size_bytes = producer.publish_group(command.sequence_id, frames, index)
    if messages:
        connection.flow_control.pending_bytes += size_bytes
    return messages


def _send_without_producer(connection: ClientConnection, command: SendCommand) -> None:
    """Ignore a SEND whose producer was closed while it was in transit. ProtocolError for an unknown producer."""
    if command.producer_id not in connection.producers.closed:
        raise ProtocolError(
            ServerError.UnknownError,
            f"send for unknown producer {command.producer_id}",
            closes_connection=True,
        )


def refuse_send(command: SendCommand, problem: ProtocolError) -> bytes:
    return SendError(command.producer_id, command.sequence_id, problem.code, str(problem)).encode()


def topic_of(connection: ClientConnection, command: SendCommand | CloseProducer) -> ProtectedResource:
    producer = connection.producers.open.get(command.producer_id)
    return ProtectedResource("topic", producer.topic.full_name if producer is not None else "?")


def close(connection: ClientConnection, command: CloseProducer) -> Work | None:
    """Close a producer after the receipts of all its earlier sends."""
    connection.producers.opening.pop(command.producer_id, None)
    producer = connection.producers.open.get(command.producer_id)
    if producer is not None and producer.topic.publishing.is_pending:
        return _close_after_sends(connection, command, producer)
    _close(connection, command, producer)
    return None


async def _close_after_sends(
    connection: ClientConnection, command: CloseProducer, producer: ConnectedProducer
) -> None:
    await producer.topic.issued_so_far()
    _close(connection, command, producer)


def _close(connection: ClientConnection, command: CloseProducer, producer: ConnectedProducer | None) -> None:
    producer = producer or connection.producers.claims.get(command.producer_id)
    if producer is not None:
        connection.producers.forget(producer, "it was closed")
    connection.answer_soon(encode_success(command.request_id))
