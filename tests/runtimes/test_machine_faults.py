"""Faults of the machines of regions that run as processes: clock, disk, power."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from emulator.client import EARLIEST, Client
from emulator.config.loading import load_topology
from emulator.errors import Refused
from emulator.runtimes.contract import RegionStatus
from emulator.runtimes.process import BROKER, ProcessRuntime
from tests.cli.test_cli import ROOT, geoemu

from .fixtures import admin_request, end_all

pytestmark = [pytest.mark.real, pytest.mark.within(120)]
TOPIC = "public/default/orders"
TOPOLOGY = str(ROOT / "topology.yaml")
STORAGE, CLOCK = "/geoemu/v1/storage", "/geoemu/v1/clock"


@asynccontextmanager
async def _run(folder: Path, program: Sequence[str] = BROKER) -> AsyncIterator[ProcessRuntime]:
    (folder / "topology.yaml").write_text(
        "name: one\nclusters: [a]\ntenants: [public]\nnamespaces: {public/default: {regions: all}}\n"
    )
    (folder / "clusters").mkdir()
    (folder / "clusters" / "a.yaml").write_text("regions: {us: {}}\n")
    topology = load_topology(folder / "topology.yaml")
    runtime = ProcessRuntime.create(topology, folder / "run", program=program)
    try:
        await runtime.up()
        yield runtime
    finally:
        await runtime.down()
        end_all(folder / "run")


async def _region(runtime: ProcessRuntime) -> RegionStatus:
    return (await runtime.status()).regions[0]


async def _read(runtime: ProcessRuntime, count: int) -> list[bytes]:
    """Read up to `count` messages of the topic from its beginning."""
    async with Client([(await _region(runtime)).service_url]) as client:
        reader = await client.reader(TOPIC, EARLIEST)
        found = []
        while len(found) < count:
            try:
                found.append((await asyncio.wait_for(reader.receive(), 10)).payload)
            except TimeoutError:
                break
        return found


@pytest.mark.parametrize("state", ["full", "failing", "slow"])
async def test_a_disk_fault_stops_publishes_and_ends_without_a_restart(tmp_path: Path, state: str) -> None:
    """A restart keeps the fault. Reads go on, except on a disk that does not sync."""
    async with _run(tmp_path) as runtime, Client([(await _region(runtime)).service_url]) as client:
        producer = await client.producer(TOPIC)
        await producer.send(b"before")
        await runtime.disk("us", state, 60_000 if state == "slow" else None)
        waiting = asyncio.ensure_future(producer.send(b"meanwhile"))
        if state != "failing":  # its log is not opened again before the disk syncs
            assert await _read(runtime, 1) == [b"before"]
        assert not waiting.done()
        assert str((await _region(runtime)).disk) == ("slow, 60000 ms" if state == "slow" else state)

        await runtime.kill("us")
        await runtime.start("us")
        assert (await admin_request(await _region(runtime), "GET", STORAGE))["state"] == state
        pid = (await _region(runtime)).pid
        if state != "failing":
            assert await _read(runtime, 1) == [b"before"]
        assert not waiting.done()
        await runtime.disk("us", "healthy")
        await asyncio.wait_for(waiting, 30)
        assert (await _region(runtime)).pid == pid
        assert await _read(runtime, 2) == [b"before", b"meanwhile"]


async def test_a_power_loss_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    async with _run(tmp_path) as runtime:
        await _publish(runtime, 50)
        await runtime.power_loss("us")
        assert (await _region(runtime)).state == "killed"
        await runtime.power_loss("us")  # it has no power left to lose
        await runtime.start("us")
        assert await _read(runtime, 50) == [b"%d" % number for number in range(50)]


async def test_a_power_loss_loses_what_a_faulty_store_acknowledged_before_the_sync(tmp_path: Path) -> None:
    """The mutant: a kill does not show the error, because the page cache of the machine survives it."""
    program = (sys.executable, str(Path(__file__).with_name("unsynced_broker.py")))
    async with _run(tmp_path, program) as runtime:
        await _publish(runtime, 50)
        await runtime.kill("us")
        await runtime.start("us")
        assert len(await _read(runtime, 50)) == 50
        await _publish(runtime, 50)
        await runtime.power_loss("us")
        await runtime.start("us")
        assert len(await _read(runtime, 100)) < 100


async def _publish(runtime: ProcessRuntime, count: int) -> None:
    async with Client([(await _region(runtime)).service_url]) as client:
        producer = await client.producer(TOPIC)
        for number in range(count):
            await producer.send(b"%d" % number)


async def test_a_clock_keeps_its_offset_and_its_drift_over_a_restart(tmp_path: Path) -> None:
    async with _run(tmp_path) as runtime:
        await runtime.skew("us", 5_000, 100_000)
        first = await admin_request(await _region(runtime), "GET", CLOCK)
        assert 5_000 <= first["ahead_ms"] < 7_000
        await runtime.kill("us")
        await runtime.start("us")
        second = await admin_request(await _region(runtime), "GET", CLOCK)
        assert second["drift_ppm"] == 100_000
        assert first["ahead_ms"] < second["ahead_ms"] < 10_000


async def test_a_paused_region_gets_no_fault_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    async with _run(tmp_path) as runtime:
        await runtime.pause("us")
        for change in (runtime.disk("us", "full"), runtime.power_loss("us"), runtime.skew("us", 1)):
            with pytest.raises(Refused, match="us is paused"):
                await change
        await runtime.resume("us")
        for change in (
            runtime.disk("mars", "full"),
            runtime.power_loss("mars"),
            runtime.disk("us", "odd"),
            runtime.disk("us", "slow", -1),
            runtime.skew("us", 0, 1e9),
        ):
            with pytest.raises(Refused):
                await change
        assert (await admin_request(await _region(runtime), "GET", STORAGE))["state"] == "healthy"


SCENARIO = Path(__file__).with_name("machine-faults.yaml")
UNSYNCED = "from emulator.storage.sqlite import file\nfile.SYNCHRONOUS = 'OFF'\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for run in (tmp_path / ".geoemu").glob("runs/*"):
        end_all(run)


def test_a_scenario_with_every_machine_fault_loses_nothing(folder: Path) -> None:
    done = geoemu("run", str(SCENARIO), "-f", TOPOLOGY, "--engine", "embedded", folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_verdict_reports_what_a_faulty_store_loses_with_the_power(folder: Path) -> None:
    """The mutant of above, in the regions of a whole run."""
    (folder / "sitecustomize.py").write_text(UNSYNCED)
    path = {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    run = ("run", str(SCENARIO), "-f", TOPOLOGY, "--engine", "embedded")
    done = geoemu(*run, folder=folder, environment=path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "INV-1" in done.stdout, done.stdout
