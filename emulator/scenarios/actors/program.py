"""A user's program as an actor: starts, moves, kills and watches it, and counts the operations in its history."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from emulator.net.credentials import Credentials
from emulator.net.tls import Certificates
from emulator.recording.context import RegionAddress, environment_variables
from emulator.recording.tap.tap import Tap
from emulator.run.history import HistoryWriter
from emulator.scenarios.actors.program_history import ProgramHistory
from emulator.scenarios.actors.specs import ActorFailure, ActorSpec, Counts, ProgramSpec, ProgramVerb

GROUP_END_SECONDS = 2.0
"""Time that the processes that a program started may take to end after SIGKILL."""
POLL_SECONDS = 0.01
RESTART_SECONDS = 0.2
"""Time after which a program with `restarts` that failed by itself is restarted."""
OWN_PYTHON = "python"
EXIT_CODES_ON_SIGTERM = (0, -signal.SIGTERM, 128 + signal.SIGTERM)
"""Exit codes of a program that ended on SIGTERM."""

Ending = Literal["stop", "kill"]
_EXPECTED_EXIT_CODES: dict[Ending | None, tuple[int, ...]] = {
    None: (0,),
    "stop": (*EXIT_CODES_ON_SIGTERM, -signal.SIGKILL),
    "kill": (0, -signal.SIGKILL),
}
"""Expected exit codes, by how the scenario ended the program (None: it ended by itself). Any other exit code is a
failure of the program."""

GetRegions = Callable[[], Awaitable[Iterable[RegionAddress]]]
"""Returns the addresses of the run's regions."""


class ProcessGroup:
    """A started program and its child processes, in a separate process group."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def returncode(self) -> int | None:
        """Exit code of the program; negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def has_members(self) -> bool:
        """Whether a process of the group exists: the program or one of its children."""
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    async def wait(self) -> int:
        """Wait until the program has ended, and return its exit code."""
        return await self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group. No effect if the group has ended."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


StartProgram = Callable[[Sequence[str], Mapping[str, str], Path], Awaitable[ProcessGroup]]
"""Starts a program: (command, additional environment variables, log file). Raises OSError if it cannot be started."""


