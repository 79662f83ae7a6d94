"""What a play needs besides its runtime: time, a history of its own, and somebody who hires the actors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from emulator.net.http import NoAnswer, call
from emulator.net.network import SocketNetwork
from emulator.run.history import HistoryWriter, Outcome
from emulator.runtimes.contract import RegionStatus, Runtime
from emulator.scenarios.topics import ReadTopics, read_topics_over_http
from emulator.scenarios.workload import (
    Actor,
    Hire,
    Part,
    ProgramPart,
)


class Clock(Protocol):
    """Time as the play knows it."""

    def now(self) -> float:
        """Seconds, from any start, never backwards."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class LoopClock:
    """The running event loop's time, virtual if the loop is."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Facts(Protocol):
    """The history of the story itself."""

    def write(self, op: str, outcome: Outcome, **fields: Any) -> None: ...

    def close(self) -> None: ...


CallRegion = Callable[[RegionStatus, str, str, Any], Awaitable[tuple[int, bytes]]]
"""(region, method, path, body as JSON) -> status and body of the admin port's answer. OSError when there is none."""


async def call_over_http(region: RegionStatus, method: str, path: str, body: Any) -> tuple[int, bytes]:
    """On real sockets."""
    address = urlsplit(region.admin_url)
    try:
        answer = await call(SocketNetwork(), address.hostname or "", address.port or 0, method, path, body)
    except NoAnswer as silence:
        raise OSError(str(silence)) from None
    return answer.status, answer.body


@dataclass(frozen=True, slots=True)
class Stage:
    """What a play needs besides its runtime."""

    hire: Hire
    read_topics: ReadTopics = read_topics_over_http
    call_region: CallRegion = call_over_http
    clock: Clock = field(default_factory=LoopClock)
    open_history: Callable[[Path], Facts] = lambda run_dir: HistoryWriter(
        run_dir / "history" / "scenario.jsonl", "scenario", program="geoemu run"
    )
    """Where the story's own facts go, given the run directory."""


def real_stage(runtime: Runtime) -> Stage:
    """Real clients and programs, each in a process of its own."""
    from emulator.scenarios.actor_process import hire_processes
    from emulator.scenarios.program_process import ProgramProcess

    hire_actor = hire_processes(runtime.run_dir)

    async def ask_regions() -> tuple[RegionStatus, ...]:
        return (await runtime.status()).regions

    def hire(part: Part) -> Actor:
        if isinstance(part, ProgramPart):
            return ProgramProcess(part, runtime.run_dir, ask_regions)
        return hire_actor(part)

    return Stage(hire=hire)
