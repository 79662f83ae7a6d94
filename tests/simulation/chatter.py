"""A world with many kinds of events, for comparing runs: `python -m tests.simulation.chatter SEED` prints its trace."""

from __future__ import annotations

import asyncio
import sys

from emulator.config.link_shape import LinkShape
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.host import Host
from emulator.simulation.link import NetworkSettings
from emulator.simulation.simulation import Simulation
from emulator.simulation.virtual_time import SimulationError

NAMES = ("us", "eu", "asia")
PORT = 6650


async def region(simulation: Simulation, host: Host) -> None:
    """Stores what it receives, then responds; sends its own numbers to all others, for ever."""
    store = await simulation.disk(host.name).open_store()
    log = await store.open_log("numbers")
    assert log is not None

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async for line in reader:
                position = await log.append([line])
                await asyncio.get_running_loop().run_in_executor(None, sum, range(10))
                writer.write(b"%d\n" % position)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "", PORT)
    async with server, asyncio.TaskGroup() as group:
        for name in NAMES:
            if name != host.name:
                group.create_task(talk(host, name))


async def talk(host: Host, to: str) -> None:
    number = 0
    while True:
        await asyncio.sleep(host.random.uniform(0, 0.2))
        try:
            async with asyncio.timeout(3):
                reader, writer = await asyncio.open_connection(to, PORT)
                while host.random.random() < 0.95:
                    number += 1
                    writer.write(b"%s %d %d\n" % (host.name.encode(), number, host.wall_clock_ms()))
                    await reader.readline()
                writer.close()
        except (OSError, TimeoutError):
            await asyncio.sleep(0.5)


async def scenario(simulation: Simulation) -> None:
    chance = simulation.random("story")
    for name in NAMES:
        host = simulation.host(name)
        host.start(region(simulation, host))
    for _ in range(10):
        await asyncio.sleep(chance.uniform(0, 2))
        one, other = chance.sample(NAMES, 2)
        host = simulation.host(one)
        match chance.randrange(6):
            case 0:
                host.kill()
            case 1:
                host.power_off()
            case 2:
                host.pause()
            case 3:
                simulation.network.cut(one, other, one_way=True)
            case 4:
                simulation.network.hold(one, other)
            case _:
                simulation.network.reset(one, other)
        await asyncio.sleep(chance.uniform(0, 3))
        simulation.network.heal()
        host.resume()
        if host.state.name == "DOWN":
            host.start(region(simulation, host))


def trace_of(seed: int, *, detail: bool = True) -> str:
    """Return the hash of one run."""
    network = NetworkSettings(
        between_locations=LinkShape(latency_ms=30, jitter_ms=20), odd_cut_probability=0.2
    )
    faults = DiskFaults(stall_probability=0.1, id_jump_probability=0.1)
    with Simulation(seed, network=network, detail=detail) as simulation:
        for name in NAMES:
            simulation.disk(name, faults)
        try:
            simulation.run(scenario(simulation))
        except SimulationError as error:
            return f"{simulation.trace.hexdigest()} {type(error).__name__}"
        return simulation.trace.hexdigest()


if __name__ == "__main__":
    print(trace_of(int(sys.argv[1])))
