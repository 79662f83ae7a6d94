"""Faults of regions by the runtime contract, in virtual time."""

from __future__ import annotations

from pathlib import Path

from emulator.runtimes.faults import RegionFault
from emulator.simulation.scenarios.runtime import SimulatedRuntime
from emulator.simulation.world import World, simple_topology

STATES = {"kill": "killed", "stop": "stopped", "pause": "paused", "lose": "lost", "restart": "running"}


def test_a_region_stops_pauses_restarts_and_is_lost_in_virtual_time() -> None:
    with World(simple_topology(["us", "eu"])) as world:

        async def main() -> None:
            runtime = SimulatedRuntime(world, Path("run"))
            await runtime.up()
            for verb, state in STATES.items():
                fault = RegionFault(verb, "us")
                await fault.begin(runtime)
                assert {one.name: one.state for one in (await runtime.status()).regions} == {
                    "us": state,
                    "eu": "running",
                }
                await fault.end(runtime)
                assert {one.state for one in (await runtime.status()).regions} == {"running"}

        world.simulation.run(main())
