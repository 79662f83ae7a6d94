"""The pytest plugin: fixtures with running topologies, and verdicts in the reports of failed tests (docs/PYTEST.md).

pytest loads it wherever geoemu is installed, so that it imports the rest of geoemu at the first use of a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from geoemu.run import Geo
    from geoemu.simulated import SimulatedRun

DEFAULT_TOPOLOGY = "topology.yaml"
DEFAULT_SEED = 1
HISTORY_LINES = 15
"""Number of events of the history in the report of a failed test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("geoemu", "geoemu: geo-replicated Pulsar")
    group.addoption(
        "--geo-topology",
        metavar="FILE",
        help=f"topology of the fixtures (default: the ini option geo_topology, or {DEFAULT_TOPOLOGY} beside the ini "
        "file); the marker geo(topology=...) of a test has priority",
    )
    group.addoption(
        "--geo-seed",
        metavar="N",
        type=int,
        default=DEFAULT_SEED,
        help="seed of geo_simulated (default: %(default)s)",
    )
    group.addoption(
        "--geo-keep",
        action="store_true",
        help="keep the regions running after the tests, and print the commands to use and end them",
    )
    parser.addini("geo_topology", "topology of the fixtures of geoemu, relative to this file", default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "geo(topology=FILE): topology of the test's geoemu fixtures, relative to the root directory",
    )
    keeps = config.getoption("--geo-keep")
    if keeps and config.getoption("numprocesses", None):
        raise pytest.UsageError("--geo-keep does not work with -n: each worker has regions of its own")
    config.stash[_RUNS] = Runs(keep=keeps)


def pytest_unconfigure(config: pytest.Config) -> None:
    if runs := config.stash.get(_RUNS, None):
        runs.end()


class Runs:
    """The runs of one test session, one for each topology."""

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self._runs: dict[Path, Geo] = {}

    def of(self, topology: Path, run_dir: Callable[[], Path]) -> Geo:
        """Return the run of a topology; start it if there is none. `run_dir`: returns the directory of a new run."""
        if topology not in self._runs:
            from geoemu.run import up

            self._runs[topology] = up(topology, run_dir=run_dir(), detached=self._keep)
        return self._runs[topology]

    @property
    def kept(self) -> list[Path]:
        """Run directories of regions that keep running after the session."""
        return [geo.run_dir for geo in self._runs.values()] if self._keep else []

    def end(self) -> None:
        from emulator.errors import RuntimeFailure

        for geo in [] if self._keep else self._runs.values():
            with suppress(RuntimeFailure):  # a region that had to be killed: the tests have their results
                geo.down()
        self._runs.clear()


_RUNS = pytest.StashKey[Runs]()
_USED = pytest.StashKey["Geo"]()
"""The run that a test uses."""


def _topology_of(request: pytest.FixtureRequest) -> Path:
    """Return the topology of a test. Raises pytest.UsageError if there is no such file."""
    config = request.config
    marker = request.node.get_closest_marker("geo")
    named = marker.kwargs.get("topology") if marker else None
    found = named or config.getoption("--geo-topology") or config.getini("geo_topology") or DEFAULT_TOPOLOGY
    base = config.invocation_params.dir if found == config.getoption("--geo-topology") else config.rootpath
    path = base / found
    if not path.is_file():
        raise pytest.UsageError(
            f"geoemu: no topology {path}: name one with --geo-topology, the ini option geo_topology, or "
            "@pytest.mark.geo(topology=...)"
        )
    return path.resolve()


@pytest.fixture
def geo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Geo]:
    """A running topology, shared by all tests of the session that use it. After each test, links are healed, and
    regions that are down or paused run again."""
    runs = request.config.stash[_RUNS]
    run = runs.of(_topology_of(request), lambda: tmp_path_factory.mktemp("geo") / "run")
    request.node.stash[_USED] = run
    yield run
    run.repair()


@pytest.fixture
def geo_namespace(geo: Geo) -> str:
    """A new namespace that is replicated between all regions, as `tenant/name`."""
    return geo.create_namespace()


@pytest.fixture
def geo_simulated(request: pytest.FixtureRequest) -> Callable[..., SimulatedRun]:
    """A function that runs one seed of a scenario in virtual time: `geo_simulated("drill.yaml", seed=None)`. None: the
    seed of --geo-seed."""

    def run(scenario: str | Path, *, seed: int | None = None) -> SimulatedRun:
        from geoemu.simulated import simulate

        number = request.config.getoption("--geo-seed") if seed is None else seed
        return simulate(scenario, topology=_topology_of(request), seed=number)

    return run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    run = item.stash.get(_USED, None)
    if report.when == "call" and report.failed and run is not None:
        from geoemu.failure_report import sections

        report.sections += sections(run, HISTORY_LINES)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if kept := config.stash[_RUNS].kept:
        terminalreporter.section("geoemu")
        for run_dir in kept:
            terminalreporter.line(
                f"kept running: geoemu status --run-dir {run_dir}; end: geoemu down --run-dir {run_dir}"
            )
