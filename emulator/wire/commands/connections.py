"""Commands of the connection itself: handshake, lookups and the topics of a namespace."""

from collections.abc import Iterable
from typing import Annotated, Final

from emulator.errors import ProtocolError, ServerError
from emulator.model.crc import crc32c
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.command_types import CommandType
from emulator.wire.commands.spec import Command, command, error_fields

PROTOCOL_VERSION: Final = 21
"""The newest version of Pulsar's binary protocol that is supported."""
HANDSHAKE_REQUEST_ID: Final = 2**64 - 1
"""Request id of commands that answer no request: the ERROR of a failed handshake, and CLOSE_PRODUCER and CLOSE_CONSUMER
of a broker."""
SERVER_VERSION: Final = "Pulsar Server geoemu"


@command(CommandType.CONNECT)
class Connect(Command):
    """The first command of every connection."""

    client_version: str
    protocol_version: int = 0
    auth_method_name: str = ""
    auth_data: bytes = b""
    wants_source_positions: Annotated[bool, "feature_flags.supports_repl_dedup_by_lid_and_eid"] = False
    """Whether the client is a replicator that requests receipts with the positions of entries in its own log."""
    can_refresh_credentials: Annotated[bool, "feature_flags.supports_auth_refresh"] = False
    """Whether the client responds to AUTH_CHALLENGE with newer credentials."""
    original_principal: str = ""
    """Of a proxy: the role of the client for which it acts."""
    original_auth_data: str = ""
    """Of a proxy: the credentials of that client."""
    original_auth_method: str = ""


@command(CommandType.CONNECTED)
class Connected(Command):
    server_version: str
    protocol_version: int
    max_message_bytes: Annotated[int | None, "max_message_size"]
    has_topic_watchers: Annotated[bool, "feature_flags.supports_topic_watchers"] = False
    can_ask_partitions_without_creation: Annotated[
        bool, "feature_flags.supports_get_partitioned_metadata_without_auto_creation"
    ] = False
    has_source_positions: Annotated[bool, "feature_flags.supports_repl_dedup_by_lid_and_eid"] = False


def connected_response(client_protocol_version: int, max_message_bytes: int) -> Connected:
    """Return the response of this broker: the smaller of both protocol versions, and its features."""
    version = min(PROTOCOL_VERSION, client_protocol_version)
    return Connected(SERVER_VERSION, version, max_message_bytes, True, True, True)


@command(CommandType.AUTH_CHALLENGE)
class AuthChallenge(Command):
    method: Annotated[str, "challenge.auth_method_name"]
    data: Annotated[bytes, "challenge.auth_data"]


@command(CommandType.AUTH_RESPONSE)
class AuthResponse(Command):
    method: Annotated[str, "response.auth_method_name"]
    data: Annotated[bytes, "response.auth_data"]


@command(CommandType.SUCCESS)
class Success(Command):
    request_id: int


@command(CommandType.ERROR)
class Error(Command):
    request_id: int
    error: ServerError
    message: str


def error_response(request_id: int, problem: ProtocolError) -> Error:
    return Error(request_id, problem.code, str(problem))


# Lookups.


@command(CommandType.LOOKUP)
class Lookup(Command):
    """A request for the broker that serves a topic."""

    request_id: int
    topic: str
    listener_name: Annotated[str, "advertised_listener_name"] = ""
    """Name of the requested advertised address of the broker; empty: the default one."""


@command(CommandType.LOOKUP_RESPONSE)
class LookupResponse(Command):
    request_id: int
    response: int
    service_url: Annotated[str | None, "brokerServiceUrl"] = None
    service_url_tls: Annotated[str | None, "brokerServiceUrlTls"] = None
    authoritative: bool | None = None
    proxy_through_service_url: bool | None = None
    error: ServerError | None = None
    message: str | None = None

    @property
    def is_failed(self) -> bool:
        return self.response == pb.CommandLookupTopicResponse.Failed


