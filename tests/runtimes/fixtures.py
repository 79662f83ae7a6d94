"""Helpers of the runtime tests: a small topology, and runs of it whose processes end with the test."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emulator.config.loading import load_topology
from emulator.config.topology import Topology
from emulator.run.directory import RunDirectory
from emulator.run.processes import state_of
from emulator.runtimes.admin_client import call_url
from emulator.runtimes.contract import RegionStatus, Runtime
from emulator.runtimes.faults import link_fault
from emulator.runtimes.process import ProcessRuntime

DEADLINE_SECONDS = 20.0
REGIONS = ("us-east", "us-west", "eu-central")


def write_topology(folder: Path, *, more: str = "", **fixed_ports: int) -> Path:
    """Write a topology of three regions in two clusters with fast links, and return its path. Options such as
    `us_east_service_port` fix single ports; `more` is appended to the file."""

    def region(name: str) -> str:
        keys = [
            f"{key}: {fixed_ports.get(f'{name}_{key}'.replace('-', '_'), 0)}"
            for key in ("service_port", "admin_port")
        ]
        return f"  {name}: {{{', '.join(keys)}}}\n"

    (folder / "clusters").mkdir(parents=True, exist_ok=True)
    (folder / "clusters" / "americas.yaml").write_text("regions:\n" + region("us-east") + region("us-west"))
    (folder / "clusters" / "europe.yaml").write_text("regions:\n" + region("eu-central"))
    path = folder / "topology.yaml"
    path.write_text(
        "name: small\nclusters: [americas, europe]\nlinks: {defaults: {latency_ms: 1}}\n"
        "tenants: [public]\nnamespaces: {public/default: {regions: all}}\n" + more
    )
    return path


def small_topology(folder: Path, *, more: str = "") -> Topology:
    return load_topology(write_topology(folder, more=more))


def with_regions(topology: Topology, **changes: object) -> Topology:
    """Return the topology with these fields replaced in all regions."""
    return topology.with_regions(lambda region: dataclasses.replace(region, **changes))  # type: ignore[arg-type]


async def admin_request(region: RegionStatus, method: str, path: str, body: Any = None) -> Any:
    """Send a request to a region's admin port. Return the decoded body of a 200 response, otherwise the status."""
    answer = await call_url(region.admin_url, method, path, body)
    return answer.json() if answer.status == 200 else answer.status


def fake_program(*behaviours: str) -> tuple[str, ...]:
    return (sys.executable, str(Path(__file__).with_name("fake_broker.py")), *behaviours)


def fake_run(folder: Path, *behaviours: str, detached: bool = False) -> ProcessRuntime:
    """Create a run with fake regions without starting it."""
    return ProcessRuntime.create(
        small_topology(folder), folder / "run", detached=detached, program=fake_program(*behaviours)
    )


def wait_until(condition: Callable[[], bool], what: str, *, seconds: float = DEADLINE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.01)


def living(run_dir: Path) -> list[int]:
    """Return the process ids of a run that still exist."""
    regions = RunDirectory(run_dir).read().regions.values()
    return [r.process.pid for r in regions if r.process and state_of(r.process) != "gone"]


def end_all(run_dir: Path) -> None:
    """Kill all processes of a run, except the test's own one, which a record may name."""
    if (run_dir / "run.json").exists():
        for pid in set(living(run_dir)) - {os.getpid()}:
            os.kill(pid, signal.SIGKILL)


async def begin(runtime: Runtime, verb: str, source: str, target: str, **values: Any) -> None:
    """Begin a fault of the links between two ends, as commands do."""
    await link_fault(verb, runtime.topology.region_names, source, target, **values).begin(runtime)


async def heal(runtime: Runtime, source: str, target: str) -> None:
    """Undo all faults of the links between two ends."""
    await begin(runtime, "heal", source, target)
