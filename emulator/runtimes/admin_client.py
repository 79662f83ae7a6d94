"""The few HTTP calls that a runtime makes to its regions: `emulator.admin_calls` on real sockets."""

from __future__ import annotations

from typing import Any

from emulator import admin_calls
from emulator.admin_calls import ANSWER_SECONDS, Answer, NoAnswer
from emulator.network import SocketNetwork

__all__ = ["ANSWER_SECONDS", "Answer", "Exchange", "NoAnswer", "call"]

_NETWORK = SocketNetwork()


class Exchange(admin_calls.Exchange):
    """One request on a socket of its own."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(_NETWORK, host, port)


async def call(
    host: str, port: int, method: str, target: str, body: Any = None, *, seconds: float = ANSWER_SECONDS
) -> Answer:
    """One request and its answer. NoAnswer when there is none."""
    return await admin_calls.call(_NETWORK, host, port, method, target, body, seconds=seconds)
