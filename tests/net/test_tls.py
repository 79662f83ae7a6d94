"""TLS as a Network: verification in both directions, changed files, and connections that never complete a handshake."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from emulator.net import tls
from emulator.net.http import NoHttpResponse, call
from emulator.net.http_connections import HttpConnections
from emulator.net.http_server import HttpConnection, PreparedCall, RequestHead, Response
from emulator.net.tls import Certificates, ClientCertificates, TlsNetwork, TlsRefusal
from tests.net import authority

HOST = "127.0.0.1"
DEADLINE_SECONDS = 60.0
NEVER_SECONDS = 3_600.0


class _Hello:
    """An HTTP application that returns the common name of the client's certificate."""

    def begin(self, head: RequestHead) -> PreparedCall:
        async def respond(body: bytes) -> Response:
            return Response({"hello": head.target})

        return respond


class Port:
    """A port with TLS, and its refusals."""

    def __init__(self, network: TlsNetwork, port: int) -> None:
        self.network = network
        self.port = port
        self.refusals: list[tuple[TlsRefusal, str]] = []
        network.note_refusal = lambda *refusal: self.refusals.append(refusal)

    async def status(self, files: Certificates, host: str = HOST) -> int:
        return (await call(TlsNetwork(files), host, self.port, "GET", "/", seconds=DEADLINE_SECONDS)).status

    async def refusal(self) -> tuple[TlsRefusal, str]:
        await until(lambda: bool(self.refusals))
        return self.refusals[0]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def listening(
    files: Certificates | None = None,
    client_certificates: ClientCertificates = "none",
    connections: HttpConnections | None = None,
) -> AsyncIterator[Port]:
    network = TlsNetwork(files or authority.server_files(), client_certificates)
    tasks: set[asyncio.Task[None]] = set()

    def spawn(work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    limits = HttpConnections() if connections is None else connections
    listener = await network.listen(lambda: HttpConnection(_Hello(), spawn, limits), HOST, 0)
    try:
        yield Port(network, listener.port)
    finally:
        listener.close()


async def test_a_client_that_trusts_the_authority_is_served() -> None:
    async with listening() as port:
        assert await port.status(authority.trusting()) == 200
        assert await port.status(authority.trusting(), "localhost") == 200
        assert port.refusals == []


async def test_the_authority_the_host_and_the_time_are_verified() -> None:
    async with listening() as port:
        with pytest.raises(NoHttpResponse, match=r"verification failed: self.signed certificate"):
            await port.status(authority.trusting("other"))
        await port.refusal()
        port.refusals.clear()
        await asyncio.to_thread(_refuse_certificate, port.port)
        refusal, sentence = await port.refusal()
        assert refusal is TlsRefusal.REJECTED
        assert "unknown ca" in sentence
    async with listening(authority.files_for("somewhere.else")) as port:
        with pytest.raises(NoHttpResponse, match=r"IP address mismatch"):
            await port.status(authority.trusting())
    async with listening(authority.expired_files()) as port:
        with pytest.raises(NoHttpResponse, match=r"certificate has expired"):
            await port.status(authority.trusting())


def _refuse_certificate(port: int) -> None:
    """Connect as clients do that send why they end the connection, which asyncio does not."""
    context = tls.client_context(authority.trusting("other"))
    with socket.create_connection((HOST, port)) as plain, pytest.raises(ssl.SSLCertVerificationError):
        context.wrap_socket(plain, server_hostname=HOST)


@pytest.mark.parametrize("policy", ["none", "optional"])
async def test_a_client_needs_no_certificate(policy: ClientCertificates) -> None:
    async with listening(client_certificates=policy) as port:
        assert await port.status(authority.trusting()) == 200
        assert await port.status(authority.client_files()) == 200


async def test_a_required_client_certificate_must_be_of_the_authority() -> None:
    async with listening(client_certificates="required") as port:
        assert await port.status(authority.client_files()) == 200
        with pytest.raises(NoHttpResponse):
            await port.status(authority.trusting())
        assert (await port.refusal())[0] is TlsRefusal.NO_CERTIFICATE
        port.refusals.clear()
        with pytest.raises(NoHttpResponse):
            await port.status(authority.client_files("other"))
        refusal, sentence = await port.refusal()
        assert refusal is TlsRefusal.CERTIFICATE
        assert "verification failed" in sentence
        assert await port.status(authority.client_files()) == 200


async def test_a_wrong_certificate_is_refused_where_it_is_optional() -> None:
    async with listening(client_certificates="optional") as port:
        with pytest.raises(NoHttpResponse):
            await port.status(authority.client_files("other"))
        assert (await port.refusal())[0] is TlsRefusal.CERTIFICATE


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
async def test_tls_1_2_is_the_oldest_version(version: ssl.TLSVersion) -> None:
    async with listening() as port:
        context = ssl.create_default_context(cafile=authority.trusting().authority)
        context.minimum_version = context.maximum_version = version
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(HOST, port.port, ssl=context)
        await until(lambda: bool(port.refusals))
        assert await port.status(authority.trusting()) == 200


async def test_bytes_without_tls_get_no_answer_but_an_end() -> None:
    async with listening() as port:
        for sent in (
            b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
            b"\0\0\0\x0d\0\0\0\x09" + b"x" * 9,
            bytes(range(256)),
        ):
            port.refusals.clear()
            reader, writer = await asyncio.open_connection(HOST, port.port)
            writer.write(sent)
            received = await asyncio.wait_for(reader.read(), DEADLINE_SECONDS)
            assert b"HTTP" not in received
            assert (await port.refusal())[0] is TlsRefusal.PROTOCOL
            writer.close()
        assert await port.status(authority.trusting()) == 200


async def test_hundreds_of_unfinished_handshakes_end_and_delay_no_other_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", NEVER_SECONDS)
    async with listening() as port:
        opened = [socket.create_connection((HOST, port.port)) for _ in range(300)]
        for one in opened[::2]:
            one.sendall(b"\x16\x03\x01")  # the begin of a ClientHello
        assert await port.status(authority.trusting()) == 200, "while all others are open"
        for one in opened:
            one.close()
        await until(lambda: len(port.refusals) == len(opened))
        assert {refusal for refusal, _ in port.refusals} <= {TlsRefusal.CLOSED, TlsRefusal.PROTOCOL}
        monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 0.05)
        port.refusals.clear()
        with socket.create_connection((HOST, port.port)) as late:
            assert (await port.refusal())[0] is TlsRefusal.TIMEOUT
            late.settimeout(DEADLINE_SECONDS)
            assert late.recv(1) == b"", "the region has closed the connection"


