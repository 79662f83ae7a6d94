"""CONNECT, the authentication of a region, PING and PONG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.broker.authorization import TrustLevel
from emulator.broker.replication import peer_auth
from emulator.core.admission import Peer
from emulator.errors import ProtocolError, ServerError
from emulator.wire.commands import AuthChallenge, AuthResponse, Connect, connected_response
from emulator.wire.frames import PONG_FRAME

if TYPE_CHECKING:
    from emulator.broker.connection.connection import ClientConnection


def connect(connection: ClientConnection, command: Connect) -> None:
    if connection.trust is not TrustLevel.UNAUTHENTICATED or connection.handshake is not None:
        raise ProtocolError(ServerError.UnknownError, "CONNECT may be sent once only", closes_connection=True)
    config, method = connection.region.config, command.auth_method_name
    if method == peer_auth.METHOD:
        draw = connection.region.environment.random.randbytes
        challenge = peer_auth.challenge(config, command.auth_data, draw)
        connection.handshake = peer_auth.Handshake(command, challenge)
        connection.answer(AuthChallenge(method, challenge.nonce).encode())
    else:
        _welcome(connection, command, peer_auth.declared_peer(config.pulsar_peers, method, command.auth_data))


def prove(connection: ClientConnection, command: AuthResponse) -> None:
    handshake, connection.handshake = connection.handshake, None
    if handshake is None:
        sentence = "AUTH_RESPONSE without a challenge"
        raise ProtocolError(ServerError.UnknownError, sentence, closes_connection=True)
    peer = handshake.challenge.verify(connection.region.config, command.method, command.data)
    _welcome(connection, handshake.greeting, peer)


def _welcome(connection: ClientConnection, greeting: Connect, peer: Peer | None) -> None:
    connection.client_version = greeting.client_version
    connection.peer = peer
    connection.raise_trust(TrustLevel.CLIENT if peer is None else TrustLevel.PEER)
    settings = connection.region.config.settings
    connection.answer(connected_response(greeting.protocol_version, settings.max_message_bytes).encode())


def ping(connection: ClientConnection, command: None) -> None:
    connection.answer(PONG_FRAME)


def pong(connection: ClientConnection, command: None) -> None:
    """No effect: every received byte shows that the client is alive."""
