"""The table of commands: complete (C2), and closed to clients before their handshake (C3)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from emulator.broker.authorization import TrustLevel
from emulator.broker.connection.commands import COMMANDS, NOT_OFFERED, TABLE
from emulator.broker.connection.dispatch import AnyCommandSpec, CommandTable
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.command_types import CommandType
from emulator.wire.frames import frame_of
from emulator.wire.protobuf import varint
from tests.broker.connection.raw import raw_client
from tests.broker.regions import regions

OPEN_TO_STRANGERS = {CommandType.CONNECT, CommandType.AUTH_RESPONSE, CommandType.PING, CommandType.PONG}


def bare(type_: int) -> bytes:
    """Return a command of this type without any optional field."""
    return frame_of(b"\x08" + varint(type_))


@pytest.mark.parametrize("name", [name for name, number in pb.BaseCommand.Type.items() if number])
def test_every_command_of_the_protocol_has_a_row_or_a_reason(name: str) -> None:
    """Never both, and the row has the protocol's name."""
    number = pb.BaseCommand.Type.Value(name)
    assert (number in TABLE.rows) != (number in NOT_OFFERED)
    if number in TABLE.rows:
        assert TABLE.rows[number].name == name
    else:
        assert " " in NOT_OFFERED[number]


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_an_unauthenticated_client_is_rejected(row: AnyCommandSpec) -> None:
    """Before CONNECT: ERROR of the handshake, and the connection is closed. The command is not even parsed."""

    async def scenario() -> None:
        async with regions("us") as world, raw_client(world, handshake=False) as client:
            client.writer.write(bare(row.type))
            error = (await client.next()).error
            assert (error.request_id, error.error) == (2**64 - 1, pb.UnknownError)
            with pytest.raises(EOFError):
                await client.next()

    if row.type in OPEN_TO_STRANGERS:
        assert row.trust is TrustLevel.UNAUTHENTICATED
    else:
        asyncio.run(scenario())


async def test_a_row_for_peers_is_refused_to_clients(caplog: pytest.LogCaptureFixture) -> None:
    """With the row's own response and a line in the log."""
    rows = tuple(
        replace(row, trust=TrustLevel.PEER) if row.type == CommandType.LOOKUP else row for row in COMMANDS
    )
    table = CommandTable(rows, NOT_OFFERED)

    with caplog.at_level(logging.INFO):
        async with regions("us") as world, raw_client(world) as client:
            connection = next(iter(world.running["us"].clients.connections))
            connection.table = table
            connection.legal_rows = table.legal[connection.trust]
            lookup = pb.CommandLookupTopic(topic="orders", request_id=4)
            answer = await client.ask(pb.BaseCommand(type=pb.BaseCommand.LOOKUP, lookupTopic=lookup))
            response = answer.lookupTopicResponse
            assert response.response == pb.CommandLookupTopicResponse.Failed
            assert (response.request_id, response.error) == (4, pb.AuthorizationError)
            connection.raise_trust(TrustLevel.PEER)
            answer = await client.ask(pb.BaseCommand(type=pb.BaseCommand.LOOKUP, lookupTopic=lookup))
            assert answer.lookupTopicResponse.response == pb.CommandLookupTopicResponse.Connect
    assert "LOOKUP, topic orders, AuthorizationError" in caplog.text


async def test_an_unsupported_command_is_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The connection stays open."""
    with caplog.at_level(logging.INFO):
        async with regions("us") as world, raw_client(world) as client:
            client.writer.write(bare(CommandType.MESSAGE) + bare(99))
            assert (await client.open_producer()).producer_name
    assert "command 9: only a broker sends it" in caplog.text
    assert "command 99: not supported by this region" in caplog.text
