"""The link from one region to another: what it remembers of requests without a response."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any

import pytest

from emulator.broker.replication.link import ENDED_BY_PEER, PeerLink
from emulator.config.security import SecurityConfig, TlsConfig
from emulator.errors import ProtocolError, ServerError
from emulator.model.frame_faults import FrameAction, FrameFault
from emulator.model.reasons import NO_REASON, Cause
from emulator.model.values import Schema, SchemaType
from emulator.net.tls import server_context
from emulator.wire import commands
from tests.broker.regions import regions, until
from tests.net import authority


class _Replicator:
    """A replicator that requests its producer and ignores everything else."""

    producer_id = 0

    def link_up(self) -> None: ...

    def link_down(self) -> None: ...

    def producer_ready(self, *, accepts_runs: bool) -> None: ...

    def refused(self, message: str) -> None: ...

    def entry_refused(self, code: ServerError, message: str) -> None: ...

    def receipts(self, positions: Sequence[tuple[int, int]]) -> None: ...

    def pump(self) -> None: ...


async def test_a_peer_that_never_answers_has_one_pending_request_per_replicator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A peer that answers PINGs keeps its link, and each of its replicators repeats its request every 30 s."""
    async with regions("us", "eu") as world:
        link, replicators = world.running["us"].peers["eu"], [_Replicator(), _Replicator()]
        before = link.requests.pending
        monkeypatch.setattr(PeerLink, "write", lambda self, data: None)
        for replicator in replicators:
            link.add(replicator)
        for _ in range(100):
            for replicator in replicators:
                link.open_producer(replicator, "persistent://public/default/orders")
        assert link.requests.pending == before + len(replicators)
        for replicator in replicators:
            link.remove(replicator)
        assert link.requests.pending == before


@pytest.mark.parametrize("request_name", ["partitions", "schema version"])
async def test_an_error_response_completes_any_pending_request(
    monkeypatch: pytest.MonkeyPatch, request_name: str
) -> None:
    topic = "persistent://public/default/orders"
    async with regions("us", "eu") as world:
        link = world.running["us"].peers["eu"]
        monkeypatch.setattr(PeerLink, "write", lambda self, data: None)
        if request_name == "partitions":
            answer: asyncio.Future[Any] = link.request_partitions(topic)
        else:
            answer = link.request_schema_version(topic, Schema(SchemaType.STRING))
        (request_id,) = link.requests._pending
        refusal = commands.Error(request_id, ServerError.AuthorizationError, "not authorized")
        link.data_received(refusal.encode())
        with pytest.raises(ProtocolError, match="not authorized") as problem:
            await asyncio.wait_for(answer, 1)
        assert problem.value.code is ServerError.AuthorizationError
        assert link.connected


async def test_a_region_that_returns_during_a_connection_attempt_gets_one_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two would share one protocol object, and the bytes of both would be mixed."""
    async with regions("us", "eu") as world:
        link = world.running["us"].peers["eu"]
        await until(lambda: link.connected)
        network = link.region.environment.peer_network
        connect, pending, attempts = network.connect, asyncio.Event(), 0

        async def wait_before_connecting(*arguments: Any) -> Any:
            nonlocal attempts
            attempts += 1
            await pending.wait()
            return await connect(*arguments)

        monkeypatch.setattr(network, "connect", wait_before_connecting)
        link.set_removed(Cause.LINK_REMOVED(region="eu", time="now"))
        await until(lambda: not link.connected)
        for _ in range(3):
            link.set_removed(NO_REASON)
            await until(lambda: attempts > 0)
            link.set_removed(Cause.LINK_REMOVED(region="eu", time="now"))
        link.set_removed(NO_REASON)
        pending.set()
        await until(lambda: link.connected)
        assert attempts == 1


async def test_a_link_states_whether_each_message_needs_a_frame_of_its_own() -> None:
    """As it is now: a replicator then sends as many bytes, and frames, as Pulsar does."""
    async with regions("us", "eu") as world:
        link = world.running["us"].peers["eu"]
        assert not link.needs_single_frames
        await until(lambda: link.connected)
        assert not link.needs_single_frames
        for limit in (1_000_000, None):
            world.links["us", "eu"].set(outbound=True, bandwidth_bytes_per_second=limit)
            assert link.needs_single_frames == (limit is not None)
        for faults in ((FrameFault(FrameAction.DROP, "send"),), ()):
            world.links["us", "eu"].set(outbound=True, frame_faults=faults)
            assert link.needs_single_frames == bool(faults)
        world.links["us", "eu"].set(outbound=False, bandwidth_bytes_per_second=1_000_000)
        assert not link.needs_single_frames, "of what the other region sends"


@pytest.mark.real
async def test_only_a_peer_that_ends_connection_after_connection_refuses_the_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A peer that is killed after the TLS handshake and before CONNECTED ends one connection in the same way."""
    files = authority.server_files()
    tls = TlsConfig(files.certificate, files.key, files.authority, "optional")
    security = dict.fromkeys(("us", "eu"), SecurityConfig(tls=tls))
    async with regions("us", "eu", security=security) as world:
        link = world.running["us"].peers["eu"]
        await until(lambda: link.connected)
        monkeypatch.setattr(link._reconnection, "schedule", lambda: None)  # only this test connects again
        await world.stop("eu")
        await until(lambda: not link.connected)
        ended = await _end_each_connection(world.ports_tls["eu"], server_context(files, "optional"))
        for count, reason in enumerate(
            ("connection to eu lost: ", f"no TLS connection to eu: {ENDED_BY_PEER}"), 1
        ):
            link.start()
            await until(lambda count=count: ended.count == count and link._transport is None)
            assert str(link.why_not).startswith(reason)
        ended.server.close()
        link.start()
        await until(lambda: "cannot connect to eu" in str(link.why_not))
        ended = await _end_each_connection(world.ports_tls["eu"], server_context(files, "optional"))
        link.start()
        await until(lambda: ended.count == 1 and link._transport is None)
        assert str(link.why_not).startswith("connection to eu lost: "), (
            "the first one since it was unreachable"
        )
        ended.server.close()


class _Ended:
    """A server that ends each connection at the first bytes, and their number."""

    server: asyncio.Server
    count = 0


async def _end_each_connection(port: int, context: ssl.SSLContext) -> _Ended:
    ended = _Ended()

    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()
        ended.count += 1

    ended.server = await asyncio.start_server(end, "127.0.0.1", port, ssl=context)
    return ended
