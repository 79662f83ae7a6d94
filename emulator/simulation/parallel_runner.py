"""Run many seeds of a simulation, on several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from emulator.simulation.invariant_check import Violation
    from emulator.simulation.outcome import Figures

_END_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class SeedResult:
    """The part of one seed's outcome that is reported."""

    seed: int
    violation: Violation | None
    virtual_seconds: float
    digest: str
    figures: Figures


R = TypeVar("R")


def run_seeds(
    run: Callable[[int], R],
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    time_budget_seconds: float | None = None,
) -> Generator[R, None, None]:
    """Run the seeds and yield the results in their order. Ends early when the time budget is used or the caller stops.

    With more than one job `run` must be picklable.
    """
    end = None if time_budget_seconds is None else time.monotonic() + time_budget_seconds
    results = map(run, seeds) if jobs == 1 else _on_processes(run, iter(seeds), jobs)
    with closing(results) if isinstance(results, Generator) else nullcontext():
        for result in results:
            yield result
            if end is not None and time.monotonic() >= end:
                return


def _on_processes(run: Callable[[int], R], seeds: Iterator[int], jobs: int) -> Generator[R, None, None]:
    """Yield results like `map`, but run at most 4 seeds per job ahead of the caller: the seeds may be infinite."""
    # Not `fork`: the copy lacks this process's threads. It would wait for ever for a lock that one of them held, or
    # when it collects an object of DuckDB or Arrow that waits for its own threads.
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([_module_of(run)])
    resource_tracker.ensure_running()  # otherwise the pool starts it, which ends the blocking of the signals
    with _blocked(_END_SIGNALS):
        pool = server.Pool(jobs, _ignore_interrupts)
    with pool:
        running = deque(pool.apply_async(run, (seed,)) for seed in islice(seeds, 4 * jobs))
        while running:
            yield running.popleft().get()
            running.extend(pool.apply_async(run, (seed,)) for seed in islice(seeds, 1))


def _module_of(run: Callable[[int], R]) -> str:
    """Return the module that each process has to import."""
    return (run.func if isinstance(run, partial) else run).__module__


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C in a worker: a worker that dies while it holds a lock of the pool blocks the whole pool."""
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # sent by the pool; the parent's handler must not run here
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _END_SIGNALS)


@contextmanager
def _blocked(signals: Iterable[signal.Signals]) -> Iterator[None]:
    """Block signals within the `with` block. A process that is started in it unblocks them when it is ready."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
