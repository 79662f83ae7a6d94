"""A program of somebody's own as an actor: started, moved, killed and watched, and counted by what it writes down."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path

from emulator.recording.surroundings import Addressed, surroundings
from emulator.scenarios.program_history import ProgramHistory
from emulator.scenarios.tapped_program import TappedProgram
from emulator.scenarios.workload import ActorFailure, Counts, Part, ProgramPart, ProgramVerb

SEAL_SECONDS = 2.0
"""So long what a program started may take to die of a kill -9 and let go of the history. What left its group lives."""
LOOK_SECONDS = 0.01
RESTART_SECONDS = 0.2
"""After so long a program that ended by itself is started again, if it is to be."""
OWN_PYTHON = "python"
ENDED_WHEN_TOLD = (0, -signal.SIGTERM, 128 + signal.SIGTERM)
"""Exit codes of a program that was told to end and did."""

AskRegions = Callable[[], Awaitable[Iterable[Addressed]]]
"""Where the regions of the run are."""


class ProgramProcess:
    """One program: its process group, and the history that it writes."""

    def __init__(self, part: ProgramPart, run_dir: Path, ask_regions: AskRegions) -> None:
        self._part = part
        self._ask_regions = ask_regions
        self._run_dir = run_dir
        self._region = part.region
        self._process: Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._history = ProgramHistory(run_dir, part.name)
        self._wire: TappedProgram | None = TappedProgram(run_dir, part.name) if part.tapped else None
        self._ending = False
        """Somebody ends it now, or has ended it: its end is no news."""
        self._exit_code: int | None = None
        self._problem: str | None = None

    @property
    def part(self) -> Part:
        return self._part

    @property
    def counts(self) -> Counts:
        history = self._history
        history.read_on()
        return Counts(
            region=self._region,
            connected=self._lives,
            asked=history.asked,
            ok=history.published,
            unknown=history.answered - history.published,
            received=history.received,
            repeated=history.deliveries - history.received,
        )

    @property
    def problem(self) -> str | None:
        return self._problem

    @property
    def exit_code(self) -> int | None:
        return None if self._lives else self._exit_code

    @property
    def has_history(self) -> bool:
        return self._history.is_there

    @property
    def log(self) -> Path:
        """What the program printed, in all its lives."""
        return self._run_dir / "actors" / f"{self._part.name}.log"

    def received_in(self, region: str) -> int:
        self._history.read_on()
        return self._history.received_in(region)

    def published_in(self, region: str) -> int:
        self._history.read_on()
        return self._history.published_in(region)

    def readings(self) -> list[tuple[str, str, str]]:
        self._history.read_on()
        return self._history.readings()

    # --- what an actor is told ----------------------------------------------------------------------------

    async def begin(self, service_url: str) -> None:
        await self._launch()

    async def move(self, region: str, service_url: str) -> None:
        if self._lives:
            await self._end(orderly=True)
        self._region = region
        await self._launch()

    async def finish(self) -> None:
        if self._problem is not None:
            raise ActorFailure(self._problem)
        if self._lives:
            await self._end(orderly=True)
        if self._exit_code not in ENDED_WHEN_TOLD:
            raise ActorFailure(f"{self._part.name} ended with exit code {self._exit_code}; see {self.log}")

    async def leave(self) -> None:
        if self._lives:
            await self._end(orderly=True)
        if self._wire is not None:
            await self._wire.close()

    async def change(self, verb: ProgramVerb) -> None:
        match verb:
            case "start":
                if not self._lives:
                    await self._launch()
            case "restart":
                await self._end(orderly=True)
                await self._launch()
            case "kill" | "stop":
                await self._end(orderly=verb == "stop")
            case "pause" | "resume":
                self._must_live(verb)
                self._signal(signal.SIGSTOP if verb == "pause" else signal.SIGCONT)

    # --- its process --------------------------------------------------------------------------------------

    @property
    def _lives(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def _must_live(self, verb: str) -> None:
        if not self._lives:
            raise ActorFailure(f"{self._part.name} does not run: it cannot {verb}")

    async def _launch(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = list(self._part.command)
        if command[0] == OWN_PYTHON:
            command[0] = sys.executable
        regions = await self._ask_regions()
        if self._wire is not None:
            regions = await self._wire.in_front_of(regions)
        told = surroundings(self._run_dir, self._part.name, self._region, regions)
        with self.log.open("ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "PYTHONUNBUFFERED": "1", **told, **dict(self._part.environment)},
                    start_new_session=True,  # what it starts ends with it
                )
            except OSError as problem:
                raise ActorFailure(f"{self._part.name} cannot be started: {problem}") from problem
        self._ending, self._problem, self._exit_code = False, None, None
        self._watching = asyncio.create_task(self._watch(self._process))

    async def _end(self, *, orderly: bool) -> None:
        """SIGTERM and, if that does not help in time, kill -9; or that at once."""
        self._ending = True
        process, watching = self._process, self._watching
        if process is None or watching is None:
            return
        if orderly:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a paused one finds the SIGTERM when it thaws
            await asyncio.wait({watching}, timeout=self._part.stop_seconds)
        self._signal(signal.SIGKILL)
        await watching

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def _watch(self, process: Process) -> None:
        """Lives as long as the process."""
        code = await process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it started and left
        await self._seal(f"the program ended with exit code {code}")
        self._exit_code = code
        self._history.forget_pending()
        if self._ending or code == 0:
            return
        if self._part.restarts:
            asyncio.get_running_loop().call_later(RESTART_SECONDS, self._restart)
        else:
            self._problem = f"{self._part.name} ended by itself with exit code {code}; see {self.log}"

    async def _seal(self, why: str) -> None:
        deadline = asyncio.get_running_loop().time() + SEAL_SECONDS
        while not self._history.seal(why) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(LOOK_SECONDS)

    def _restart(self) -> None:
        if not (self._ending or self._lives):
            self._restarting = asyncio.ensure_future(self._launch())
