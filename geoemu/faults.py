"""Faults that a program injects into a run: changes of regions and links, recorded in the run's history."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

from emulator.model.values import DiskCondition, bytes_per_second_in, fraction_in, ppm_in, seconds_in
from emulator.runtimes.contract import Runtime
from emulator.runtimes.faults import ClockFault, DiskFault, Fault, LinkFault, link_fault, link_pairs
from emulator.runtimes.frame_faults import link_of
from emulator.runtimes.opening import operator_history, select_regions

T = TypeVar("T")


class LinkFaults:
    """The methods of `Geo` that change links. Each returns when its effect is complete, and raises RuntimeFailure if
    the change does not complete.

    Each end of a link is a region, several with commas, a pattern such as `eu-*`, or `clients`: the clients of the
    regions at the other end. All methods raise Refused, a RuntimeFailure, for unknown ends.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._background = Background()

    def cut(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Drop all traffic from `a` to `b`, and back unless `one_way`. New connections fail; open ones stall."""
        self._change_links("cut", a, b, one_way)

    def hold(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Queue traffic from `a` to `b`, and back unless `one_way`, until `heal` delivers it in order."""
        self._change_links("hold", a, b, one_way)

    def latency(self, a: str, b: str, time: str, *, jitter: str | None = None, one_way: bool = False) -> None:
        """Set the one-way latency from `a` to `b`, and back unless `one_way`.

        `time` is a duration with its unit, such as `200ms`. `jitter` is the maximum random addition, also a duration;
        None: unchanged. Raises ValueError if a duration is invalid.
        """
        jitter_ms = None if jitter is None else seconds_in(jitter) * 1000
        latency_ms = seconds_in(time) * 1000
        self._change_links("latency", a, b, one_way, latency_ms=latency_ms, jitter_ms=jitter_ms)

    def bandwidth(self, a: str, b: str, limit: str, *, one_way: bool = False) -> None:
        """Limit the bandwidth from `a` to `b`, and back unless `one_way`, to a value such as `500KB/s` or `unlimited`.
        From a region to `clients`, its clients read slowly. Raises ValueError if the value is invalid."""
        self._change_links("bandwidth", a, b, one_way, bytes_per_second=bytes_per_second_in(limit))

    def stall(self, a: str, b: str, time: str, *, every: str, one_way: bool = False) -> None:
        """Stall a link for `time` at intervals of `every`; both are durations, and `time` is the shorter one. Raises
        ValueError if a duration is invalid."""
        every_ms, stall_ms = seconds_in(every) * 1000, seconds_in(time) * 1000
        self._change_links("stall", a, b, one_way, every_ms=every_ms, stall_ms=stall_ms)

    def flap(self, a: str, b: str, *, period: str, up: str = "50%", one_way: bool = False) -> None:
        """Cut a link for a part of each period: it is up for `up` of the period, at its beginning. Raises ValueError if
        a value is invalid."""
        self._change_links("flap", a, b, one_way, period_ms=seconds_in(period) * 1000, up=fraction_in(up))

    def profile(self, a: str, b: str, name: str, *, one_way: bool = False) -> None:
        """Give a link the latency, jitter, bandwidth and stalls of a named profile: `same-continent`, `transatlantic`,
        `satellite` or `lossy-wifi`. Raises Refused, a RuntimeFailure, for other names."""
        self._change_links("profile", a, b, one_way, profile=name)

    def reset(self, a: str, b: str) -> None:
        """Reset all open connections of a link (TCP RST); new ones work."""
        self._change_links("reset", a, b, False)

    def half_open(self, a: str, b: str) -> None:
        """Let the open connections of a link stay open and carry nothing any more; new ones work. `heal` resets
        them."""
        self._change_links("half_open", a, b, False)

    # Faults of single commands, receipts and markers of one direction of a link, `us->eu`, `clients->us` or
    # `us->clients`: from the `nth` one named `what` on, `count` in a row are affected. `heal` disarms.

    def drop(self, link: str, what: str, *, count: int = 1, nth: int = 1) -> None:
        """Drop commands, receipts or markers, as a faulty peer does. Raises Refused for an invalid value."""
        self._arm("drop", link, what=what, count=count, nth=nth)

    def delay(self, link: str, what: str, by: str, *, count: int = 1, nth: int = 1) -> None:
        """Delay commands, receipts or markers by a duration such as `2s`; later ones overtake them. Raises ValueError
        or Refused for an invalid value."""
        self._arm("delay", link, what=what, count=count, nth=nth, by_ms=seconds_in(by) * 1000)

    def duplicate(self, link: str, what: str, *, count: int = 1, nth: int = 1) -> None:
        """Send commands, receipts or markers twice. Raises Refused for an invalid value."""
        self._arm("duplicate", link, what=what, count=count, nth=nth)

    def reorder(self, link: str, what: str, *, count: int = 1, nth: int = 1) -> None:
        """Swap commands, receipts or markers with the next one. Raises Refused for an invalid value."""
        self._arm("reorder", link, what=what, count=count, nth=nth)

    def _arm(self, verb: str, link: str, **values: Any) -> None:
        self._change_links(verb, *link_of(link), True, **values)

    def heal(self, a: str | None = None, b: str | None = None) -> None:
        """Undo all faults of links between two ends in both directions, or of all links, and wait until running regions
        are linked again. Raises TypeError if only one end is named."""
        if (a is None) != (b is None):
            raise TypeError(f"{a or b!r}: heal requires two ends of a link, or none for all links")
        if a is None or b is None:
            self._background.run(self._runtime.heal())
            self._record("heal", detail="everything")
        else:
            self._begin(LinkFault("heal", link_pairs(self._runtime.topology.region_names, a, b)))

    def _change_links(self, verb: str, a: str, b: str, one_way: bool, **values: Any) -> None:
        regions = self._runtime.topology.region_names
        self._begin(link_fault(verb, regions, a, b, one_way=one_way, **values))

    def _begin(self, fault: Fault) -> None:
        self._background.run(fault.begin(self._runtime))
        for fact in fault.facts():
            self._record(fact.op, **fact.fields())

    def _record(self, op: str, **fact: str | None) -> None:
        history = operator_history(self._runtime)
        history.write(op, "fact", **fact)
        history.close()


class Faults(LinkFaults):
    """The methods of `Geo` that change regions and links. Each returns when its effect is complete.

    Methods for regions take names of regions, or `cluster` for all regions of a cluster; they raise TypeError without
    either. All methods raise RuntimeFailure if the change does not complete or a name is not in the run; `start`,
    `restart` and `lose` also if the run has ended.
    """

    def kill(self, *regions: str, cluster: str | None = None) -> None:
        """Kill regions with SIGKILL; unflushed state is lost."""
        self._change_regions("kill", regions, cluster)

    def lose(self, *regions: str, cluster: str | None = None) -> None:
        """Kill regions permanently with SIGKILL: the run no longer waits for them, and the report shows the lost
        messages."""
        self._change_regions("lose", regions, cluster)

    def stop(self, *regions: str, cluster: str | None = None) -> None:
        """Stop regions gracefully."""
        self._change_regions("stop", regions, cluster)

    def start(self, *regions: str, cluster: str | None = None) -> None:
        """Start killed, stopped or lost regions with their stored logs, and wait until they are ready."""
        self._change_regions("start", regions, cluster)

    def restart(self, *regions: str, cluster: str | None = None) -> None:
        """Stop regions gracefully, start them again, and wait until they are ready."""
        self._change_regions("restart", regions, cluster)

    def pause(self, *regions: str, cluster: str | None = None) -> None:
        """Freeze regions: their connections stay open, and they send no responses."""
        self._change_regions("pause", regions, cluster)

    def resume(self, *regions: str, cluster: str | None = None) -> None:
        """Resume paused regions, and wait until they are ready."""
        self._change_regions("resume", regions, cluster)

    def power_loss(self, *regions: str, cluster: str | None = None) -> None:
        """Kill regions as a power loss of their machines does: what no completed sync covers is dropped. A log in Kafka
        is not affected."""
        self._change_regions("power_loss", regions, cluster)

    def disk(self, region: str, state: str, *, by: str | None = None) -> None:
        """Make a region's disk `slow`, `full` or `failing`; `healthy` ends it. `by`: duration by which each write to a
        slow disk takes longer, such as `200ms`. Raises ValueError if the state or the duration is invalid."""
        delay_ms = None if by is None else seconds_in(by) * 1000
        self._begin(DiskFault(region, DiskCondition.of(state, delay_ms)))

    def skew(self, region: str, ahead_ms: int, *, drift: str | None = None) -> None:
        """Offset a region's wall clock by milliseconds, ahead or (negative) behind; 0 corrects it. `drift`: what it
        gains from now on, such as `200ppm`. Timers are unaffected. Raises ValueError if the drift is invalid."""
        self._begin(ClockFault(region, ahead_ms, 0.0 if drift is None else ppm_in(drift)))

    def _change_regions(self, verb: str, regions: Iterable[str], cluster: str | None) -> None:
        selected = select_regions(self._runtime.topology, list(regions), cluster)
        if not selected:
            raise TypeError(f"{verb} requires names of regions, or cluster=…")
        change = getattr(self._runtime, verb)

        async def change_one(region: str) -> None:
            await change(region)
            await asyncio.to_thread(self._record, verb, region=region)

        self._background.run(all_of(map(change_one, selected)))


async def all_of(works: Iterable[object]) -> None:
    outcomes = await asyncio.gather(*works, return_exceptions=True)  # type: ignore[call-overload]
    for failure in outcomes:
        if isinstance(failure, BaseException):
            raise failure


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
