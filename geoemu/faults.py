"""Faults that a program injects into a run: changes of regions and links, recorded in the run's history."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

from emulator.model.values import seconds_in
from emulator.run.history_events import latency_detail
from emulator.runtimes.contract import Runtime
from emulator.runtimes.opening import operator_history, select_regions

T = TypeVar("T")


class Faults:
    """The methods of `Geo` that change regions and links. Each returns when its effect is complete.

    Methods for regions take names of regions, or `cluster` for all regions of a cluster; they raise TypeError without
    either. All methods raise RuntimeFailure if the change does not complete or a name is not in the run; `start`,
    `restart` and `lose` also if the run has ended.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._background = Background()

    # --- regions ------------------------------------------------------------------------------------------

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

    # --- links --------------------------------------------------------------------------------------------

    def cut(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Drop all traffic from `a` to `b`, and back unless `one_way`. New connections fail; open ones stall."""
        self._background.run(self._runtime.cut(a, b, one_way=one_way))
        self._record("cut", region=a, other_region=b, detail=_direction_text(one_way))

    def hold(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Queue traffic from `a` to `b`, and back unless `one_way`, until `heal` delivers it in order."""
        self._background.run(self._runtime.hold(a, b, one_way=one_way))
        self._record("hold", region=a, other_region=b, detail=_direction_text(one_way))

    def latency(self, a: str, b: str, time: str, *, jitter: str | None = None, one_way: bool = False) -> None:
        """Set the one-way latency from `a` to `b`, and back unless `one_way`.

        `time` is a duration with its unit, such as `200ms`. `jitter` is the maximum random addition, also a duration;
        None: unchanged. Raises ValueError if a duration is invalid.
        """
        milliseconds = seconds_in(time) * 1000
        jitter_ms = None if jitter is None else seconds_in(jitter) * 1000
        self._background.run(self._runtime.latency(a, b, milliseconds, jitter_ms=jitter_ms, one_way=one_way))
        detail = latency_detail(milliseconds, one_way=one_way)
        self._record("latency", region=a, other_region=b, detail=detail)

    def heal(self, a: str | None = None, b: str | None = None) -> None:
        """Undo `cut`, `hold` and `latency` between two regions in both directions, or on all links, and wait until
        running regions are linked again. Raises TypeError if only one region is named."""
        if (a is None) != (b is None):
            raise TypeError(f"{a or b!r}: heal requires two regions, or none for all links")
        self._background.run(self._runtime.heal(a, b))
        self._record("heal", region=a, other_region=b, detail=None if a else "everything")

    def _change_regions(self, verb: str, regions: Iterable[str], cluster: str | None) -> None:
        selected = select_regions(self._runtime.topology, list(regions), cluster)
        if not selected:
            raise TypeError(f"{verb} requires names of regions, or cluster=…")
        change = getattr(self._runtime, verb)

        async def change_one(region: str) -> None:
            await change(region)
            await asyncio.to_thread(self._record, verb, region=region)

        self._background.run(all_of(map(change_one, selected)))

    def _record(self, op: str, **fact: str | None) -> None:
        history = operator_history(self._runtime)
        history.write(op, "fact", **fact)
        history.close()


async def all_of(works: Iterable[object]) -> None:
    outcomes = await asyncio.gather(*works, return_exceptions=True)  # type: ignore[call-overload]
    for failure in outcomes:
        if isinstance(failure, BaseException):
            raise failure


def _direction_text(one_way: bool) -> str:
    return "one way" if one_way else "both ways"


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
