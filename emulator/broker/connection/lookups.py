"""LOOKUP, PARTITIONED_METADATA, GET_TOPICS_OF_NAMESPACE: addresses, partitions and names of topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from emulator.broker.authorization import TrustLevel
from emulator.broker.connection.dispatch import Work
from emulator.broker.transactions.coordinators import NOT_ENABLED
from emulator.core.topic_patterns import TopicPattern
from emulator.errors import ProtocolError, ServerError
from emulator.model.transaction_names import COORDINATORS
from emulator.model.values import TopicName
from emulator.wire.codec_hot.opening import encode_lookup_connect, encode_partitions
from emulator.wire.commands import (
    GetTopics,
    GetTopicsResponse,
    Lookup,
    PartitionMetadata,
    topics_hash,
)

if TYPE_CHECKING:
    from emulator.broker.connection.connection import ClientConnection


def lookup(connection: ClientConnection, command: Lookup) -> None:
    """Send the region's own addresses, because a region serves all its topics itself; a client takes the one with or
    without TLS, as its service URL. Clients in the region's network reach that address; others may have to keep their
    service URL (`proxy_through_service_url`)."""
    if command.listener_name:
        raise ProtocolError(
            ServerError.ServiceNotReady,
            f"listener {command.listener_name!r} is not known: a region advertises one address and names none",
        )
    region = connection.region
    if command.topic.startswith(COORDINATORS):
        _check_enabled(connection)
    else:
        region.check_topic(command.topic)
    proxied = region.config.settings.proxy_through_service_url and not connection.internal
    plain, secured = connection.service_urls
    connection.answer_soon(
        encode_lookup_connect(command.request_id, plain, secured, proxy_through_service_url=proxied)
    )


def _check_enabled(connection: ClientConnection) -> None:
    if not connection.region.coordinators.count:
        # If `COORDINATORS` has no partitions, the Java client looks it up as a topic, until it gets a final error.
        raise ProtocolError(ServerError.NotAllowedError, NOT_ENABLED)


def partition_metadata(connection: ClientConnection, command: PartitionMetadata) -> Work | None:
    """Send the number of partitions; a missing topic may be created (docs/components/partitions.md). Each coordinator
    is a partition of `COORDINATORS`; for clients, 0 means that transactions are not enabled."""
    if command.topic == COORDINATORS:
        count = connection.region.coordinators.count
    else:
        topic = connection.region.check_topic(command.topic)
        known = _known_partitions(connection, command, topic)
        if known is None:
            return _create_partitions(connection, command, topic)
        count = known
    connection.answer_soon(encode_partitions(command.request_id, count))
    return None


def _known_partitions(
    connection: ClientConnection, command: PartitionMetadata, topic: TopicName
) -> int | None:
    """Return the number of a topic's partitions; None if the request creates them. ProtocolError for a topic that does
    not exist and is not created."""
    region = connection.region
    count = region.partitioned.count(topic)
    if count or region.directory.exists(topic.text):
        return count
    if not command.may_create or not region.partitioned.may_be_created(topic):
        if connection.trust is TrustLevel.PEER:
            return 0
        raise ProtocolError(ServerError.TopicNotFound, f"Topic {topic} not found")
    return None if region.partitioned.creates_partitions(topic) else 0


async def _create_partitions(
    connection: ClientConnection, command: PartitionMetadata, topic: TopicName
) -> None:
    region = connection.region
    count = await region.partitioned.created_on_use(topic, region.topic_rules.reserve)
    connection.answer_soon(encode_partitions(command.request_id, count))


def topics_of_namespace(connection: ClientConnection, command: GetTopics) -> None:
    """Send the names of the topics that match the pattern; of all topics if the pattern is not supported, because the
    client filters them. Send no names when the client's hash shows that it has them."""
    region = connection.region
    names = region.directory.lists.names(command.namespace) if command.wants_persistent else []
    if command.wants_non_persistent:
        names += region.directory.lists.non_persistent_names(command.namespace)
    accepts = _filter_of(command.pattern)
    if accepts is not None:
        names = [name for name in names if accepts(name)]
    hash_ = topics_hash(names)
    changed = hash_ != command.hash
    connection.answer(
        GetTopicsResponse(
            command.request_id,
            tuple(names) if changed else (),
            hash_,
            filtered=accepts is not None,
            changed=changed,
        ).encode()
    )


def _filter_of(pattern: str) -> Callable[[str], bool] | None:
    try:
        return TopicPattern(pattern).fits if pattern else None
    except ValueError:
        return None
