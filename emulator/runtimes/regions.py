"""What all runtimes share: regions receive link states, and are waited for, on their admin ports.

The runtime reports which regions run; everything else is in the run's record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from emulator.config.region import LinkShape
from emulator.config.topology import CONFIGURATION_FILE, Topology
from emulator.errors import Refused, RuntimeFailure
from emulator.model.suggestions import nearest
from emulator.run.directory import RegionRecord, RunDirectory, RunRecord, links_of
from emulator.run.processes import ProcessState
from emulator.runtimes.admin_client import AdminExchange, HttpResponse, NoHttpResponse, call

READY_POLL_SECONDS = 0.05
READY_SECONDS = 30.0
"""How long a region may take until it is ready, unless the runtime says otherwise."""
TELL_SECONDS = 10.0
"""Time limit for a region to apply a changed link."""

Link = tuple[str, str]
States = Mapping[str, ProcessState]


class LinkedRegions:
    """The regions of one run."""

    def __init__(
        self,
        directory: RunDirectory,
        look: Callable[[], Awaitable[States]],
        last_words: Callable[[str, ProcessState], Awaitable[str]],
        *,
        poll_seconds: float = READY_POLL_SECONDS,
        noted: Callable[[RunRecord, Iterable[str]], None] = lambda record, regions: None,
        ready_seconds: float | None = None,
    ) -> None:
        """`look` returns the state of every region; `last_words` explains why a region never became ready; `noted` is
        called when links of some regions were changed in the record, before any region receives the change."""
        self._directory = directory
        self._look = look
        self._last_words = last_words
        self._poll_seconds = poll_seconds
        self._noted = noted
        self._ready_seconds = ready_seconds or READY_SECONDS

    # --- links ------------------------------------------------------------------------------------------

    async def change_link(self, source: str, target: str, one_way: bool, **changes: Any) -> None:
        """Give one direction, or both, other values of LinkShape's fields, and tell both ends."""
        links = [(source, target)] if one_way else [(source, target), (target, source)]
        await self._set_links(links, lambda _, shape: replace(shape, **changes))

    async def heal(self, topology: Topology, source: str | None, target: str | None) -> None:
        """Links are up and as they were declared, between two regions or everywhere. Wait until regions that run are
        linked."""
        links = list(self._directory.read().links)
        if source is not None and target is not None:
            links = [(source, target), (target, source)]
        declared = links_of(topology)
        await self._set_links(links, lambda link, _: replace(declared[link], state="up"))
        await asyncio.gather(*(self.wait_until_ready([a], peers=[b]) for a, b in links))

    async def _set_links(self, links: Sequence[Link], change: Callable[[Link, LinkShape], LinkShape]) -> None:
        """Note it first, so that a region that starts meanwhile begins with it; then tell those that run."""
        with self._directory.edit() as record:
            for link in links:
                _refuse_unknown_link(record, *link)
            record.links.update({link: change(link, record.links[link]) for link in links})
            self._noted(record, {end for link in links for end in link})
        await self.tell_links(links)

    async def tell_links(self, links: Iterable[Link]) -> None:
        """Make both ends know the shapes that are noted."""
        await asyncio.gather(*(self._tell(end, link) for link in links for end in link))

    # --- clocks -----------------------------------------------------------------------------------------

    async def skew(self, name: str, ahead_ms: int) -> None:
        """Note how far a region's clock is ahead, and tell it if it runs."""
        refuse_unknown(self._directory.read(), name)
        state = (await self._look())[name]
        if state == "paused":
            raise Refused(f"{name} is paused and cannot receive requests: run `geoemu resume {name}` first")
        with self._directory.edit() as record:
            record.regions[name].clock_ahead_ms = ahead_ms
            self._noted(record, [name])
            region = record.regions[name]
        if state != "running":
            return
        body = {"ahead_ms": ahead_ms}
        try:
            answer = await call(region.host, region.admin_port, "PUT", "/geoemu/v1/clock", body)
        except NoHttpResponse as silence:
            raise RuntimeFailure(f"the clock of {name} could not be set: {silence}") from None
        if answer.status != 204:
            raise RuntimeFailure(f"the clock of {name} could not be set: {describe(answer)}")

    # --- losses -----------------------------------------------------------------------------------------

    async def tell_of_losses(self, clusters: Iterable[str]) -> None:
        """Make all other clusters know whether each of these is lost. One whose regions are all away at the moment
        learns it with the next such change; where clusters share no metadata none wants to know."""
        record, states = self._directory.read(), await self._look()
        for cluster in clusters:
            method = "PUT" if cluster in lost_clusters(record) else "DELETE"
            target = f"/geoemu/v1/clusters/{quote(cluster, safe='')}/lost"
            for other in {region.cluster for region in record.regions.values()} - {cluster}:
                for name, region in record.regions.items():
                    if region.cluster != other or states[name] != "running":
                        continue
                    with suppress(NoHttpResponse):
                        await call(region.host, region.admin_port, method, target)
                        break

    async def thaw(self, name: str, resume: Callable[[], Awaitable[None]]) -> None:
        """Let a frozen region go on, with word of all its links waiting in its sockets already."""
        record = self._directory.read()
        region = record.regions[name]
        links = [link for link in record.links if name in link]
        exchanges = [AdminExchange(region.host, region.admin_port) for _ in links]
        try:
            with suppress(NoHttpResponse):  # frozen before it listened
                for exchange, link in zip(exchanges, links, strict=True):
                    await exchange.send(*link_request(link, record.links[link]))
            await resume()
            await asyncio.gather(*(self._tell(name, link) for link in links))
        finally:
            for exchange in exchanges:
                exchange.close()

    async def _tell(self, name: str, link: Link) -> None:
        """Send the latest recorded state, so that of two concurrent commands the later one wins everywhere."""
        reason = ""
        try:
            async with asyncio.timeout(TELL_SECONDS):
                while (await self._look())[name] == "running":  # others learn it when they start or thaw
                    record = self._directory.read()
                    region, shape = record.regions[name], record.links[link]
                    try:
                        answer = await call(region.host, region.admin_port, *link_request(link, shape))
                    except NoHttpResponse as silence:
                        reason = str(silence)
                    else:
                        if answer.status == 204 and self._directory.read().links[link] == shape:
                            return
                        reason = describe(answer)
                    await asyncio.sleep(self._poll_seconds)
        except TimeoutError:
            raise RuntimeFailure(
                f"{name} did not apply the state of link {link[0]} -> {link[1]} ({reason}): "
                f"`geoemu logs {name}` shows its log"
            ) from None

    # --- ready ------------------------------------------------------------------------------------------

    async def wait_until_linked(self, name: str) -> None:
        """Wait until a region is ready and the peers that run are linked to it."""
        await self.wait_until_ready([name])
        peers = self.running_peers(self._directory.read(), await self._look(), name)
        await self.wait_until_ready(peers, peers=[name])

    async def wait_until_ready(self, names: Iterable[str], *, peers: Sequence[str] | None = None) -> None:
        """Wait until regions are ready, as far as links to running `peers` go (None: all). With `peers`,
        regions that do not run are not waited for."""
        try:
            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(self._wait_until_one_ready(name, peers))
        except* RuntimeFailure as failures:
            raise RuntimeFailure("\n".join(map(str, failures.exceptions))) from None

    async def _wait_until_one_ready(self, name: str, peers: Sequence[str] | None) -> None:
        missing = "it does not respond"
        try:
            async with asyncio.timeout(self._ready_seconds):
                while True:
                    record, states = self._directory.read(), await self._look()
                    if (state := states[name]) != "running":
                        if peers is not None:
                            return
                        raise RuntimeFailure(await self._last_words(name, state))
                    expected = self.running_peers(record, states, name)
                    if peers is not None and not (expected := [peer for peer in expected if peer in peers]):
                        return
                    try:
                        report = await ask(record.regions[name], expected)
                    except NoHttpResponse:
                        pass
                    else:
                        if report.ready:
                            if peers is None:
                                self._note_ready(name)
                            return
                        missing = report.waiting_for
                    await asyncio.sleep(self._poll_seconds)
        except TimeoutError:
            raise RuntimeFailure(
                f"{name} is not ready after {self._ready_seconds:g} s ({missing}): "
                f"`geoemu logs {name}` shows its log"
            ) from None

    def _note_ready(self, name: str) -> None:
        with self._directory.edit() as record:
            record.regions[name].was_ready = True

    @staticmethod
    def running_peers(record: RunRecord, states: States, name: str) -> list[str]:
        """Regions that `name` ought to be linked with now: those that run, over links up both ways."""
        return [
            peer
            for peer in record.regions
            if peer != name
            and record.links[name, peer].state == record.links[peer, name].state == "up"
            and states[peer] == "running"
        ]


