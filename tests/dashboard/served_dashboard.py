"""A dashboard on a real socket, in its own thread, of a run whose regions are only states."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.client import Client, InitialPosition
from emulator.config.topology import Topology
from emulator.dashboard.server import TOKEN_HEADER, DashboardServer
from emulator.errors import RuntimeFailure
from emulator.model.machine import HEALTHY, RIGHT_CLOCK, ClockOffset, DiskCondition
from emulator.model.values import CLIENTS
from emulator.run.record import LinkStatus, links_of
from emulator.runtimes.contract import Link, RegionState, RegionStatus, RunStatus
from tests.broker.admin.served import DEADLINE_SECONDS, Reply, Served, reply_in
from tests.runtimes.fixtures import small_topology

HTML = "<img src=x onerror=\"document.title='ran'\">"


def use_names_of_html(region: Served) -> None:
    """Publish to a topic `orders` and one whose name is HTML, each with a subscription whose name contains HTML."""

    async def use(client: Client) -> None:
        for topic in ("orders", HTML):
            name = f"billing {HTML}"
            consumer = await client.subscribe(topic, name, initial_position=InitialPosition.EARLIEST)
            producer = await client.producer(topic)
            for _ in range(3):
                await producer.send(b"x")
            await consumer.acknowledge(await consumer.receive(), confirmed=True)

    with ThreadPoolExecutor(1) as pool:  # an event loop runs in the thread of tests with a browser
        pool.submit(region.run, use).result()


class StatesOnly:
    """A runtime whose regions are states without processes."""

    def __init__(self, folder: Path, topology: Topology | None = None) -> None:
        self.topology = topology or small_topology(folder)
        self.run_dir = folder / "run"
        (self.run_dir / "history").mkdir(parents=True)
        self.states: dict[str, RegionState] = dict.fromkeys(self.topology.region_names, "running")
        self.admin_urls: dict[str, str] = {}
        self.links = links_of(self.topology)
        self.disks: dict[str, DiskCondition] = {}
        self.clocks: dict[str, ClockOffset] = {}
        self.ended = False
        self.is_silent = False
        """No status is returned while it is set."""
        self.is_slow = False
        """No change is completed while it is set."""
        self.failure = ""
        """Why every change fails; empty: none does."""

    async def status(self) -> RunStatus:
        while self.is_silent:
            await asyncio.sleep(0.01)
        regions = tuple(
            RegionStatus(
                region.name,
                region.cluster,
                self.states[region.name],
                f"pulsar://{region.name}:1",
                self.admin_urls.get(region.name, ""),
                None,
                disk=self.disks.get(region.name, HEALTHY),
                clock=self.clocks.get(region.name, RIGHT_CLOCK),
            )
            for region in self.topology.regions
        )
        declared = links_of(self.topology)
        links = tuple(
            LinkStatus(*link, shape, declared[link])
            for link, shape in self.links.items()
            if CLIENTS not in link or shape != declared[link]
        )
        return RunStatus(self.run_dir, "process", regions, links, self.ended)

    async def _become(self, region: str, state: RegionState) -> None:
        while self.is_slow:
            await asyncio.sleep(0.01)
        if self.failure:
            raise RuntimeFailure(self.failure)
        self.states[region] = state

    async def kill(self, region: str) -> None:
        await self._become(region, "killed")

    async def lose(self, region: str) -> None:
        await self._become(region, "lost")

    async def stop(self, region: str) -> None:
        await self._become(region, "stopped")

    async def pause(self, region: str) -> None:
        await self._become(region, "paused")

    async def start(self, region: str) -> None:
        await self._become(region, "running")

    restart = resume = start

    async def change_links(self, links: Sequence[Link], changes: Mapping[str, Any]) -> None:
        for link in links:
            self.links[link] = self.links[link].changed(changes)

    async def skew(self, region: str, ahead_ms: int, drift_ppm: float = 0.0) -> None:
        self.clocks[region] = ClockOffset(ahead_ms, drift_ppm)

    async def disk(self, region: str, state: str, delay_ms: float | None = None) -> None:
        self.disks[region] = DiskCondition.of(state, delay_ms)

    async def heal(self, links: Sequence[Link] | None = None) -> None:
        declared = links_of(self.topology)
        for link in self.links if links is None else links:
            self.links[link] = declared[link]

    async def logs(self, region: str, *, follow: bool = False) -> AsyncIterator[str]:
        yield ""


@dataclass(frozen=True, slots=True)
class ServedDashboard:
    """A running dashboard. All methods block until the response arrives."""

    url: str
    run: StatesOnly

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://").rstrip("/")

    def raw(self, sent: bytes) -> bytes:
        """Send these bytes and return everything received until the server closes the connection."""
        host, _, port = self.host.rpartition(":")
        with socket.create_connection((host, int(port)), DEADLINE_SECONDS) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            received = b""
            while chunk := connection.recv(65_536):
                received += chunk
            return received

    def ask(
        self, method: str, target: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        given = {"Host": self.host, "Connection": "close"} | (headers or {})
        if body is not None and "Transfer-Encoding" not in given:
            given = {"Content-Length": str(len(body))} | given
        head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{n}: {v}\r\n" for n, v in given.items())
        return reply_in(self.raw(head.encode("latin-1") + b"\r\n" + (body or b"")))

    def get(self, target: str) -> Any:
        reply = self.ask("GET", target)
        assert reply.status == 200, (target, reply)
        return reply.json()

    @property
    def token(self) -> str:
        found = re.search(r'name="geoemu-token" content="([^"]+)"', self.ask("GET", "/").body.decode())
        assert found
        return found[1]

    def change(self, request: Any, target: str = "/api/actions", **headers: str) -> Reply:
        """Request a change as the page does."""
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        own = {
            "Content-Type": "application/json",
            TOKEN_HEADER: self.token,
            "Origin": self.url.rstrip("/"),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return self.ask("POST", target, body, own)


@contextmanager
def served_dashboard(run: StatesOnly) -> Iterator[ServedDashboard]:
    """Serve the dashboard of a run inside the `with` block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> tuple[DashboardServer, str]:
        server = DashboardServer(run)  # type: ignore[arg-type]
        return server, await server.start(0)

    try:
        server, url = asyncio.run_coroutine_threadsafe(start(), loop).result(DEADLINE_SECONDS)
        try:
            yield ServedDashboard(url, run)
        finally:
            asyncio.run_coroutine_threadsafe(server.close(), loop).result(DEADLINE_SECONDS)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(DEADLINE_SECONDS)
        loop.close()
