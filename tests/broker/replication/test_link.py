"""The link from one region to another: what it remembers of requests without a response."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from emulator.broker.replication.link import PeerLink
from emulator.errors import ProtocolError, ServerError
from emulator.model.reasons import NO_REASON, Cause
from emulator.model.values import Schema, SchemaType
from emulator.wire import commands
from tests.broker.regions import regions, until


class _Replicator:
    """A replicator that requests its producer and ignores everything else."""

    producer_id = 0

    def link_up(self) -> None: ...

    def link_down(self) -> None: ...

    def producer_ready(self) -> None: ...

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
