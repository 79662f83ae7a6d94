"""What a region says to another region as its client, and what it is told: the few commands of a replicator's
connection. Sends and receipts are in `codec`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from emulator.errors import ProtocolError, ServerError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec import decode_command
from emulator.wire.commands import PROTOCOL_VERSION
from emulator.wire.frames import simple_frame
from emulator.wire.protobuf import ABSENT_U64, UNREADABLE, malformed

_read_lean = pb.LeanCommand.FromString


def connect(client_version: str, method: str, data: bytes) -> bytes:
    """CONNECT of a replicator: it wants receipts that name positions in its own log, and says who it is."""
    return simple_frame(
        pb.BaseCommand(
            type=pb.BaseCommand.CONNECT,
            connect=pb.CommandConnect(
                client_version=client_version,
                protocol_version=PROTOCOL_VERSION,
                feature_flags=pb.FeatureFlags(supports_repl_dedup_by_lid_and_eid=True),
                auth_method_name=method,
                auth_data=data,
            ),
        )
    )


def read_challenge(command: bytes) -> tuple[str, bytes]:
    """Of an AUTH_CHALLENGE: method and data; empty where it says nothing."""
    challenge = decode_command(command).authChallenge.challenge
    return challenge.auth_method_name, challenge.auth_data


def auth_response(method: str, data: bytes) -> bytes:
    """AUTH_RESPONSE."""
    response = pb.CommandAuthResponse(response=pb.AuthData(auth_method_name=method, auth_data=data))
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.AUTH_RESPONSE, authResponse=response))


def read_max_message_bytes(command: bytes) -> int | None:
    """Of a CONNECTED: the largest message the other side takes; None when it does not say."""
    connected = decode_command(command).connected
    return connected.max_message_size if connected.HasField("max_message_size") else None


def read_receipt(command: bytes) -> tuple[int, int, int]:
    """(producer id, ledger, entry) of a SEND_RECEIPT between regions.

    It names the position in the sender's log where a client's has its sequence ids, and -1 for both says none.
    """
    try:
        receipt = _read_lean(command).send_receipt
    except UNREADABLE as problem:
        raise malformed("SEND_RECEIPT", problem) from None
    if receipt.producer_id == ABSENT_U64:
        raise malformed("SEND_RECEIPT", "producer_id is missing")
    return receipt.producer_id, receipt.sequence_id, receipt.highest_sequence_id


def read_producer_success(command: bytes) -> int:
    """The request id of a PRODUCER_SUCCESS."""
    return decode_command(command).producer_success.request_id


def read_partitions(command: bytes) -> tuple[int, int | None]:
    """PARTITIONED_METADATA_RESPONSE: (request id, number of partitions; None when it was refused)."""
    body = decode_command(command).partitionMetadataResponse
    failed = body.response == pb.CommandPartitionedTopicMetadataResponse.Failed
    return body.request_id, None if failed else body.partitions


def read_schema_version(command: bytes) -> tuple[int, bytes | ProtocolError]:
    """GET_OR_CREATE_SCHEMA_RESPONSE: (request id, version, or why there is none)."""
    body = decode_command(command).getOrCreateSchemaResponse
    if body.HasField("error_code"):
        return body.request_id, ProtocolError(ServerError(body.error_code), body.error_message)
    return body.request_id, body.schema_version


@dataclass(frozen=True, slots=True)
class Error:
    """ERROR: a request was refused."""

    request_id: int
    code: ServerError
    message: str

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).error
        return cls(body.request_id, ServerError(body.error), body.message)


@dataclass(frozen=True, slots=True)
class SendError:
    """SEND_ERROR: an entry was refused."""

    producer_id: int
    sequence_id: int
    code: ServerError
    message: str

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).send_error
        return cls(body.producer_id, body.sequence_id, ServerError(body.error), body.message)
