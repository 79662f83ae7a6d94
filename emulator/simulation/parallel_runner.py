"""Runs many seeds, on several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from emulator.simulation.checkers import Violation
    from emulator.simulation.outcome import Figures

_ENDING = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What is reported of one seed."""

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
    """Yield the results in the order of the seeds. Ends early when the time is used up, or when the caller stops.

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
    """As `map`, but never more than a few seeds ahead of the caller: seeds may be endless."""
    with _not_now(_ENDING):
        pool = multiprocessing.get_context("fork").Pool(jobs, _leave_interrupts_to_the_parent)
    with pool:
        under_way = deque(pool.apply_async(run, (seed,)) for seed in islice(seeds, 4 * jobs))
        while under_way:
            yield under_way.popleft().get()
            under_way.extend(pool.apply_async(run, (seed,)) for seed in islice(seeds, 1))


def _leave_interrupts_to_the_parent() -> None:
    """Only the pool ends a worker: one that dies by Ctrl-C with a lock of the pool's in hand stops all of it."""
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the pool's word, without the parent's way to take it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


@contextmanager
def _not_now(signals: Iterable[signal.Signals]) -> Iterator[None]:
    """Signals wait until the end of the block; in what is started within, until it is ready for them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