async def ask(region: RegionRecord, expected_peers: Iterable[str]) -> RegionReport:
    """How a region is. NoHttpResponse when it says nothing."""
    pid = region.process.pid if region.process else None
    return await ask_region(region.host, region.admin_port, pid, expected_peers)


def _refuse_unknown_link(record: RunRecord, source: str, target: str) -> None:
    refuse_unknown(record, source)
    refuse_unknown(record, target)
    if (source, target) not in record.links:
        raise Refused(f"no link {source} -> {target}: name two different regions")


def refuse_unknown(record: RunRecord, name: str) -> None:
    if name not in record.regions:
        known = tuple(record.regions)
        guess = nearest(name, known)
        hint = f"did you mean {guess}? " if guess else ""
        raise Refused(f"no region {name!r} in this run: {hint}regions are {', '.join(known)}")


def lost_clusters(record: RunRecord) -> frozenset[str]:
    there = {region.cluster for region in record.regions.values() if not region.lost}
    return frozenset(region.cluster for region in record.regions.values()) - there


def refuse_living(record: RunRecord, cluster: str, states: Mapping[str, ProcessState]) -> None:
    """Refused for a cluster that still has its store open, or that there is not."""
    of = [name for name, region in record.regions.items() if region.cluster == cluster]
    living = [name for name in of if states[name] != "gone"]
    if not of:
        raise Refused(f"no cluster {cluster!r} in this run")
    if living:
        raise Refused(
            f"{', '.join(living)} of cluster {cluster} runs: `geoemu lose --cluster {cluster}` first"
        )


