"""A test with the parameter `client` runs with that client: with our own under virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from tests.clients.telling import run_with


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    if "client" in request.fixturenames:
        return partial(run_with, request.getfixturevalue("client"))
    return asyncio.run
