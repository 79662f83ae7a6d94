"""Callbacks per second of the simulated loop, beside asyncio's own.

    python benchmarks/simulation_loop.py [--rounds 5] [--callbacks 200000]

Rounds of both are interleaved and the best of each counts: machines are noisy, only the ratio means anything. For
the network the unit is one request and its answer between two hosts; asyncio's goes through the kernel.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable

from emulator.simulation.simulation import Simulation

Work = Callable[[int], Awaitable[None]]


async def soon(count: int) -> None:
    """call_soon, one after the other."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    left = count

    def step() -> None:
        nonlocal left
        left -= 1
        if left:
            loop.call_soon(step)
        else:
            done.set_result(None)

    loop.call_soon(step)
    await done


async def soon_in_batches(count: int) -> None:
    """call_soon, a hundred ready at a time."""
    loop = asyncio.get_running_loop()

    def nothing() -> None:
        pass

    for _ in range(count // 100):
        for _ in range(99):
            loop.call_soon(nothing)
        await asyncio.sleep(0)


async def deadlines(count: int) -> None:
    """Timers that are set and cancelled, as every wait with a deadline does."""
    loop = asyncio.get_running_loop()

    def never() -> None:
        raise AssertionError

    for index in range(count // 10):
        timers = [loop.call_later(30 + index, never) for _ in range(10)]
        for timer in timers:
            timer.cancel()
        await asyncio.sleep(0)


async def tasks(count: int) -> None:
    """Two tasks that hand each other futures."""
    queue: asyncio.Queue[int] = asyncio.Queue(1)

    async def produce() -> None:
        for number in range(count // 4):
            await queue.put(number)

    async def consume() -> None:
        for _ in range(count // 4):
            await queue.get()

    await asyncio.gather(produce(), consume())


async def echoes(count: int) -> None:
    """Requests of 100 bytes and their answers, one at a time."""

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(data)

    class Client(Server):
        def __init__(self) -> None:
            self.left = count // 10
            self.done = asyncio.get_running_loop().create_future()

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.transport.write(bytes(100))

        def data_received(self, data: bytes) -> None:
            self.left -= 1
            if self.left:
                self.transport.write(data)
            else:
                self.done.set_result(None)

    loop = asyncio.get_running_loop()
    server = await loop.create_server(Server, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport, client = await loop.create_connection(Client, "127.0.0.1", port)
    await client.done
    transport.close()
    server.close()


def seconds_real(work: Work, count: int) -> float:
    begin = time.process_time()
    asyncio.run(work(count))  # type: ignore[arg-type]
    return time.process_time() - begin


def seconds_simulated(work: Work, count: int) -> float:
    with Simulation(1) as simulation:
        begin = time.process_time()
        simulation.run(work(count), within_seconds=1e9)  # type: ignore[arg-type]
        return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--callbacks", type=int, default=200_000)
    options = parser.parse_args()
    print(f"{'':18}{'asyncio/s':>12}{'simulated/s':>14}{'ratio':>8}")
    for work, units in ((soon, 1), (soon_in_batches, 1), (deadlines, 1), (tasks, 4), (echoes, 10)):
        real = simulated = float("inf")
        for _ in range(options.rounds):
            real = min(real, seconds_real(work, options.callbacks))
            simulated = min(simulated, seconds_simulated(work, options.callbacks))
        count = options.callbacks // units
        print(f"{work.__name__:18}{count / real:12,.0f}{count / simulated:14,.0f}{real / simulated:8.2f}")


if __name__ == "__main__":
    main()
