"""Fixtures of the client's tests: a scripted broker, a region on real sockets, and a client in a simulated world."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from emulator.client import Client
from emulator.simulation.world import CLIENT_SETTINGS, World
from tests.client.scripted import Script
from tests.client.socket_region import SocketRegion


@pytest.fixture
def script() -> Script:
    """A broker whose responses the test defines, and a client of it; both are open while the test runs."""
    return Script()


@pytest.fixture
def us() -> SocketRegion:
    """A region on real sockets, and a client of it; both are open while the test runs."""
    return SocketRegion()


Runner = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture
def runner(request: pytest.FixtureRequest, runner: Runner) -> Runner:
    used = [request.getfixturevalue(name) for name in ("script", "us") if name in request.fixturenames]
    if not used:
        return runner

    async def play(test: Coroutine[Any, Any, None]) -> None:
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(test.close)
            for one in used:
                await stack.enter_async_context(one.opened())
            await test

    return lambda test: runner(play(test))


@pytest.fixture
def client(request: pytest.FixtureRequest, world: World) -> Client:
    """A client in the simulated world, with the SETTINGS of the test's module."""
    return world.client("us", settings=getattr(request.module, "SETTINGS", CLIENT_SETTINGS))
