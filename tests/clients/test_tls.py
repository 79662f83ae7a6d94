"""TLS with released clients: what they accept, what they refuse, and that emulated links work under TLS."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from emulator.config.security import AuthenticationConfig, SecurityConfig, TlsConfig, TokenConfig
from emulator.model.principals import Principal
from emulator.net.tls import Certificates, ClientCertificates
from tests.broker.authentication.tokens import secret_file, token
from tests.broker.regions import Regions, regions, until
from tests.clients.driving import Failed, driver
from tests.clients.harness import ClientProgram, case
from tests.net import authority

pytestmark = pytest.mark.real

SECONDS = 60
HASTY_MS = 2_000
"""Operation timeout of clients that do not connect."""


@contextlib.asynccontextmanager
async def secured(
    *names: str,
    files: Certificates | None = None,
    client_certificates: ClientCertificates = "optional",
    authentication: AuthenticationConfig | None = None,
) -> AsyncIterator[Regions]:
    """Run regions with TLS inside the `async with` block."""
    used = files or authority.server_files()
    tls = TlsConfig(used.certificate, used.key, used.authority, client_certificates)
    security = dict.fromkeys(names, SecurityConfig(tls=tls, authentication=authentication))
    async with regions(*names, security=security) as world, asyncio.timeout(SECONDS):
        yield world


async def connect(
    program: ClientProgram,
    url: str,
    files: Certificates | None,
    key: str = "us",
    timeout_ms: int = 20_000,
    **credentials: str,
) -> None:
    options: dict[str, object] = {"keep_alive_ms": 30_000, **credentials}
    if files is not None:
        options["trust"] = files.authority
        if files.certificate:
            options |= {"certificate": files.certificate, "private_key": files.key}
    await program.ask("client", key=key, url=url, timeout_ms=timeout_ms, **options)


def url_of(world: Regions, name: str, host: str = "127.0.0.1") -> str:
    return f"pulsar+ssl://{host}:{world.ports_tls[name]}"


async def cannot_connect(program: ClientProgram, url: str, files: Certificates | None) -> None:
    async def attempt() -> None:
        await connect(program, url, files, "refused", HASTY_MS)
        await program.producer(client="refused", key="refused")

    with pytest.raises(Failed):
        await attempt()


def refusals(world: Regions) -> dict[tuple[str, str], int]:
    return world.running["us"].resources.refused_authentications.counts


ALL = ("python", "java", "go", "rust", "node")
CLIENTS = pytest.mark.parametrize("client", [case(one) for one in ALL])
WITH_CERTIFICATES = pytest.mark.parametrize("client", [case(one) for one in ALL if one != "rust"])
FULL = pytest.mark.parametrize("client", [case("python"), case("java"), case("go")])
"""Without the clients of which one test of each kind is enough."""


@pytest.fixture
def runner() -> object:
    return asyncio.run


@CLIENTS
async def test_messages_pass_from_region_to_region_over_tls_with_a_token(client: str, tmp_path: Path) -> None:
    authentication = AuthenticationConfig(token=TokenConfig(secret_key=secret_file(tmp_path)))
    (tmp_path / "token").write_bytes(token())
    async with secured("us", "eu", authentication=authentication) as world, driver(client) as process:
        program = ClientProgram(process)
        for name in world.names:
            token_file = str(tmp_path / "token")
            await connect(program, url_of(world, name), authority.trusting(), name, token_file=token_file)
        await program.subscribe(client="eu")
        await program.producer(client="us")
        await program.send("first", "second")
        assert [await program.receive(), await program.receive()] == ["first", "second"]
        connections = [one for region in world.running.values() for one in region.clients.connections]
        assert connections
        assert all(one.secured for one in connections), "of clients and of the other region"
        assert Principal("app") in {one.principal for one in connections}


@CLIENTS
async def test_clients_verify_the_region(client: str) -> None:
    async with driver(client) as process:
        program = ClientProgram(process)
        async with secured("us") as world:
            await cannot_connect(program, url_of(world, "us"), authority.trusting("other"))
            await connect(program, url_of(world, "us"), authority.trusting())
            await program.producer()
            await program.send("others work")
        for files in (authority.files_for("somewhere.else"), authority.expired_files()):
            async with secured("us", files=files) as world:
                await cannot_connect(program, url_of(world, "us"), authority.trusting())


@WITH_CERTIFICATES
async def test_a_required_client_certificate(client: str) -> None:
    async with secured("us", client_certificates="required") as world, driver(client) as process:
        program = ClientProgram(process)
        await cannot_connect(program, url_of(world, "us"), authority.trusting())
        await cannot_connect(program, url_of(world, "us"), authority.client_files("other"))
        await connect(program, url_of(world, "us"), authority.client_files())
        await program.producer()
        await program.send("with a certificate")


@FULL
async def test_a_port_answers_only_to_its_own_protocol(client: str) -> None:
    async with secured("us") as world, driver(client) as process:
        program = ClientProgram(process)
        await cannot_connect(program, f"pulsar://127.0.0.1:{world.ports_tls['us']}", None)
        await cannot_connect(program, f"pulsar+ssl://127.0.0.1:{world.ports['us']}", authority.trusting())
        await connect(program, url_of(world, "us"), authority.trusting())
        await connect(program, f"pulsar://127.0.0.1:{world.ports['us']}", None, "plain")
        await program.subscribe(client="plain")
        await program.producer(client="us")
        await program.send("by both ports")
        assert await program.receive() == "by both ports"


@FULL
@pytest.mark.parametrize("fault", ["cut", "held", "reset"])
async def test_a_fault_of_the_link_to_clients_works_under_tls(client: str, fault: str) -> None:
    async with secured("us") as world, driver(client) as process:
        program = ClientProgram(process)
        await connect(program, url_of(world, "us"), authority.trusting())
        await program.subscribe()
        await program.producer()
        await program.send("before")
        assert await program.receive() == "before"
        link = world.running["us"].environment.client_link
        if fault == "reset":
            link.reset()
            sending = asyncio.ensure_future(program.send("during"))
        else:
            for outbound in (True, False):
                link.set(outbound=outbound, state=fault)
            assert link.connections
            sending = asyncio.ensure_future(program.send("during"))
            await until(lambda: any(one.inbound.waiting_bytes for one in link.connections))
            for outbound in (True, False):
                link.set(outbound=outbound, state="up")
        await sending
        received = await program.receive()
        while received == "before":  # its acknowledgement may have been lost by a reset
            received = await program.receive()
        assert received == "during"


async def test_a_region_with_a_wrong_certificate_has_no_link_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The certificate of `eu` is of another authority: neither region accepts the other one."""
    mine, other = authority.server_files(), authority.server_files("other")
    security = {
        name: SecurityConfig(tls=TlsConfig(used.certificate, used.key, used.authority, "optional"))
        for name, used in (("us", mine), ("eu", mine))
    }
    async with regions("us", "eu", security=security) as world:
        wrong = TlsConfig(other.certificate, other.key, mine.authority, "optional")
        world.security["eu"] = SecurityConfig(tls=wrong)
        await world.stop("eu")
        caplog.clear()
        await world.start("eu")
        link = world.running["us"].peers["eu"]
        await until(lambda: "no TLS connection to eu: certificate verification failed" in str(link.why_not))
        await until(lambda: refusals(world)["tls_handshake", "peer"] > 2)
        lines = [record.message for record in caplog.records if "no TLS connection to eu" in record.message]
        assert len(lines) == 1, "one line for all attempts"
        back = world.running["eu"].peers["us"]
        await until(lambda: "no TLS connection to us: it ended the connection" in str(back.why_not))
        await until(lambda: refusals(world)["tls_handshake", "certificate"] > 2)
        world.security["eu"] = SecurityConfig(tls=security["eu"].tls)
        await world.stop("eu")
        await world.start("eu")
        await until(lambda: link.connected and world.running["eu"].peers["us"].connected)
