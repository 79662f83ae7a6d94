"""What verbs share: the run they mean, and a change of it that its history hears of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

from emulator.runtimes.contract import Runtime

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
        from emulator.cli.deeds import refuse_ended

        refuse_ended(await run.status())
        await change(run)

    asyncio.run(perform())
    with closing(operator_history(run)) as history:
        history.write(verb, "fact", **fact)
