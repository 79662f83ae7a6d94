"""What verbs share: the run they mean, and a change of it that its history hears of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.runtimes.contract import Runtime

if TYPE_CHECKING:
    from emulator.cli.curl import Request

Change = Callable[[Runtime], Awaitable[None]]


def open_run_of(run_dir: Path | None) -> Runtime:
    """The run that a verb means. Refused if there is none."""
    from emulator.runtimes.opening import open_run

    return open_run(run_dir)


def act(run_dir: Path | None, verb: str, change: Change, **fact: str) -> None:
    """Do it, and write down as a fact of the run's history that it was done: the verdict takes it into account."""
    from emulator.runtimes.operator import operator_history

    run = open_run_of(run_dir)

    async def perform() -> None:
        from emulator.cli.preconditions import refuse_ended

        refuse_ended(await run.status())
        await change(run)

    asyncio.run(perform())
    with closing(operator_history(run)) as history:
        history.write(verb, "fact", **fact)


def print_curl(run_dir: Path | None, request: Request, regions: Sequence[str] | None = None) -> None:
    """What curl would be told, a line for each region that is meant."""
    from emulator.cli.curl import as_curls

    for line in asyncio.run(as_curls(open_run_of(run_dir), request, regions)):
        print(line)
