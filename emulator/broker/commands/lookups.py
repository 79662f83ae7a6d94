"""LOOKUP, PARTITIONED_METADATA, GET_TOPICS_OF_NAMESPACE: where topics are, and which there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from emulator.broker.authorization import Standing
from emulator.errors import ProtocolError, ServerError
from emulator.wire import answers
from emulator.wire.commands import GetTopics, Lookup, PartitionMetadata

if TYPE_CHECKING:
    from emulator.broker.commands.connection import ClientConnection

COORDINATORS: Final = "persistent://pulsar/system/transaction_coordinator_assign"
"""Where clients with transactions enabled look for the transaction coordinators, before they do anything else."""
NO_TRANSACTIONS: Final = "Transactions are not enabled."


def lookup(connection: ClientConnection, command: Lookup) -> None:
    """Every topic of a region lives in the region: always «connect here»."""
    if command.topic.startswith(COORDINATORS):
        # The Java client looks up this topic when it has no partitions, and gives up at an error that is final.
        raise ProtocolError(ServerError.NotAllowedError, NO_TRANSACTIONS)
    if command.listener_name:
        raise ProtocolError(
            ServerError.ServiceNotReady,
            f"listener {command.listener_name!r} is not known: a region advertises one address and names none",
        )
    region = connection.region
    region.check_topic(command.topic)
    service_url = region.internal_url if connection.internal else region.service_url
    connection.answer(answers.lookup_connect(command.request_id, service_url))


def refuse_lookup(command: Lookup, problem: ProtocolError) -> bytes:
    return answers.lookup_failed(command.request_id, problem)


async def partition_metadata(connection: ClientConnection, command: PartitionMetadata) -> None:
    """How many partitions; a topic that is not there may be created (docs/rooms/partitions.md). Of the coordinators
    there are none, which clients read as: no transactions here."""
    count = 0 if command.topic == COORDINATORS else await _partitions_of(connection, command)
    connection.answer(answers.partitions(command.request_id, count))


async def _partitions_of(connection: ClientConnection, command: PartitionMetadata) -> int:
    region = connection.region
    topic = region.check_topic(command.topic)
    count = region.partitioned.count(topic)
    if count or region.directory.exists(str(topic)):
        return count
    if not command.may_create or not region.partitioned.may_be_created(topic):
        if connection.standing is Standing.PEER:
            return 0
        raise ProtocolError(ServerError.TopicNotFound, f"topic {topic} does not exist")
    return await region.partitioned.created_on_use(region.directory, topic)


def refuse_partition_metadata(command: PartitionMetadata, problem: ProtocolError) -> bytes:
    return answers.partitions_failed(command.request_id, problem)


def topics_of_namespace(connection: ClientConnection, command: GetTopics) -> None:
    names = connection.region.directory.names(command.namespace)
    connection.answer(answers.topics(command.request_id, names))
