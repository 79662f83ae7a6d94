"""The client with credentials: accepted, refused, and refreshed when they expire."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.client import Client, ClientError
from emulator.errors import ServerError
from emulator.net.credentials import Credentials
from tests.broker.authentication.test_gate import HOUR, counts, expire, now, only, region
from tests.broker.authentication.tokens import token
from tests.broker.regions import Regions, until


def client(world: Regions, **files: str) -> Client:
    return Client(f"pulsar://127.0.0.1:{world.ports['us']}", credentials=Credentials(**files))


async def test_a_token_and_a_password(tmp_path: Path) -> None:
    async with region(tmp_path) as world:
        (tmp_path / "token").write_bytes(token() + b"\n")
        async with client(world, token=str(tmp_path / "token")) as one:
            await (await one.producer("orders")).send(b"x")
            assert only(world).principal.role == "app"
        await until(lambda: not world.running["us"].clients.connections)
        (tmp_path / "basic").write_text("ana:wrong\n")
        async with client(world, basic=str(tmp_path / "basic")) as one:
            with pytest.raises(ClientError, match="unknown user or wrong password") as refused:
                await one.producer("orders")
            assert refused.value.code is ServerError.AuthenticationError


async def test_without_credentials(tmp_path: Path) -> None:
    async with region(tmp_path) as world, client(world) as one:
        with pytest.raises(ClientError, match="requires authentication") as refused:
            await one.producer("orders")
        assert refused.value.code is ServerError.AuthenticationError
        assert refused.value.definite


async def test_a_missing_file(tmp_path: Path) -> None:
    async with region(tmp_path) as world, client(world, token=str(tmp_path / "missing")) as one:
        one.settings = type(one.settings)(operation_timeout_seconds=0.1)
        with pytest.raises(ClientError, match="cannot read the credentials"):
            await one.producer("orders")


async def test_a_token_that_expires_is_read_again(tmp_path: Path) -> None:
    async with region(tmp_path) as world:
        (tmp_path / "token").write_bytes(token(exp=now(world) + HOUR))
        async with client(world, token=str(tmp_path / "token")) as one:
            producer = await one.producer("orders")
            await producer.send(b"before")
            connection = only(world)
            (tmp_path / "token").write_bytes(token(exp=now(world) + 100 * HOUR))
            expire(world)
            refresh = connection.credential_refresh
            assert refresh is not None
            expires = (now(world) + 98 * HOUR - 10) * 1000
            await until(lambda: (refresh.session.credential.expires_ms or 0) > expires)
            await producer.send(b"after")
            assert only(world) is connection
            assert not counts(world)
