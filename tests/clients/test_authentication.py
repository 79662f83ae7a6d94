"""Real clients with tokens and passwords. Geoemu's own client: tests/client/test_credentials.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from passlib.context import CryptContext

from emulator.config.security import AuthenticationConfig, SecurityConfig, TokenConfig
from emulator.model.principals import Principal
from tests.broker.authentication.tokens import secret_file, token
from tests.broker.regions import Regions, until
from tests.clients.harness import OWN, ClientProgram, Failed, clients, driver, now_ms, regions

pytestmark = pytest.mark.real
CLIENTS = clients(OWN, small=True)
RENEWING = clients(OWN, "rust")
"""Clients that supply another token after AUTH_CHALLENGE; the others connect again."""
HOUR = 3_600
HASHED = CryptContext(["apr_md5_crypt"]).hash("pass word")


def secured(folder: Path) -> SecurityConfig:
    """Return the security of a region with tokens and the user `ana`. Tests check for expiry themselves: a slow client
    must not lose a race against the timer."""
    (folder / "users").write_text(f"ana:{HASHED}")
    authentication = AuthenticationConfig(
        token=TokenConfig(secret_key=secret_file(folder)),
        basic_users=str(folder / "users"),
        refresh_seconds=3_600,
    )
    return SecurityConfig(authentication=authentication)


def in_file(folder: Path, name: str, content: bytes) -> str:
    """Replace a file atomically, as an agent that renews tokens does."""
    temporary = folder / f"{name}.new"
    temporary.write_bytes(content)
    temporary.replace(folder / name)
    return str(folder / name)


def expire(world: Regions) -> None:
    """Let two hours pass on the clock of the region, and check all credentials."""
    world.skews_ms["us"] += 2 * HOUR * 1000
    for connection in list(world.running["us"].clients.connections):
        assert connection.credential_refresh is not None
        connection.credential_refresh.check()


def roles(world: Regions) -> set[Principal]:
    return {one.principal for one in world.running["us"].clients.connections}


async def open_client(program: ClientProgram, world: Regions, **credentials: str) -> None:
    url = f"pulsar://127.0.0.1:{world.ports['us']}"
    await program.ask("client", key="us", url=url, timeout_ms=5_000, **credentials)


@CLIENTS
async def test_a_token_and_a_password_are_accepted(client: str, tmp_path: Path) -> None:
    """The Node client has no passwords."""
    async with regions("us", security={"us": secured(tmp_path)}) as world:
        for credentials, role in (
            ({"token_file": in_file(tmp_path, "token", token())}, "app"),
            ({"basic_file": in_file(tmp_path, "basic", b"ana:pass word")}, "ana"),
        )[: 1 if client == "node" else 2]:
            async with driver(client) as process:
                program = ClientProgram(process)
                await open_client(program, world, **credentials)
                await program.subscribe()
                await program.producer()
                await program.send("hello")
                assert await program.receive() == "hello"
                assert roles(world) == {Principal(role)}
            await until(lambda: not world.running["us"].clients.connections)
        assert not world.running["us"].resources.refused_authentications.counts


@CLIENTS
@pytest.mark.parametrize("data", [None, token(exp=1)], ids=["none", "expired"])
async def test_without_a_valid_token_a_producer_fails(
    client: str, tmp_path: Path, data: bytes | None
) -> None:
    """The client reports the failure, at once or at its timeout."""
    async with regions("us", security={"us": secured(tmp_path)}) as world, driver(client) as process:
        program = ClientProgram(process)
        credentials = {} if data is None else {"token_file": in_file(tmp_path, "token", data)}

        async def attempt() -> None:
            await open_client(program, world, **credentials)  # here the Rust client connects
            await program.producer()

        with pytest.raises(Failed):
            await attempt()
        assert sum(world.running["us"].resources.refused_authentications.counts.values()) >= 1


@RENEWING
async def test_a_token_that_expires_is_refreshed(client: str, tmp_path: Path) -> None:
    """The client asks its supplier again, and its producer does not notice."""
    async with regions("us", security={"us": secured(tmp_path)}) as world, driver(client) as process:
        program, region = ClientProgram(process), world.running["us"]
        first = token(exp=now_ms() // 1000 + HOUR)
        await open_client(program, world, token_file=in_file(tmp_path, "token", first))
        await program.producer()
        await program.send("before")
        before = set(region.clients.connections)
        in_file(tmp_path, "token", token(exp=now_ms() // 1000 + 100 * HOUR))
        expire(world)
        await until(lambda: all(not _is_expired(one) for one in region.clients.connections), 30)
        await program.send("after")
        assert set(region.clients.connections) == before
        assert not region.resources.refused_authentications.counts


def _is_expired(connection: Any) -> bool:
    refresh = connection.credential_refresh
    return bool(refresh.session.credential.is_expired(connection.region.environment.wall_clock_ms()))


@CLIENTS
async def test_a_token_that_is_not_renewed_ends_the_connection(client: str, tmp_path: Path) -> None:
    """A client with the renewed token is accepted."""
    async with regions("us", security={"us": secured(tmp_path)}) as world, driver(client) as process:
        program, refusals = ClientProgram(process), world.running["us"].resources.refused_authentications
        path = in_file(tmp_path, "token", token(exp=now_ms() // 1000 + HOUR))
        await open_client(program, world, token_file=path)
        await program.producer()
        await program.send("before")
        expire(world)
        await until(lambda: refusals.counts["token", "expired"] > 0, 30)
        in_file(tmp_path, "token", token(exp=now_ms() // 1000 + 100 * HOUR))
        async with driver(client) as other:
            renewed = ClientProgram(other)
            await open_client(renewed, world, token_file=path)
            await renewed.producer(key="q")
            await renewed.send("after", key="q")
