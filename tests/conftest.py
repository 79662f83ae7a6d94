"""The runner of asynchronous tests, and fixtures that several packages share.

An `async def` test runs on the event loop of its fixture `runner`, by default `asyncio.run`. A test with the fixture
`world` runs under virtual time in that world, and one with `simulation` on the driver of the simulation. Packages and
modules override `runner` if their tests need another loop.

    @pytest.mark.world("us", "eu", settings=FAST)  # arguments of `emulator.simulation.world.world`, or a topology
    @pytest.mark.within(60)                        # seconds: virtual ones in a world, real ones elsewhere
    async def test_something(world: World) -> None:
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import re
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from emulator.compiled import problem_of_build
from emulator.simulation.simulation import Simulation
from emulator.simulation.world import World
from emulator.simulation.world import world as simulated_world

from .browser import browser as browser

if TYPE_CHECKING:
    from emulator.runtimes.kafka_server import KafkaServer

# A deadline of Hypothesis would fail correct code on a busy machine.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


Runner = Callable[[Coroutine[Any, Any, None]], None]


class OneTopologyOfContainers(LoadFileScheduling):
    """Distribute tests by file, but all files whose tests start containers to one worker: a second topology with its
    Kafkas would take the processors from the first one, whose scenarios have deadlines."""

    _CONTAINERS = re.compile(
        r"tests/(drills/test_(containers|lost_region|scenarios_on_compose)|runtimes/test_compose\w*)\.py$"
    )

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "containers" if self._CONTAINERS.search(file) else file


def pytest_configure() -> None:
    """Refuse to test compiled modules of other sources."""
    if (problem := problem_of_build()) is not None:
        raise pytest.UsageError(problem)


@pytest.hookimpl(optionalhook=True)  # or `-p no:xdist` would fail
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return OneTopologyOfContainers(config, log) if config.option.dist == "loadfile" else None


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if inspect.iscoroutinefunction(item.obj):
            item.fixturenames.append("runner")
        if {"spark", "spark_cluster"} & set(item.fixturenames):
            item.add_marker(pytest.mark.real)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Collect less garbage, as a region does: with Python's thresholds it takes a tenth of the processor time of tests
    in virtual time, mostly for modules and collected tests, which live until the end."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an asynchronous test by its `runner`."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    pyfuncitem.funcargs["runner"](pyfuncitem.obj(**arguments))
    return True


def marked(request: pytest.FixtureRequest, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the (positional, keyword) arguments of a test's marker; both empty without that marker."""
    marker = request.node.get_closest_marker(name)
    return (marker.args, dict(marker.kwargs)) if marker else ((), {})


def seed_of(request: pytest.FixtureRequest, default: int) -> int:
    """Return the seed with which the test is parametrised, or the default."""
    callspec = getattr(request.node, "callspec", None)
    return default if callspec is None else callspec.params.get("seed", default)


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> Runner:
    (seconds,) = marked(request, "within")[0] or (None,)
    limit = {} if seconds is None else {"within_seconds": seconds}
    if "world" in request.fixturenames:
        world: World = request.getfixturevalue("world")
        return lambda test: world.play(test, **limit)
    if "simulation" in request.fixturenames:
        simulation: Simulation = request.getfixturevalue("simulation")
        return lambda test: simulation.run(test, **limit)
    if seconds is None:
        return asyncio.run
    return lambda test: asyncio.run(asyncio.wait_for(test, seconds))


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Regions under virtual time with the arguments of the marker `world`; by default one region, `us`."""
    names, arguments = marked(request, "world")
    arguments = {"seed": seed_of(request, 0), **arguments}
    if "topology" in arguments:
        with World(**arguments) as made:
            yield made
    else:
        with simulated_world(*(names or ("us",)), **arguments) as made:
            yield made


@pytest.fixture
def simulation(request: pytest.FixtureRequest) -> Iterator[Simulation]:
    """Hosts and networks under virtual time, without regions; the marker `simulation` passes other arguments."""
    seed, arguments = marked(request, "simulation")
    with Simulation(*(seed or (seed_of(request, 1),)), **arguments) as made:
        yield made


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A Kafka server with geoemu's settings, shared by all tests that do not reconfigure or stop it."""
    from tests.storage.kafka_place import running_kafka

    with running_kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server