async def start_program(command: Sequence[str], variables: Mapping[str, str], log: Path) -> ProcessGroup:
    """Start a program without input; its output is appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **variables},
            start_new_session=True,
        )
    return ProcessGroup(process)


class ProgramProcess:
    """A user's program as an actor: its process group, and the history that it or its tap writes."""

    def __init__(
        self, part: ProgramSpec, run_dir: Path, get_regions: GetRegions, start: StartProgram = start_program
    ) -> None:
        self._part = part
        self._get_regions = get_regions
        self._start = start
        self._run_dir = run_dir
        self._region = part.region
        self._process: ProcessGroup | None = None
        self._watching: asyncio.Task[None] | None = None
        self._history = ProgramHistory(run_dir, part.name, is_tapped=part.tapped)
        self._tapped_program: TappedProgram | None = (
            TappedProgram(run_dir, part.name) if part.tapped else None
        )
        self._end_requested: Ending | None = None
        """How the scenario ends or ended the program. None: it runs, or has ended by itself."""
        self._may_restart = False
        self._exit_code: int | None = None
        self._problem: str | None = None

    @property
    def part(self) -> ActorSpec:
        return self._part

    @property
    def counts(self) -> Counts:
        history = self._history
        history.read_new_lines()
        return Counts(
            region=self._region,
            connected=self._is_running,
            asked=history.requested,
            ok=history.published,
            unknown=history.completed - history.published,
            received=history.received,
            repeated=history.deliveries - history.received,
        )

    @property
    def problem(self) -> str | None:
        return self._problem

    @property
    def exit_code(self) -> int | None:
        """Exit code of the latest process; negative for a signal; None while it runs, or before it is started."""
        return None if self._is_running else self._exit_code

    @property
    def has_history(self) -> bool:
        """Whether a history of the program exists."""
        return self._history.exists

    @property
    def log(self) -> Path:
        """The file with the output of all the program's processes."""
        return self._run_dir / "actors" / f"{self._part.name}.log"

    def received_in(self, region: str) -> int:
        """Return the number of different messages that the program received in one region."""
        self._history.read_new_lines()
        return self._history.received_in(region)

    def published_in(self, region: str) -> int:
        """Return the number of publishes for which the program received a receipt from one region."""
        self._history.read_new_lines()
        return self._history.published_in(region)

    def consumed_subscriptions(self) -> list[tuple[str, str, str]]:
        """Return (region, topic, subscription) of each of the program's subscriptions, with the region of its last
        use."""
        self._history.read_new_lines()
        return self._history.consumed_subscriptions()

    # --- commands ----------------------------------------------------------------------------

    async def begin(self, service_url: str) -> None:
        await self._launch()

    async def move(self, region: str, service_url: str) -> None:
        if self._is_running:
            await self._end("stop")
        self._region = region
        await self._launch()

    async def finish(self) -> None:
        if self._problem is not None:
            raise ActorFailure(self._problem)
        if self._is_running:
            await self._end("stop")
        if self._exit_code not in EXIT_CODES_ON_SIGTERM:
            raise ActorFailure(f"{self._part.name} ended with exit code {self._exit_code}; see {self.log}")

    async def leave(self) -> None:
        if self._is_running:
            await self._end("stop")
        self._history.seal("the run ended")
        if self._tapped_program is not None:
            await self._tapped_program.close()

    async def change(self, verb: ProgramVerb) -> None:
        """Apply a verb to the program. Raises ActorFailure if it is impossible in the program's state."""
        match verb:
            case "start":
                if not self._is_running:
                    await self._launch()
            case "restart":
                await self._end("stop")
                await self._launch()
            case "kill" | "stop":
                await self._end(verb)
            case "pause" | "resume":
                self._require_running(verb)
                self._signal(signal.SIGSTOP if verb == "pause" else signal.SIGCONT)

    def accept_exit_code(self) -> None:
        """Clear the problem, because a step waited for the exit code with which the program ended."""
        self._problem = None

    # --- its process --------------------------------------------------------------------------------------

    @property
    def _is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def _require_running(self, verb: str) -> None:
        if not self._is_running:
            raise ActorFailure(f"{self._part.name} is not running: cannot {verb} it")

    async def _launch(self) -> None:
        command = list(self._part.command)
        if command[0] == OWN_PYTHON:
            command[0] = sys.executable
        regions = await self._get_regions()
        if self._tapped_program is not None:
            regions = await self._tapped_program.tapped_regions(regions)
        addresses = environment_variables(self._run_dir, self._part.name, self._region, regions)
        variables = {"PYTHONUNBUFFERED": "1", **addresses, **dict(self._part.environment)}
        try:
            self._process = await self._start(command, variables, self.log)
        except OSError as problem:
            raise ActorFailure(f"{self._part.name} cannot be started: {problem}") from problem
        self._end_requested, self._exit_code = None, None
        self._may_restart = self._part.restarts
        self._watching = asyncio.create_task(self._watch(self._process))

    async def _end(self, how: Ending) -> None:
        """End the program: `stop` sends SIGTERM, and SIGKILL after `stop_within`; `kill` sends SIGKILL."""
        self._may_restart = False
        process, watching = self._process, self._watching
        if process is None or watching is None:
            return
        if self._is_running:
            self._end_requested = how
        if how == "stop":
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a paused program handles SIGTERM when it resumes
            await asyncio.wait({watching}, timeout=self._part.stop_seconds)
        self._signal(signal.SIGKILL)
        await watching

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.signal(number)

    async def _watch(self, process: ProcessGroup) -> None:
        """Wait until the program has ended; then kill its children, seal its history and check its exit code."""
        code = await process.wait()
        process.signal(signal.SIGKILL)  # child processes that still run
        await self._seal(process, f"the program ended with exit code {code}")
        self._exit_code = code
        self._history.forget_pending()
        if code in _EXPECTED_EXIT_CODES[self._end_requested]:
            return
        if self._end_requested is None and self._part.restarts:
            asyncio.get_running_loop().call_later(RESTART_SECONDS, self._restart)
        else:
            self._problem = self._failure(code)

    def _failure(self, code: int) -> str:
        ended = "ended by itself" if self._end_requested != "stop" else "ended on SIGTERM, but"
        return f"{self._part.name} {ended} with exit code {code}; see {self.log}"

    async def _seal(self, process: ProcessGroup, why: str) -> None:
        """Close the history as soon as no process of the group has it open, for at most GROUP_END_SECONDS. A process
        that left the group may keep it open longer."""
        deadline = asyncio.get_running_loop().time() + GROUP_END_SECONDS
        while not self._history.seal(why):
            if not process.has_members or asyncio.get_running_loop().time() >= deadline:
                return
            await asyncio.sleep(POLL_SECONDS)

    def _restart(self) -> None:
        if self._may_restart and not self._is_running:
            self._restarting = asyncio.ensure_future(self._launch())


@dataclass(frozen=True, slots=True)
class _Tapped:
    """A region with the addresses that a tapped program uses."""

    name: str
    service_url: str
    admin_url: str
    tls: Certificates | None
    """For the admin URL; the tap has no TLS."""
    credentials: Credentials | None
    """The tap forwards them to the region."""


class TappedProgram:
    """The tap of one program, open from the program's first start to the end of the run."""

    def __init__(self, run_dir: Path, name: str) -> None:
        self._path = run_dir / "history" / f"{name}.jsonl"
        self._name = name
        self._history: HistoryWriter | None = None
        self._tap: Tap | None = None
        self._regions: tuple[_Tapped, ...] = ()

    async def tapped_regions(self, regions: Iterable[RegionAddress]) -> tuple[_Tapped, ...]:
        """Return the regions with the addresses of the tap, which stay the same. The first call opens the tap."""
        if self._tap is None:
            known = list(regions)
            self._history = HistoryWriter(self._path, self._name, program="geoemu tap", others=["scenario"])
            self._tap = Tap(self._history)
            opened = await self._tap.open(known)
            self._regions = tuple(
                _Tapped(one.name, tapped.service_url, one.admin_url, one.tls, one.credentials)
                for one, tapped in zip(known, opened, strict=True)
            )
        return self._regions

    async def close(self) -> None:
        """Close the tap and its history. A second call has no effect."""
        if self._tap is not None and self._history is not None:
            await self._tap.close()
            self._history.close()
