"""The program of an actor with geoemu's own client (a host, a task, or a producer that waits for exclusive access):
`python -m emulator.scenarios.actors.native_actor NAME`.

It has the commands and responses of `pulsar_actor.py` except `move` and `refused`, and the command `join_queues`. The
actor's requests and the responses are written to `history/<name>.jsonl` before they are processed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NoReturn

from emulator.client import Client
from emulator.run.history import HistoryWriter, new_session
from emulator.run.history_events import Outcome
from emulator.scenarios.actors.client_security import ClientSecurity
from emulator.scenarios.actors.exclusive_producer import ExclusiveProducer
from emulator.scenarios.actors.host import NativeHost
from emulator.scenarios.actors.specs import HostSpec, ProducerSpec, TaskSpec
from emulator.scenarios.actors.task import NativeTask

REPORT_SECONDS = 0.1
LEAVE_SECONDS = 2.0
"""Time that the actor may take to finish after the command `leave`."""


class _HistoryRecorder:
    def __init__(self, history: HistoryWriter) -> None:
        self._history = history

    def write(self, op: str, outcome: Outcome, **fields: Any) -> None:
        if op in ("publish", "receive"):  # the content is in the stored log
            fields.pop("detail")
        self._history.write(op, outcome, **fields)

    def new_session(self) -> str:
        return new_session()


async def commands() -> AsyncIterator[dict[str, Any]]:
    reader = asyncio.StreamReader(limit=1_048_576)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


class NativeActorProgram:
    """The process of one actor: executes commands, and reports counts to the parent process."""

    def __init__(self) -> None:
        # Standard output is for responses only; other output goes to standard error.
        self._output_fd = os.dup(1)
        os.dup2(2, 1)
        self._actor: NativeHost | ExclusiveProducer | NativeTask | None = None
        self._history: HistoryWriter | None = None
        self._running_commands: set[asyncio.Task[None]] = set()

    def send(self, **line: Any) -> None:
        try:
            os.write(self._output_fd, json.dumps(line, separators=(",", ":")).encode() + b"\n")
        except BrokenPipeError:
            os._exit(1)

    def report(self) -> None:
        if self._actor is not None:
            self.send(counts=dataclasses.asdict(self._actor.counts))

    async def run(self) -> None:
        """Execute commands until `leave`. Exit at once if the input ends, because then the parent process has ended."""
        reporting = asyncio.create_task(self._keep_reporting())
        async for command in commands():
            if command["do"] == "leave":
                await self._leave()
                reporting.cancel()
                return
            task = asyncio.create_task(self._execute(command))
            self._running_commands.add(task)
            task.add_done_callback(self._running_commands.discard)
        os._exit(1)

    async def _keep_reporting(self) -> NoReturn:
        while True:
            self.report()
            await asyncio.sleep(REPORT_SECONDS)

    async def _execute(self, command: dict[str, Any]) -> None:
        if command["do"] == "begin":
            self._begin(command)
        actor = self._actor
        assert actor is not None, "begin must come first"
        match command["do"]:
            case "begin":
                await actor.begin()
            case "join_queues" if isinstance(actor, NativeHost):
                await actor.join_queues()
            case "finish":
                await actor.finish()
            case unknown:
                raise ValueError(f"unknown command {unknown!r}")
        self.report()
        self.send(done=command["id"])

    def _begin(self, command: dict[str, Any]) -> None:
        name, fields = command["part"]["name"], command["part"]
        path = Path(command["run_dir"]) / "history" / f"{name}.jsonl"
        self._history = HistoryWriter(path, name, program="geoemu actor", others=["scenario"])
        recorder = _HistoryRecorder(self._history)
        security = ClientSecurity.from_json(command.get("security"))
        client = Client(
            command["service_url"],
            transaction_key=fields.get("transaction_key"),
            tls=security.tls,
            credentials=security.credentials,
        )
        if command["kind"] == "host":
            self._actor = NativeHost(HostSpec.from_json(fields), client, recorder)
        elif command["kind"] == "task":
            self._actor = NativeTask(TaskSpec(**fields), client, recorder)
        else:
            self._actor = ExclusiveProducer(ProducerSpec(**fields), client, recorder)

    async def _leave(self) -> None:
        if self._actor is not None and self._history is not None:
            leaving = asyncio.create_task(self._actor.finish())
            await asyncio.wait({leaving}, timeout=LEAVE_SECONDS)
            self._history.close()
            self.report()


def main() -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(NativeActorProgram().run())
    os._exit(0)


if __name__ == "__main__":
    main()
