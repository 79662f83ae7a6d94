"""Too many wrong credentials of one host: its further ones are refused, and no other client notices."""

from __future__ import annotations

import base64
import socket
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from emulator.config.broker_settings import BrokerSettings
from emulator.config.security import AuthenticationConfig, SecurityConfig, TokenConfig
from emulator.core.flow import failed_attempts
from emulator.net.control import control_header
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.commands import AuthResponse
from tests.broker.admin.served import served
from tests.broker.connection.raw import RawClient, raw_client
from tests.broker.regions import Regions, regions

from .test_basic_and_certificates import APR1
from .test_gate import HOUR, connect, counts, expire, now
from .tokens import secret_file, token

FAILURES_MAX = 3
ATTACKER = "127.0.0.2"
WRONG = (("basic", b"ana:guess"), ("token", token()[:-3]), ("token", b"x"))


@pytest.fixture(autouse=True)
def no_pardon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no budget grow during a test, so that a slow machine does not matter."""
    monkeypatch.setattr(failed_attempts, "PERIOD_SECONDS", 1_000_000.0)


def security(folder: Path) -> SecurityConfig:
    (folder / "users").write_text(f"ana:{APR1}\n")
    token_config = TokenConfig(secret_key=secret_file(folder))
    return SecurityConfig(
        None, AuthenticationConfig(token_config, str(folder / "users"), refresh_seconds=HOUR)
    )


def region(folder: Path, *others: str) -> AbstractAsyncContextManager[Regions]:
    """Run a region `us` with the limit, and others without authentication."""
    return regions(
        "us",
        *others,
        security={"us": security(folder)},
        failed_authentications_per_host_max=FAILURES_MAX,
    )


async def attempt(world: Regions, host: str, method: str, data: bytes) -> pb.BaseCommand:
    async with raw_client(world, handshake=False, host=host) as client:
        return await connect(client, method, data)


async def test_a_host_with_too_many_wrong_credentials_is_refused_unread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with region(tmp_path) as world:
        async with raw_client(world, handshake=False, host=ATTACKER) as earlier:
            assert (await connect(earlier, "token", token())).type == pb.BaseCommand.CONNECTED
            for method, data in WRONG:
                answer = await attempt(world, ATTACKER, method, data)
                assert answer.error.error == pb.AuthenticationError
            for method, data in (*WRONG, ("token", token())):
                answer = await attempt(world, ATTACKER, method, data)
                assert answer.error.error == pb.TooManyRequests
                assert answer.error.message.startswith(
                    f"too many failed authentications from {ATTACKER}; retry"
                )
            await earlier.open_producer()
        assert counts(world)[("token", "too-many")] == 3
        assert any(f"too many wrong credentials of {ATTACKER}" in one.message for one in caplog.records)
        assert (await attempt(world, "127.0.0.3", "token", token())).type == pb.BaseCommand.CONNECTED


async def test_genuine_credentials_and_none_do_not_count(tmp_path: Path) -> None:
    async with region(tmp_path) as world:
        for _ in range(2 * FAILURES_MAX):
            for method, data in (("token", token(exp=1)), ("", b""), ("sasl", b"x")):
                assert (await attempt(world, ATTACKER, method, data)).error.error == pb.AuthenticationError
        assert (await attempt(world, ATTACKER, "token", token())).type == pb.BaseCommand.CONNECTED


async def test_regions_are_not_limited(tmp_path: Path) -> None:
    """All regions of a run may have one address, which they share with a client."""
    async with region(tmp_path, "eu") as world:
        for _ in range(2 * FAILURES_MAX):
            await attempt(world, "127.0.0.1", "basic", b"ana:guess")
        assert (await attempt(world, "127.0.0.1", "token", token())).error.error == pb.TooManyRequests
        peer = await RawClient.connect_as_region(world, "eu")
        assert (await peer.next()).type == pb.BaseCommand.CONNECTED
        peer.writer.transport.abort()


async def test_wrong_credentials_of_a_refresh_count(tmp_path: Path) -> None:
    async with region(tmp_path) as world:
        for _ in range(FAILURES_MAX):
            async with raw_client(world, handshake=False, host=ATTACKER) as client:
                await connect(client, "token", token(exp=now(world) + HOUR))
                expire(world)
                assert (await client.next()).type == pb.BaseCommand.AUTH_CHALLENGE
                client.writer.write(AuthResponse("token", token()[:-3]).encode())
                with pytest.raises(EOFError):
                    await client.next()
        assert (await attempt(world, ATTACKER, "token", token())).error.error == pb.TooManyRequests


def request(port: int, host: str, authorization: str) -> bytes:
    """Send a request from an own address, and return the response."""
    head = "GET /admin/v2/clusters HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", port), 20, (host, 0)) as connection:
        connection.sendall(f"{head}Authorization: {authorization}\r\n\r\n".encode())
        received = b""
        while chunk := connection.recv(65_536):
            received += chunk
        return received


def test_http_requests_count_as_well(tmp_path: Path) -> None:
    settings = BrokerSettings(failed_authentications_per_host_max=FAILURES_MAX)
    bearer = f"Bearer {token().decode()}"
    guess = f"Basic {base64.b64encode(b'ana:guess').decode()}"
    with served(settings=settings, security=security(tmp_path), run_secret="of the run") as us:
        for _ in range(FAILURES_MAX):
            assert request(us.admin_port, ATTACKER, guess).startswith(b"HTTP/1.1 401 ")
        for authorization in (guess, bearer):
            refused = request(us.admin_port, ATTACKER, authorization)
            assert refused.startswith(b"HTTP/1.1 429 ")
            assert b"retry-after: " in refused
            assert b"too many failed authentications" in refused
        assert request(us.admin_port, "127.0.0.3", bearer).startswith(b"HTTP/1.1 200 ")
        assert request(us.admin_port, ATTACKER, control_header("of the run")).startswith(b"HTTP/1.1 200 ")
        metrics = us.ask("GET", "/metrics").body.decode()
        assert 'geoemu_refused_authentications_total{method="basic",reason="too-many"} 1' in metrics
