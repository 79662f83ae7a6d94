"""The few HTTP calls that a runtime makes to its regions: `emulator.net.http` on real sockets."""

from __future__ import annotations

from typing import Any

from emulator.net import http as admin_calls
from emulator.net.http import RESPONSE_SECONDS, HttpResponse, NoHttpResponse
from emulator.net.network import SocketNetwork

__all__ = ["RESPONSE_SECONDS", "AdminExchange", "HttpResponse", "NoHttpResponse", "call"]

_NETWORK = SocketNetwork()


class AdminExchange(admin_calls.HttpExchange):
    """One request on a socket of its own."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(_NETWORK, host, port)


async def call(
    host: str, port: int, method: str, target: str, body: Any = None, *, seconds: float = RESPONSE_SECONDS
) -> HttpResponse:
    """One request and its answer. NoHttpResponse when there is none."""
    return await admin_calls.call(_NETWORK, host, port, method, target, body, seconds=seconds)
