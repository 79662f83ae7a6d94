"""Faults that a program injects into a run: changes of regions and links, recorded in the run's history."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from emulator.model.machine import HEALTHY, DiskCondition
from emulator.model.units import bytes_per_second_in, fraction_in, ppm_in, seconds_in
from emulator.run.record import links_of
from emulator.runtimes.contract import Link, RunStatus, Runtime
from emulator.runtimes.faults import ClockFault, DiskFault, Fault, LinkFault, link_fault, link_pairs
from emulator.runtimes.frame_faults import link_of
from emulator.runtimes.opening import operator_history, select_regions
from geoemu.scopes import ActiveLinkFaults, FaultScope

T = TypeVar("T")


class LinkFaults:
    """The methods of `Geo` that change links. Each returns when its effect is complete, and raises RuntimeFailure if
    the change does not complete. Used in a `with` statement, a fault ends with the block.

    Each end of a link is a region, several with commas, a pattern such as `eu-*`, or `clients`: the clients of the
    regions at the other end. All methods raise Refused, a RuntimeFailure, for unknown ends.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._background = Background()
        self._active = ActiveLinkFaults()
        self._skewed: set[str] = set()
        """Regions whose clock this program has set."""

    def cut(self, a: str, b: str, *, one_way: bool = False) -> FaultScope:
        """Drop all traffic from `a` to `b`, and back unless `one_way`. New connections fail; open ones stall."""
        return self._change_links("cut", a, b, one_way)

    def hold(self, a: str, b: str, *, one_way: bool = False) -> FaultScope:
        """Queue traffic from `a` to `b`, and back unless `one_way`, until `heal` delivers it in order."""
        return self._change_links("hold", a, b, one_way)

    def latency(
        self, a: str, b: str, time: str, *, jitter: str | None = None, one_way: bool = False
    ) -> FaultScope:
        """Set the one-way latency from `a` to `b`, and back unless `one_way`.

        `time` is a duration with its unit, such as `200ms`. `jitter` is the maximum random addition, also a duration;
        None: unchanged. Raises ValueError if a duration is invalid.
        """
        jitter_ms = None if jitter is None else seconds_in(jitter) * 1000
        latency_ms = seconds_in(time) * 1000
        return self._change_links("latency", a, b, one_way, latency_ms=latency_ms, jitter_ms=jitter_ms)

    def bandwidth(self, a: str, b: str, limit: str, *, one_way: bool = False) -> FaultScope:
        """Limit the bandwidth from `a` to `b`, and back unless `one_way`, to a value such as `500KB/s` or `unlimited`.
        From a region to `clients`, its clients read slowly. Raises ValueError if the value is invalid."""
        return self._change_links("bandwidth", a, b, one_way, bytes_per_second=bytes_per_second_in(limit))

    def stall(self, a: str, b: str, time: str, *, every: str, one_way: bool = False) -> FaultScope:
        """Stall a link for `time` at intervals of `every`; both are durations, and `time` is the shorter one. Raises
        ValueError if a duration is invalid."""
        every_ms, stall_ms = seconds_in(every) * 1000, seconds_in(time) * 1000
        return self._change_links("stall", a, b, one_way, every_ms=every_ms, stall_ms=stall_ms)

    def flap(self, a: str, b: str, *, period: str, up: str = "50%", one_way: bool = False) -> FaultScope:
        """Cut a link for a part of each period: it is up for `up` of the period, at its beginning. Raises ValueError if
        a value is invalid."""
        return self._change_links(
            "flap", a, b, one_way, period_ms=seconds_in(period) * 1000, up=fraction_in(up)
        )

    def profile(self, a: str, b: str, name: str, *, one_way: bool = False) -> FaultScope:
        """Give a link the latency, jitter, bandwidth and stalls of a named profile: `same-continent`, `transatlantic`,
        `satellite` or `lossy-wifi`. Raises Refused, a RuntimeFailure, for other names."""
        return self._change_links("profile", a, b, one_way, profile=name)

    def reset(self, a: str, b: str) -> None:
        """Reset all open connections of a link (TCP RST); new ones work."""
        self._change_links("reset", a, b, False)

    def half_open(self, a: str, b: str) -> FaultScope:
        """Let the open connections of a link stay open and carry nothing any more; new ones work. `heal` resets
        them."""
        return self._change_links("half_open", a, b, False)

    # Faults of single commands, receipts and markers of one direction of a link, `us->eu`, `clients->us` or
    # `us->clients`: from the `nth` one named `what` on, `count` in a row are affected. `heal` disarms.

    def drop(self, link: str, what: str, *, count: int = 1, nth: int = 1) -> FaultScope:
        """Drop commands, receipts or markers, as a faulty peer does. Raises Refused for an invalid value."""
        return self._arm("drop", link, what=what, count=count, nth=nth)

    def delay(self, link: str, what: str, by: str, *, count: int = 1, nth: int = 1) -> FaultScope:
        """Delay commands, receipts or markers by a duration such as `2s`; later ones overtake them. Raises ValueError
        or Refused for an invalid value."""
        return self._arm("delay", link, what=what, count=count, nth=nth, by_ms=seconds_in(by) * 1000)

    def duplicate(self, link: str, what: str, *, count: int = 1, nth: int = 1) -> FaultScope:
        """Send commands, receipts or markers twice. Raises Refused for an invalid value."""
        return self._arm("duplicate", link, what=what, count=count, nth=nth)

    def reorder(self, link: str, what: str, *, count: int = 1, nth: int = 1) -> FaultScope:
        """Swap commands, receipts or markers with the next one. Raises Refused for an invalid value."""
        return self._arm("reorder", link, what=what, count=count, nth=nth)

    def _arm(self, verb: str, link: str, **values: Any) -> FaultScope:
        return self._change_links(verb, *link_of(link), True, **values)

    def heal(self, a: str | None = None, b: str | None = None) -> None:
        """Undo all faults of links between two ends in both directions, or of all links, and wait until running regions
        are linked again. Raises TypeError if only one end is named."""
        if (a is None) != (b is None):
            raise TypeError(f"{a or b!r}: heal requires two ends of a link, or none for all links")
        if a is None or b is None:
            self._background.run(self._runtime.heal())
            self._active.heal()
            self._record("heal", detail="everything")
        else:
            healed = LinkFault("heal", link_pairs(self._runtime.topology.region_names, a, b))
            self._begin(healed)
            self._active.heal(set(healed.links))

    def _change_links(self, verb: str, a: str, b: str, one_way: bool, **values: Any) -> FaultScope:
        fault = link_fault(verb, self._runtime.topology.region_names, a, b, one_way=one_way, **values)
        self._begin(fault)
        self._active.begin(fault)
        return FaultScope(lambda: self._end_link_fault(fault))

    def _end_link_fault(self, fault: LinkFault) -> None:
        """End a fault of links where it was not healed. Other faults of these links remain."""
        status = self._background.run(self._runtime.status())
        links = self._active.end(fault)
        if not links or status.ended:
            return
        others = list(self._active.on(links))
        if others:
            self._background.run(self._end_among_others(fault, links, status))
        else:
            self._background.run(self._runtime.heal(sorted(links)))
        healed = LinkFault("heal", tuple(pair for pair in fault.pairs if {pair, pair[::-1]} & links))
        self._record_facts(healed, *others)

    async def _end_among_others(self, fault: LinkFault, links: set[Link], status: RunStatus) -> None:
        if fault.verb == "half_open":
            await self._runtime.break_connections(sorted(links), "reset")
        declared = links_of(self._runtime.topology)
        for link in status.links:
            way = link.source, link.target
            if way in links and fault.changes:
                values = self._active.values_without(fault, way, declared[way], link.shape)
                await self._runtime.change_links([way], values)

    def _begin(self, fault: Fault) -> None:
        self._background.run(fault.begin(self._runtime))
        self._record_facts(fault)

    def _record_facts(self, *faults: Fault) -> None:
        for fact in (fact for fault in faults for fact in fault.facts()):
            self._record(fact.op, **fact.fields())

    def _record(self, op: str, **fact: str | None) -> None:
        history = operator_history(self._runtime)
        history.write(op, "fact", **fact)
        history.close()


