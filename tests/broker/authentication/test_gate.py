"""The gate of the binary port: which CONNECT is accepted, hostile handshakes, and the refresh of credentials."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from emulator.broker.connection.connection import ClientConnection
from emulator.config.security import (
    AuthenticationConfig,
    AuthorizationConfig,
    SecurityConfig,
    TokenConfig,
)
from emulator.model.principals import Principal
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.commands import AuthResponse
from tests.broker.connection.raw import RawClient, raw_client
from tests.broker.regions import Regions, regions, until

from .test_basic_and_certificates import APR1
from .tokens import secret_file, token

REFRESH_SECONDS = 3_600
"""Tests call `check` instead of waiting: a slow machine must not lose a race against the timer."""
HOUR = 3_600


@asynccontextmanager
async def region(
    folder: Path, *, authorization: AuthorizationConfig | None = None, **changes: Any
) -> AsyncIterator[Regions]:
    """Run a region `us` that accepts tokens signed with SECRET and the user `ana`."""
    users = folder / "users"
    users.write_text(f"ana:{APR1}\n")
    authentication = AuthenticationConfig(
        token=TokenConfig(secret_key=secret_file(folder)),
        basic_users=str(users),
        refresh_seconds=REFRESH_SECONDS,
        **changes,
    )
    async with regions("us", security={"us": SecurityConfig(None, authentication, authorization)}) as world:
        yield world


def now(world: Regions) -> int:
    """Return the wall clock of the region in seconds."""
    return world.running["us"].environment.wall_clock_ms() // 1000


async def connect(client: RawClient, method: str, data: bytes, **fields: Any) -> pb.BaseCommand:
    """Send CONNECT and return the response."""
    command = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
    command.connect.client_version, command.connect.protocol_version = "raw", 19
    command.connect.auth_method_name, command.connect.auth_data = method, data
    command.connect.feature_flags.supports_auth_refresh = fields.pop("refreshes", True)
    for name, value in fields.items():
        setattr(command.connect, name, value)
    return await client.ask(command)


async def refused(world: Regions, method: str, data: bytes, **fields: Any) -> str:
    """Send CONNECT, assert that it is refused and the connection closed, and return the message."""
    async with raw_client(world, handshake=False) as client:
        answer = await connect(client, method, data, **fields)
        assert answer.type == pb.BaseCommand.ERROR, answer
        assert answer.error.error in (pb.AuthenticationError, pb.AuthorizationError)
        with pytest.raises(EOFError):
            await client.next()
        return answer.error.message


def only(world: Regions) -> ClientConnection:
    (connection,) = world.running["us"].clients.connections
    return connection


def check(world: Regions) -> None:
    """Check the credentials of all connections, as the timer does at each interval."""
    for connection in list(world.running["us"].clients.connections):
        assert connection.credential_refresh is not None
        connection.credential_refresh.check()


def expire(world: Regions) -> None:
    """Let two hours pass on the clock of the region, and check all credentials."""
    world.skews_ms["us"] += 2 * HOUR * 1000
    check(world)


def counts(world: Regions) -> dict[tuple[str, str], int]:
    return dict(world.running["us"].resources.refused_authentications.counts)


async def test_a_token_proves_the_role(tmp_path: Path) -> None:
    async with region(tmp_path) as world, raw_client(world, handshake=False) as client:
        answer = await connect(client, "token", token())
        assert answer.type == pb.BaseCommand.CONNECTED
        assert only(world).principal == Principal("app")
        assert not counts(world)
        await client.open_producer()


async def test_a_name_with_a_wrong_password_is_refused(tmp_path: Path) -> None:
    async with region(tmp_path) as world:
        assert "unknown user or wrong password" in await refused(world, "basic", b"ana:wrong")
        assert counts(world) == {("basic", "credentials"): 1}


async def test_a_megabyte_before_connect_ends_its_connection_only(tmp_path: Path) -> None:
    async with region(tmp_path) as world:
        async with raw_client(world, handshake=False) as client:
            client.greet("token", b"x" * 1_000_000)
            with suppress(ConnectionError):  # a reset, since the region does not read all of it
                assert (await client.next()).type == pb.BaseCommand.ERROR
        async with raw_client(world, handshake=False) as other:
            assert (await connect(other, "token", token())).type == pb.BaseCommand.CONNECTED


@pytest.mark.parametrize(
    ("method", "data", "reason"),
    [
        ("", b"", ("none", "missing")),
        ("none", b"", ("none", "missing")),
        ("sasl", b"x", ("other", "unknown-method")),
        ("tls", b"", ("other", "unknown-method")),
        ("token", b"", ("token", "malformed")),
        ("token", b"\xff\x00garbage", ("token", "malformed")),
        ("token", b"a.b.c", ("token", "malformed")),
        ("token", token()[:-3], ("token", "signature")),
        ("token", b"x" * 60_000, ("token", "malformed")),
        ("token", token(sub="a\0b"), ("token", "role")),
        ("basic", b"x" * 60_000, ("basic", "malformed")),
        ("m" * 60_000, b"", ("other", "unknown-method")),
    ],
    ids=range(12),
)
async def test_connects_that_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, method: str, data: bytes, reason: tuple[str, str]
) -> None:
    async with region(tmp_path) as world:
        with caplog.at_level(logging.INFO, logger="emulator.broker.connection"):
            message = await refused(world, method, data)
        assert counts(world) == {reason: 1}
        lines = [one.getMessage() for one in caplog.records if message in one.getMessage()]
        assert len(lines) == 1, caplog.text
        assert data.decode("latin-1") not in lines[0] or not data
        assert len(lines[0]) < 400
        async with raw_client(world, handshake=False) as other:  # the region serves others
            assert (await connect(other, "token", token())).type == pb.BaseCommand.CONNECTED


async def test_an_expired_token_is_refused(tmp_path: Path) -> None:
    async with region(tmp_path) as world:
        assert "expired" in await refused(world, "token", token(exp=now(world) - 1))
        assert "not valid yet" in await refused(world, "token", token(nbf=now(world) + HOUR))
        assert counts(world) == {("token", "expired"): 1, ("token", "not-yet-valid"): 1}


async def test_the_anonymous_role_is_for_clients_without_known_credentials(tmp_path: Path) -> None:
    async with region(tmp_path, anonymous_role="guest") as world:
        async with raw_client(world, handshake=False) as client:
            assert (await connect(client, "", b"")).type == pb.BaseCommand.CONNECTED
            assert only(world).principal == Principal("guest")
        await refused(world, "token", b"wrong")


async def test_a_failing_provider_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with region(tmp_path) as world:
        gate = world.running["us"].gate
        assert gate is not None
        monkeypatch.setattr(gate.providers["token"], "verify", lambda *_: 1 / 0)
        assert await refused(world, "token", token()) == "authentication failed: ZeroDivisionError"
        assert counts(world) == {("token", "failure"): 1}


# Proxies.

PROXIES = AuthorizationConfig(superusers=("admin",), proxy_roles=("proxy", "proxy2"))


async def test_a_proxy_names_its_client(tmp_path: Path) -> None:
    async with region(tmp_path, authorization=PROXIES) as world:
        for fields in (
            {"original_principal": "app"},
            {"original_auth_method": "token", "original_auth_data": token().decode()},
            {
                "original_principal": "app",
                "original_auth_method": "token",
                "original_auth_data": token().decode(),
            },
        ):
            async with raw_client(world, handshake=False) as client:
                answer = await connect(client, "token", token(sub="proxy"), **fields)
                assert answer.type == pb.BaseCommand.CONNECTED
                assert only(world).principal == Principal("proxy", "app")
                assert only(world).principal.acting == "app"
            await until(lambda: not world.running["us"].clients.connections)


@pytest.mark.parametrize(
    ("role", "fields"),
    [
        ("proxy", {}),
        ("proxy", {"original_principal": "proxy2"}),
        ("proxy", {"original_principal": "proxy"}),
        ("app", {"original_principal": "admin"}),
        ("app", {"original_principal": "proxy"}),
        (
            "proxy",
            {"original_principal": "admin", "original_auth_method": "token", "original_auth_data": "x"},
        ),
        (
            "proxy",
            {
                "original_principal": "admin",
                "original_auth_method": "token",
                "original_auth_data": token().decode(),
            },
        ),
        ("proxy", {"original_auth_method": "token", "original_auth_data": token(sub="proxy2").decode()}),
        ("proxy", {"original_auth_method": "tls", "original_auth_data": "app"}),
    ],
    ids=range(9),
)
async def test_claims_of_proxies_that_are_refused(tmp_path: Path, role: str, fields: dict[str, str]) -> None:
    async with region(tmp_path, authorization=PROXIES) as world:
        await refused(world, "token", token(sub=role), **fields)


async def test_who_is_no_proxy_may_name_itself(tmp_path: Path) -> None:
    async with region(tmp_path) as world, raw_client(world, handshake=False) as client:
        answer = await connect(client, "token", token(), original_principal="app")
        assert answer.type == pb.BaseCommand.CONNECTED
        assert only(world).principal == Principal("app")


# AUTH_RESPONSE.


def respond(client: RawClient, data: bytes, method: str = "token") -> None:
    client.writer.write(AuthResponse(method, data).encode())


async def test_a_client_refreshes_an_expired_token(tmp_path: Path) -> None:
    async with region(tmp_path) as world, raw_client(world, handshake=False) as client:
        await connect(client, "token", token(exp=now(world) + HOUR))
        for _ in range(3):
            expire(world)
            challenge = await client.next()
            assert challenge.type == pb.BaseCommand.AUTH_CHALLENGE
            assert challenge.authChallenge.challenge.auth_method_name == "token"
            assert challenge.authChallenge.challenge.auth_data == b"PulsarAuthRefresh"
            respond(client, token(exp=now(world) + HOUR))
            await client.open_producer()
        assert only(world).principal == Principal("app")
        assert not counts(world)


async def test_a_client_that_does_not_respond_is_closed(tmp_path: Path) -> None:
    async with region(tmp_path) as world, raw_client(world, handshake=False) as client:
        await connect(client, "token", token(exp=now(world) + HOUR))
        expire(world)
        assert (await client.next()).type == pb.BaseCommand.AUTH_CHALLENGE
        check(world)
        with pytest.raises(EOFError):
            await client.next()
        assert counts(world) == {("token", "no-response"): 1}


async def test_a_client_that_cannot_refresh_is_closed(tmp_path: Path) -> None:
    async with region(tmp_path) as world, raw_client(world, handshake=False) as client:
        await connect(client, "token", token(exp=now(world) + HOUR), refreshes=False)
        expire(world)
        with pytest.raises(EOFError):
            await client.next()
        assert counts(world) == {("token", "expired"): 1}


async def test_the_client_of_a_proxy_expires_too(tmp_path: Path) -> None:
    async with region(tmp_path, authorization=PROXIES) as world, raw_client(world, handshake=False) as client:
        forwarded = token(exp=now(world) + HOUR).decode()
        fields = {"original_auth_method": "token", "original_auth_data": forwarded}
        await connect(client, "token", token(sub="proxy"), **fields)
        expire(world)
        with pytest.raises(EOFError):
            await client.next()
        assert counts(world) == {("token", "expired"): 1}


@pytest.mark.parametrize(
    ("method", "data", "reason"),
    [
        ("token", token(sub="admin"), "changed-role"),
        ("basic", b"ana:superpass", "changed-method"),
        ("", b"", "changed-method"),
        ("geoemu-region", b"us", "changed-method"),
        ("token", b"garbage", "malformed"),
        ("token", b"x" * 1_000_000, "malformed"),
        ("token", token(exp=1), "expired"),
    ],
    ids=range(7),
)
async def test_responses_that_close_the_connection(
    tmp_path: Path, method: str, data: bytes, reason: str
) -> None:
    async with region(tmp_path) as world, raw_client(world, handshake=False) as client:
        await connect(client, "token", token(exp=now(world) + HOUR))
        expire(world)
        await client.next()
        respond(client, data, method)
        with pytest.raises(EOFError):
            await client.next()
        assert counts(world) == {("token", reason): 1}


async def test_responses_without_a_challenge_close_the_connection(tmp_path: Path) -> None:
    async with region(tmp_path) as world:
        for before in (0, 1):
            async with raw_client(world, handshake=False) as client:
                if before:
                    await connect(client, "token", token())
                respond(client, token(sub="admin"))
                if not before:
                    assert (await client.next()).type == pb.BaseCommand.ERROR
                with pytest.raises(EOFError):
                    await client.next()


async def test_a_second_response_to_a_challenge_closes_the_connection(tmp_path: Path) -> None:
    async with region(tmp_path) as world, raw_client(world, handshake=False) as client:
        await connect(client, "token", token(exp=now(world) + HOUR))
        expire(world)
        await client.next()
        fresh = token(exp=now(world) + HOUR)
        respond(client, fresh)
        respond(client, fresh)
        with pytest.raises(EOFError):
            await client.next()


async def test_a_second_connect_changes_no_role(tmp_path: Path) -> None:
    async with region(tmp_path) as world, raw_client(world, handshake=False) as client:
        await connect(client, "token", token())
        connection = only(world)
        client.greet("token", token(sub="admin"))
        with pytest.raises(EOFError):
            await client.next()
        assert connection.principal == Principal("app")


async def test_commands_before_connect_are_refused(tmp_path: Path) -> None:
    async with region(tmp_path) as world, raw_client(world, handshake=False) as client:
        client.ask_for_producer()
        assert (await client.next()).type == pb.BaseCommand.ERROR
        with pytest.raises(EOFError):
            await client.next()


async def test_the_timer_ends_with_its_connection(tmp_path: Path) -> None:
    async with region(tmp_path) as world:
        async with raw_client(world, handshake=False) as client:
            await connect(client, "token", token(exp=now(world) + HOUR))
            connection = only(world)
        await until(lambda: not world.running["us"].clients.connections)
        expire(world)
        timer = connection.credential_refresh._timer  # type: ignore[union-attr]
        assert timer is not None
        assert timer.cancelled()
        assert not counts(world)
