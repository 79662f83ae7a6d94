"""Actors in separate processes, seen from the parent process. Actors with the real Pulsar client run `pulsar_actor.py`,
actors with geoemu's own client run `native_actor.py`."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import emulator
from emulator.errors import Refused
from emulator.net.credentials import NO_CREDENTIALS
from emulator.run.directory import RunDirectory
from emulator.run.history import seal_history
from emulator.scenarios.actors.client_security import NO_SECURITY, ClientSecurity
from emulator.scenarios.actors.specs import (
    ActorFailure,
    ActorSpec,
    ConsumerSpec,
    Counts,
    HostSpec,
    HostVerb,
    ProducerSpec,
    TaskSpec,
)

LEAVE_SECONDS = 3.0
"""Time that an actor may take to leave before it is killed."""
LINE_BYTES_MAX = 1_048_576
_KINDS: dict[type[ActorSpec], str] = {
    ProducerSpec: "producer",
    ConsumerSpec: "consumer",
    HostSpec: "host",
    TaskSpec: "task",
}


class ActorProcess:
    """One actor: its process, its latest counts, and the commands that have no response yet."""

    def __init__(self, part: ActorSpec, run_dir: Path) -> None:
        self._part = part
        self._run_dir = run_dir
        self._counts = Counts(region=part.region)
        self._process: Process | None = None
        self._read_task: asyncio.Task[None] | None = None
        self._pending_commands: dict[int, asyncio.Future[None]] = {}
        self._commands_sent = 0
        self._leaving = False
        self._problem: str | None = None

    @property
    def part(self) -> ActorSpec:
        return self._part

    @property
    def counts(self) -> Counts:
        return self._counts

    @property
    def problem(self) -> str | None:
        return self._problem

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def log(self) -> Path:
        """The file with the output of the client and the program, for errors."""
        return self._run_dir / "actors" / f"{self._part.name}.log"

    async def begin(self, service_url: str) -> None:
        await self._launch()
        await self._command(
            "begin",
            service_url=service_url,
            kind=_KINDS[type(self._part)],
            part=dataclasses.asdict(self._part),
            run_dir=str(self._run_dir.absolute()),
            security=self._security().to_json(),
        )

    def _security(self) -> ClientSecurity:
        """Return the files for TLS and of credentials with which clients connect to the regions of the run."""
        try:
            region = RunDirectory(self._run_dir).read().regions[self._part.region]
        except Refused:  # regions of no run have none
            return NO_SECURITY
        return ClientSecurity(region.tls, region.credentials or NO_CREDENTIALS)

    async def move(self, region: str, service_url: str) -> None:
        await self._command("move", region=region, service_url=service_url)

    async def finish(self) -> None:
        await self._command("finish")

    async def leave(self) -> None:
        self._leaving = True
        if self._process is None:
            return
        assert self._read_task is not None
        self._send(do="leave", id=0)
        await asyncio.wait({self._read_task}, timeout=LEAVE_SECONDS)
        if self._process.returncode is None:
            self._process.kill()
        await self._read_task

    @property
    def _module(self) -> str:
        """The module that the process runs. Priorities and transaction keys require geoemu's own client."""
        waits = isinstance(self._part, ProducerSpec) and self._part.access == "wait"
        is_native = waits or isinstance(self._part, HostSpec | TaskSpec)
        return f"emulator.scenarios.actors.{'native' if is_native else 'pulsar'}_actor"

    @property
    def _is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def _launch(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        source_root = str(Path(emulator.__file__).parents[1])
        search_path = os.pathsep.join(filter(None, [source_root, os.environ.get("PYTHONPATH")]))
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self._module,
                self._part.name,
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": search_path},
                limit=LINE_BYTES_MAX,
                # Ctrl-C on the terminal must reach the parent process only, which sends `leave` to the actors.
                start_new_session=True,
            )
        self._leaving = False
        self._read_task = asyncio.create_task(self._read(self._process))

    async def _command(self, do: str, **fields: Any) -> None:
        if self._problem is not None:
            raise ActorFailure(self._problem)
        self._commands_sent += 1
        number = self._commands_sent
        response = self._pending_commands[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(id=number, do=do, **fields)
            await response
        finally:
            del self._pending_commands[number]

    def _send(self, **line: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(json.dumps(line).encode() + b"\n")

    async def _read(self, process: Process) -> None:
        """Read the process's responses and counts until it ends; then seal its history and fail pending commands."""
        assert process.stdout is not None
        async for line in process.stdout:
            self._handle_line(json.loads(line))
        code = await process.wait()
        self._seal(code)
        if not self._leaving:
            self._problem = f"actor {self._part.name} ended unexpectedly, exit code {code}; see {self.log}"
        for response in self._pending_commands.values():
            if not response.done():
                response.set_exception(ActorFailure(self._problem or f"actor {self._part.name} has left"))

    def _seal(self, code: int) -> None:
        """Close the history of the ended process. No effect if the actor closed it itself."""
        history = self._run_dir / "history" / f"{self._part.name}.jsonl"
        seal_history(history, f"the actor ended with exit code {code}")

    def _handle_line(self, line: dict[str, Any]) -> None:
        match line:
            case {"counts": counts}:
                self._counts = Counts(**counts)
            case {"done": number} if command := self._pending_command(number):
                command.set_result(None)
            case {"refused": number, "why": why} if command := self._pending_command(number):
                command.set_exception(ActorFailure(f"{self._part.name}: {why}"))

    def _pending_command(self, number: int) -> asyncio.Future[None] | None:
        response = self._pending_commands.get(number)
        return None if response is None or response.done() else response


def actor_process(part: ActorSpec, run_dir: Path) -> ActorProcess:
    """Create the actor of a part, with its history and log in `run_dir`."""
    if isinstance(part, HostSpec):
        return HostProcess(part, run_dir)
    return RestartableProcess(part, run_dir) if isinstance(part, TaskSpec) else ActorProcess(part, run_dir)


class RestartableProcess(ActorProcess):
    """A host or task, which the scenario can kill, stop, pause and start: each start is a new process."""

    def __init__(self, part: HostSpec | TaskSpec, run_dir: Path) -> None:
        super().__init__(part, run_dir)
        self._service_url = ""
        self._former_counts = Counts(region=part.region)
        self._paused = False

    @property
    def counts(self) -> Counts:
        counts = self._former_counts.and_then(super().counts)
        return counts if self._is_running and not self._paused else counts.at_rest()

    async def begin(self, service_url: str) -> None:
        self._service_url = service_url
        await super().begin(service_url)

    async def finish(self) -> None:
        if self._is_running:
            await super().finish()

    async def leave(self) -> None:
        self._resume()
        await super().leave()

    async def change(self, verb: HostVerb) -> None:
        if verb == "start":
            if not self._is_running:
                await self._start_again()
            return
        if not self._is_running:
            raise ActorFailure(f"{self._part.name} is not running: cannot {verb} it")
        if verb == "pause":
            self._paused = True
            self._signal(signal.SIGSTOP)
        elif verb == "resume":
            self._resume()
        else:
            await self._end(orderly=verb == "stop")

    async def _start_again(self) -> None:
        await self.begin(self._service_url)

    async def _end(self, *, orderly: bool) -> None:
        self._leaving = True
        if orderly:
            await self.leave()
        else:
            self._signal(signal.SIGKILL)
        assert self._read_task is not None
        await asyncio.wait({self._read_task})
        self._paused = False
        self._former_counts = self._former_counts.and_then(super().counts).ended()
        self._counts = Counts(region=self._part.region)

    def _resume(self) -> None:
        self._paused = False
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._is_running:
            self._process.send_signal(number)


class HostProcess(RestartableProcess):
    """A host that owns topics. After each later start it joins the wait queues again."""

    async def join_queues(self) -> None:
        await self._command("join_queues")

    async def _start_again(self) -> None:
        await super()._start_again()
        await self.join_queues()
