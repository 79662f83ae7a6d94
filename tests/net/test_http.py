"""Requests to admin ports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from emulator.net.http import NoHttpResponse, call
from emulator.net.network import Listener
from emulator.simulation.simulation import Simulation

HANDSHAKE_SECONDS = 5.0


class _SlowNetwork:
    """Connections are refused after a handshake that takes HANDSHAKE_SECONDS."""

    async def listen(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> Listener:
        raise OSError("only connections")

    async def connect(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        await asyncio.sleep(HANDSHAKE_SECONDS)
        raise ConnectionRefusedError("refused after the handshake")


@pytest.mark.parametrize(
    ("seconds", "problem"), [(HANDSHAKE_SECONDS - 1, "no response"), (HANDSHAKE_SECONDS + 1, "refused after")]
)
async def test_the_time_limit_of_a_request_also_applies_to_its_connection(
    simulation: Simulation, seconds: float, problem: str
) -> None:
    with pytest.raises(NoHttpResponse, match=problem):
        await call(_SlowNetwork(), "us-east", 8080, "GET", "/", seconds=seconds)