def forget_store(folder: Path) -> None:
    """Of a cluster of containers: what was copied out of its volume is old from here on."""
    for file in folder.glob(f"{CONFIGURATION_FILE}*"):
        file.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class RegionReport:
    """A region's own answer to how it is."""

    ready: bool
    waiting_for: str
    """What it lacks, as a sentence; empty when it lacks nothing."""


async def ask_region(host: str, port: int, pid: int | None, expected_peers: Iterable[str]) -> RegionReport:
    """Return the state of a region, given the peers to which it has to be linked.

    NoHttpResponse when there is no response, or when another process than `pid` uses its port (None: any process).
    """
    target = f"/geoemu/v1/status?expect={quote(','.join(expected_peers))}"
    answer = await call(host, port, "GET", target)
    try:
        raw = answer.json()
        if pid is not None and raw["pid"] != pid:
            raise NoHttpResponse(f"process {raw['pid']} listens at its port")
        return RegionReport(raw["ready"], "; ".join(raw["waiting_for"]))
    except (ValueError, KeyError, TypeError) as problem:
        raise NoHttpResponse(describe(answer)) from problem


def link_request(link: tuple[str, str], shape: LinkShape) -> tuple[str, str, dict[str, Any]]:
    """Method, target and body that tell a region how one direction of a link is. Answered with 204."""
    source, target = (quote(end, safe="") for end in link)
    return "PUT", f"/geoemu/v1/links/{source}/{target}", asdict(shape)


def describe(answer: HttpResponse) -> str:
    """An answer that was not expected, for an error message."""
    return f"it answered {answer.status} {answer.body[:200].decode(errors='replace')}"
