"""LOOKUP, PARTITIONED_METADATA, GET_TOPICS_OF_NAMESPACE: where topics are, and which there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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


def partition_metadata(connection: ClientConnection, command: PartitionMetadata) -> None:
    """No topic is partitioned. Of the coordinators there are none, which clients read as: no transactions here."""
    if command.topic != COORDINATORS:
        connection.region.check_topic(command.topic)
    connection.answer(answers.partitions(command.request_id, 0))


def refuse_partition_metadata(command: PartitionMetadata, problem: ProtocolError) -> bytes:
    return answers.partitions_failed(command.request_id, problem)


def topics_of_namespace(connection: ClientConnection, command: GetTopics) -> None:
    names = connection.region.directory.names(command.namespace)
    connection.answer(answers.topics(command.request_id, names))