@pytest.mark.parametrize("limits", [(3, 0), (0, 3)])
async def test_handshakes_count_in_the_limits_of_connections(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int]
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", NEVER_SECONDS)
    connections = HttpConnections(*limits)
    async with listening(connections=connections) as port:
        opened = []
        for _ in range(7):
            opened.append(await asyncio.open_connection(HOST, port.port))
            await until(lambda: connections.displaced + len(connections) == len(opened))
        async with asyncio.timeout(DEADLINE_SECONDS):
            for reader, _ in opened[:4]:  # the longest first
                with contextlib.suppress(ConnectionError):
                    assert not await reader.read()
        await until(lambda: len(port.refusals) == 4)
        assert {refusal for refusal, _ in port.refusals} == {TlsRefusal.DISPLACED}
        assert len(connections) == 3
        assert await port.status(authority.trusting()) == 200, "a client makes room for itself"
        for _, writer in opened:
            writer.close()
        await until(lambda: not len(connections))


def copied(files: Certificates, folder: Path) -> Certificates:
    """Copy the files of a region, to change them."""
    for path, name in ((files.authority, "ca"), (files.certificate, "crt"), (files.key, "key")):
        shutil.copy(path, folder / f"{name}.new")
        (folder / f"{name}.new").replace(folder / name)
    return Certificates(str(folder / "ca"), str(folder / "crt"), str(folder / "key"))


async def test_changed_files_are_used_by_new_connections_and_open_ones_stay(tmp_path: Path) -> None:
    files = copied(authority.server_files(), tmp_path)
    async with listening(files) as port:
        context = tls.client_context(authority.trusting())
        reader, writer = await asyncio.open_connection(HOST, port.port, ssl=context)
        copied(authority.server_files("other"), tmp_path)
        assert await port.status(authority.trusting("other")) == 200
        with pytest.raises(NoHttpResponse):
            await port.status(authority.trusting())
        writer.write(b"GET /open HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        assert b'{"hello": "/open"}' in await asyncio.wait_for(reader.read(), DEADLINE_SECONDS)
        writer.close()


async def test_a_removed_authority_is_no_longer_trusted(tmp_path: Path) -> None:
    files = copied(authority.server_files(), tmp_path)
    async with listening(files, "required") as port:
        assert await port.status(authority.client_files()) == 200
        shutil.copy(authority.trusting("other").authority, tmp_path / "ca.new")
        (tmp_path / "ca.new").replace(tmp_path / "ca")
        with pytest.raises(NoHttpResponse):
            await port.status(authority.client_files())
        assert await port.status(authority.client_files("other")) == 200


@pytest.mark.parametrize("damage", ["half", "key", "none"])
async def test_files_that_cannot_be_used_change_nothing(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = copied(authority.server_files(), tmp_path)
    async with listening(files) as port:
        match damage:
            case "half":
                (tmp_path / "crt").write_bytes((tmp_path / "crt").read_bytes()[:500])
            case "key":
                shutil.copy(authority.server_files("other").key, tmp_path / "key")
            case "none":
                (tmp_path / "key").unlink()
        for _ in range(2):
            assert await port.status(authority.trusting()) == 200
        reported = [record for record in caplog.records if "stay in use" in record.message]
        assert len(reported) == 1


@pytest.mark.parametrize("missing", ["authority", "certificate", "key"])
async def test_a_port_without_its_files_does_not_open(tmp_path: Path, missing: str) -> None:
    files = authority.server_files()
    fields = {name: getattr(files, name) for name in ("authority", "certificate", "key")}
    damaged = Certificates(**{**fields, missing: str(tmp_path / "none")})
    with pytest.raises(OSError, match=str(tmp_path / "none")):
        await TlsNetwork(damaged).listen(asyncio.Protocol, HOST, 0)
