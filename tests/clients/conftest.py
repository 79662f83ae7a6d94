"""Run a test with the parameter `client` with that client: geoemu's own client under virtual time, others in real
time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from tests.clients.harness import Scene, run_with


@pytest.fixture
def scene(request: pytest.FixtureRequest, client: str) -> Scene:
    """Regions and programs with the arguments of the marker `scene`; by default one region, `us`, and one program."""
    marker = request.node.get_closest_marker("scene")
    names, options = (marker.args, marker.kwargs) if marker else ((), {})
    return Scene(client, *names, **options)


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    if "client" not in request.fixturenames:
        return asyncio.run
    client = request.getfixturevalue("client")
    if "scene" not in request.fixturenames:
        return partial(run_with, client)
    scene: Scene = request.getfixturevalue("scene")
    return lambda test: run_with(client, scene.play(test))
