"""Commands between clients and transaction coordinators.

A transaction id is (most, least). The fields of transaction keys have private numbers, listed in `pulsar.proto`.
"""

from typing import Annotated, Final

from emulator.errors import ServerError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.command_types import CommandType
from emulator.wire.commands.spec import SIGNED_64, Command, Converter, command, common_fields

NO_EPOCH: Final = -1
"""Epoch of a client that was granted none for its key yet."""
_COMMIT_OR_ABORT: Final = Converter(
    lambda action: action == pb.COMMIT, lambda commit: pb.COMMIT if commit else pb.ABORT
)


@common_fields
class TransactionRequest(Command):
    """A request about one transaction."""

    request_id: int
    most: Annotated[int, "txnid_most_bits"]
    least: Annotated[int, "txnid_least_bits"]


@common_fields
class TransactionResponse(Command):
    """The response to a request about one transaction; without an error it succeeded."""

    request_id: int
    most: Annotated[int, "txnid_most_bits"]
    least: Annotated[int, "txnid_least_bits"]
    error: ServerError | None = None
    message: str | None = None


@command(CommandType.TC_CLIENT_CONNECT_REQUEST)
class ConnectCoordinator(Command):
    request_id: int
    coordinator: Annotated[int, "tc_id"]
    key: Annotated[str, "transaction_key"] = ""
    """Transaction key; empty: none."""
    known_epoch: Annotated[int | None, "transaction_key_epoch", SIGNED_64] = None
    """Epoch of the client's last connection under the key; sent with every key."""
    process: Annotated[str, "transaction_key_process"] = ""
    """Identifies the client process for its lifetime."""

    @property
    def epoch(self) -> int:
        return NO_EPOCH if self.known_epoch is None else self.known_epoch


@command(CommandType.TC_CLIENT_CONNECT_RESPONSE)
class CoordinatorConnected(Command):
    request_id: int
    epoch: Annotated[int | None, "epoch", SIGNED_64] = None
    """Epoch granted to a client with a transaction key."""
    error: ServerError | None = None
    message: str | None = None


@command(CommandType.NEW_TXN)
class NewTransaction(Command):
    request_id: int
    coordinator: Annotated[int, "tc_id"]
    timeout_ms: Annotated[int, "txn_ttl_seconds"]


@command(CommandType.NEW_TXN_RESPONSE)
class NewTransactionResponse(Command):
    request_id: int
    most: Annotated[int | None, "txnid_most_bits"] = None
    least: Annotated[int | None, "txnid_least_bits"] = None
    error: ServerError | None = None
    message: str | None = None


@command(CommandType.ADD_PARTITION_TO_TXN)
class AddPartitions(TransactionRequest):
    topics: Annotated[tuple[str, ...], "partitions"]


@command(CommandType.ADD_PARTITION_TO_TXN_RESPONSE)
class AddPartitionsResponse(TransactionResponse): ...


@command(CommandType.ADD_SUBSCRIPTION_TO_TXN)
class AddSubscriptions(TransactionRequest):
    subscriptions: Annotated[tuple[tuple[str, str], ...], "subscription"]
    """(topic, subscription) pairs."""


@command(CommandType.ADD_SUBSCRIPTION_TO_TXN_RESPONSE)
class AddSubscriptionsResponse(TransactionResponse): ...


@command(CommandType.END_TXN)
class EndTransaction(TransactionRequest):
    commit: Annotated[bool | None, "txn_action", _COMMIT_OR_ABORT] = None
    """True: commit, False: abort, None: not given."""


@command(CommandType.END_TXN_RESPONSE)
class EndTransactionResponse(TransactionResponse): ...


COORDINATOR_RESPONSES: Final = (
    CoordinatorConnected,
    NewTransactionResponse,
    AddPartitionsResponse,
    AddSubscriptionsResponse,
    EndTransactionResponse,
)

# Requests that are always rejected.


@command(CommandType.END_TXN_ON_PARTITION)
class EndTransactionOnPartition(Command):
    request_id: int


@command(CommandType.END_TXN_ON_SUBSCRIPTION)
class EndTransactionOnSubscription(Command):
    request_id: int
