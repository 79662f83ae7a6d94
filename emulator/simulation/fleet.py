"""Many seeds, on as many processes as there are to spare."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from emulator.simulation.ablation import Ablation
from emulator.simulation.ablations import seams_without
from emulator.simulation.checkers import Violation
from emulator.simulation.overrides import AS_SHIPPED, Seams
from emulator.simulation.swarm import run_seed

if TYPE_CHECKING:
    from emulator.simulation.outcome import Figures, Outcome
    from emulator.simulation.story.run import Story


_ENDING = (signal.SIGINT, signal.SIGTERM)


class SeedResult(NamedTuple):
    """What is told of one seed."""

    seed: int
    violation: Violation | None
    virtual_seconds: float
    digest: str
    figures: Figures
    deeds: Mapping[tuple[str, str], int]
    """(word, what came of it) -> how often."""


class Task(NamedTuple):
    subject: str | Story
    seed: int
    without: str | None
    """The ablation to run it under."""


def run_task(task: Task) -> SeedResult:
    """Run one seed in this process."""
    outcome = run_one(task.subject, task.seed, seams_without(task.without))
    return SeedResult(
        task.seed,
        outcome.violation,
        outcome.virtual_seconds,
        outcome.digest,
        outcome.figures,
        Counter((deed.word, deed.outcome) for deed in outcome.deeds),
    )


def run_one(subject: str | Story, seed: int, seams: Seams = AS_SHIPPED) -> Outcome:
    """One seed, with all its evidence."""
    if isinstance(subject, str):
        return run_seed(subject, seed, seams=seams)
    from emulator.simulation.story.run import run_story  # pydantic and YAML, only where scenarios are read

    return run_story(subject, seed, seams=seams)


def run_seeds(
    subject: str | Story,
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    time_budget_seconds: float | None = None,
    without: str | None = None,
) -> Generator[SeedResult, None, None]:
    """Results in the order of the seeds, as they come in. Ends early when the time is used up, or when the caller has
    seen enough."""
    end = None if time_budget_seconds is None else time.monotonic() + time_budget_seconds
    tasks = (Task(subject, seed, without) for seed in seeds)
    results = map(run_task, tasks) if jobs == 1 else _on_processes(tasks, jobs)
    with closing(results) if isinstance(results, Generator) else nullcontext():
        for result in results:
            yield result
            if end is not None and time.monotonic() >= end:
                return


def _on_processes(tasks: Iterator[Task], jobs: int) -> Generator[SeedResult, None, None]:
    """As `map`, but never more than a few ahead of who takes the results: seeds may go on for ever."""
    with _not_now(_ENDING):
        pool = multiprocessing.get_context("fork").Pool(jobs, _leave_interrupts_to_the_parent)
    with pool:
        under_way = deque(pool.apply_async(run_task, (task,)) for task in islice(tasks, 4 * jobs))
        while under_way:
            yield under_way.popleft().get()
            under_way.extend(pool.apply_async(run_task, (task,)) for task in islice(tasks, 1))


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


def first_caught(ablation: Ablation, *, seeds_max: int = 200, jobs: int = 1) -> SeedResult | None:
    """The first seed that notices the loss of a safeguard, by one of the invariants it is there for. None: none of
    them does."""
    results = run_seeds(ablation.kind, range(1, seeds_max + 1), jobs=jobs, without=ablation.name)
    with closing(results):
        for result in results:
            if result.violation is not None and result.violation.invariant in ablation.invariants:
                return result
    return None