class Faults(LinkFaults):
    """The methods of `Geo` that change regions and links. Each returns when its effect is complete.

    Used in a `with` statement, a fault ends with the block: regions are started or resumed unless they run already.
    Methods for regions take names of regions, or `cluster` for all regions of a cluster; they raise TypeError without
    either. All methods raise RuntimeFailure if the change does not complete or a name is not in the run; `start`,
    `restart` and `lose` also if the run has ended.
    """

    def kill(self, *regions: str, cluster: str | None = None) -> FaultScope:
        """Kill regions with SIGKILL; unflushed state is lost."""
        return self._begin_in_regions("kill", regions, cluster, "start")

    def lose(self, *regions: str, cluster: str | None = None) -> FaultScope:
        """Kill regions permanently with SIGKILL: the run no longer waits for them, and the report shows the lost
        messages."""
        return self._begin_in_regions("lose", regions, cluster, "start")

    def stop(self, *regions: str, cluster: str | None = None) -> FaultScope:
        """Stop regions gracefully."""
        return self._begin_in_regions("stop", regions, cluster, "start")

    def start(self, *regions: str, cluster: str | None = None) -> None:
        """Start killed, stopped or lost regions with their stored logs, and wait until they are ready."""
        self._change_regions("start", regions, cluster)

    def restart(self, *regions: str, cluster: str | None = None) -> None:
        """Stop regions gracefully, start them again, and wait until they are ready."""
        self._change_regions("restart", regions, cluster)

    def pause(self, *regions: str, cluster: str | None = None) -> FaultScope:
        """Freeze regions: their connections stay open, and they send no responses."""
        return self._begin_in_regions("pause", regions, cluster, "resume")

    def resume(self, *regions: str, cluster: str | None = None) -> None:
        """Resume paused regions, and wait until they are ready."""
        self._change_regions("resume", regions, cluster)

    def power_loss(self, *regions: str, cluster: str | None = None) -> FaultScope:
        """Kill regions as a power loss of their machines does: what no completed sync covers is dropped. A log in Kafka
        is not affected."""
        return self._begin_in_regions("power_loss", regions, cluster, "start")

    def disk(self, region: str, state: str, *, by: str | None = None) -> FaultScope:
        """Make a region's disk `slow`, `full` or `failing`; `healthy` ends it. `by`: duration by which each write to a
        slow disk takes longer, such as `200ms`. Raises ValueError if the state or the duration is invalid."""
        delay_ms = None if by is None else seconds_in(by) * 1000
        fault = DiskFault(region, DiskCondition.of(state, delay_ms))
        return self._begin_on_machine(fault, DiskFault(region, HEALTHY))

    def skew(self, region: str, ahead_ms: int, *, drift: str | None = None) -> FaultScope:
        """Offset a region's wall clock by milliseconds, ahead or (negative) behind; 0 corrects it. `drift`: what it
        gains from now on, such as `200ppm`. Timers are unaffected. Raises ValueError if the drift is invalid."""
        self._skewed.add(region)
        fault = ClockFault(region, ahead_ms, 0.0 if drift is None else ppm_in(drift))
        return self._begin_on_machine(fault, ClockFault(region, 0))

    def repair(self) -> None:
        """End all faults: resume and start regions, also lost ones, correct disks and clocks, heal links. Wait until
        the regions are ready and linked. Has no effect if there is no fault, or the run has ended."""
        status = self._background.run(self._runtime.status())
        if status.ended:
            return
        names = [one.name for one in status.regions]
        self._end_in_regions(names, "resume")
        self._end_in_regions(names, "start")
        for region in status.regions:
            if region.disk != HEALTHY:
                self._begin(DiskFault(region.name, HEALTHY))
        for name in sorted(self._skewed):
            self._begin(ClockFault(name, 0))
        self._skewed.clear()
        if any(link.shape != link.declared for link in status.links):
            self.heal()

    def _begin_on_machine(self, fault: Fault, none: Fault) -> FaultScope:
        """Begin a fault of a region's machine. `none`: the value that ends it."""
        self._begin(fault)
        return FaultScope(lambda: self._begin(none))

    def _begin_in_regions(
        self, verb: str, regions: Iterable[str], cluster: str | None, end_verb: str
    ) -> FaultScope:
        return FaultScope(
            partial(self._end_in_regions, self._change_regions(verb, regions, cluster), end_verb)
        )

    def _end_in_regions(self, regions: Iterable[str], verb: str) -> None:
        """Start or resume (`verb`) those of the regions that are down or paused."""
        status = self._background.run(self._runtime.status())
        states = ("paused",) if verb == "resume" else ("stopped", "killed", "lost")
        affected = [one.name for one in status.regions if one.name in regions and one.state in states]
        if affected and not status.ended:
            self._change_regions(verb, affected, None)

    def _change_regions(self, verb: str, regions: Iterable[str], cluster: str | None) -> list[str]:
        """Change the selected regions concurrently, and return them."""
        selected = select_regions(self._runtime.topology, list(regions), cluster)
        if not selected:
            raise TypeError(f"{verb} requires names of regions, or cluster=…")
        change = getattr(self._runtime, verb)

        async def change_one(region: str) -> None:
            await change(region)
            await asyncio.to_thread(self._record, verb, region=region)

        self._background.run(all_of(map(change_one, selected)))
        return selected


async def all_of(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently and return their results. If one fails, its error is raised when all have ended."""
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    for failure in outcomes:
        if isinstance(failure, BaseException):
            raise failure
    return [one for one in outcomes if not isinstance(one, BaseException)]


class Background:
    """A thread with an event loop, which runs coroutines for synchronous callers; callers may themselves run in another
    event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="geoemu", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the thread and return its result. On an interruption (Ctrl-C), cancel the coroutine, and
        raise KeyboardInterrupt when its cleanup is complete."""
        finished = threading.Event()

        async def watched() -> T:
            try:
                return await work
            finally:
                finished.set()

        future: Future[T] = asyncio.run_coroutine_threadsafe(watched(), self._loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
                finished.wait()
            raise