def lookup_connect(
    request_id: int, service_url: str, service_url_tls: str = "", *, proxy_through_service_url: bool = False
) -> LookupResponse:
    """Return the response that the broker at these URLs serves the topic; empty: it has no such port.
    `proxy_through_service_url`: the client reaches it through the service URL that it already uses."""
    connect = pb.CommandLookupTopicResponse.Connect
    return LookupResponse(
        request_id, connect, service_url or None, service_url_tls or None, True, proxy_through_service_url
    )


def lookup_failed(request_id: int, problem: ProtocolError) -> LookupResponse:
    return LookupResponse(request_id, pb.CommandLookupTopicResponse.Failed, **error_fields(problem))


@command(CommandType.PARTITIONED_METADATA)
class PartitionMetadata(Command):
    """A request for the number of partitions of a topic."""

    request_id: int
    topic: str
    may_create: Annotated[bool, "metadata_auto_creation_enabled"]
    """Whether a missing topic is created, if its namespace allows it."""


@command(CommandType.PARTITIONED_METADATA_RESPONSE)
class PartitionMetadataResponse(Command):
    request_id: int
    response: int
    partitions: int | None = None
    """Number of partitions; 0: not partitioned."""
    error: ServerError | None = None
    message: str | None = None

    @property
    def is_failed(self) -> bool:
        return self.response == pb.CommandPartitionedTopicMetadataResponse.Failed


def partitions_response(request_id: int, count: int) -> PartitionMetadataResponse:
    return PartitionMetadataResponse(request_id, pb.CommandPartitionedTopicMetadataResponse.Success, count)


def partitions_failed(request_id: int, problem: ProtocolError) -> PartitionMetadataResponse:
    failed = pb.CommandPartitionedTopicMetadataResponse.Failed
    return PartitionMetadataResponse(request_id, failed, **error_fields(problem))


# The topics of a namespace.


def topics_hash(names: Iterable[str]) -> str:
    """Return the hash that clients compute from the names they know."""
    return crc32c(",".join(sorted(names)).encode()).to_bytes(4, "little").hex()


@command(CommandType.GET_TOPICS_OF_NAMESPACE)
class GetTopics(Command):
    request_id: int
    namespace: str
    pattern: Annotated[str, "topics_pattern"] = ""
    """Pattern of names; empty: all. Clients filter the names themselves if the response is not `filtered`."""
    hash: Annotated[str, "topics_hash"] = ""
    """Hash of the names that the client knows; empty: none."""
    mode: int = pb.CommandGetTopicsOfNamespace.PERSISTENT

    @property
    def wants_persistent(self) -> bool:
        return self.mode != pb.CommandGetTopicsOfNamespace.NON_PERSISTENT

    @property
    def wants_non_persistent(self) -> bool:
        return self.mode != pb.CommandGetTopicsOfNamespace.PERSISTENT


@command(CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE)
class GetTopicsResponse(Command):
    request_id: int
    names: Annotated[tuple[str, ...], "topics"]
    hash: Annotated[str, "topics_hash"]
    """Hash of all names."""
    filtered: bool
    """Whether the pattern was applied."""
    changed: bool
    """Whether the hash differs from that of the request; if not, `names` is empty."""


@command(CommandType.WATCH_TOPIC_LIST)
class WatchTopics(Command):
    request_id: int
    watcher_id: int
    namespace: str
    pattern: Annotated[str, "topics_pattern"]
    hash: Annotated[str, "topics_hash"] = ""


@command(CommandType.WATCH_TOPIC_LIST_SUCCESS)
class WatchTopicsSuccess(Command):
    request_id: int
    watcher_id: int
    names: Annotated[tuple[str, ...], "topic"]
    hash: Annotated[str, "topics_hash"]


@command(CommandType.WATCH_TOPIC_UPDATE)
class TopicsUpdate(Command):
    watcher_id: int
    new: Annotated[tuple[str, ...], "new_topics"]
    deleted: Annotated[tuple[str, ...], "deleted_topics"]
    hash: Annotated[str, "topics_hash"]
    """Hash of all names after the update."""


@command(CommandType.WATCH_TOPIC_LIST_CLOSE)
class EndWatch(Command):
    request_id: int
    watcher_id: int
