"""The program that runs one actor with the real Pulsar client: `python -m emulator.scenarios.actors.pulsar_actor NAME`.

Each actor has its own process, so that a client that hangs or crashes affects no other actor. The program reads
commands as JSON lines from standard input and writes responses to standard output:

    in    {"id": 1, "do": "begin", "service_url": "pulsar://…", "kind": "producer", "part": {…}, "run_dir": …}
          {"id": 2, "do": "move", "region": "us-west", "service_url": "pulsar://…"}
          {"id": 3, "do": "finish"}      {"id": 4, "do": "leave"}
    out   {"done": 1}      {"refused": 2, "why": "…"}      {"counts": {…}}

It exits when standard input ends, because then its parent process has ended. The actor's requests and the responses are
written to `history/<name>.jsonl` before they are processed; the client's own log is `actors/<name>.log`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import pulsar  # type: ignore[import-untyped]

from emulator.run.history import HistoryWriter
from emulator.scenarios.actors.client_security import ClientSecurity
from emulator.scenarios.actors.pulsar_client import PulsarActor
from emulator.scenarios.actors.pulsar_consumer import ConsumerActor
from emulator.scenarios.actors.pulsar_producer import ProducerActor
from emulator.scenarios.actors.specs import ConsumerSpec, ProducerSpec

BEGIN_SECONDS = 60.0
"""Time to wait for the first command."""
REPORT_SECONDS = 0.1


class Leaving(Exception):
    """The command `leave` arrived while another command was running."""


class ParentConnection:
    """The connection to the parent process: receives commands, sends responses and counts."""

    def __init__(self) -> None:
        self._commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.leaving = threading.Event()
        self._output_lock = threading.Lock()
        # Standard output is for responses only; the output of libraries goes to standard error, the log.
        self._output_fd = os.dup(1)
        os.dup2(2, 1)
        threading.Thread(target=self._read, name="commands", daemon=True).start()

    def next_command(self, wait_seconds: float) -> dict[str, Any] | None:
        try:
            return (
                self._commands.get(timeout=wait_seconds) if wait_seconds > 0 else self._commands.get_nowait()
            )
        except queue.Empty:
            return None

    def pause(self, seconds: float) -> None:
        """Wait. Raises Leaving when the command `leave` arrives meanwhile."""
        if self.leaving.wait(seconds):
            raise Leaving

    def send(self, **line: Any) -> None:
        with self._output_lock:
            try:
                os.write(self._output_fd, json.dumps(line, separators=(",", ":")).encode() + b"\n")
            except BrokenPipeError:
                os._exit(1)

    def _read(self) -> NoReturn:
        for line in sys.stdin:
            command = json.loads(line)
            if command["do"] == "leave":
                self.leaving.set()
            self._commands.put(command)
        os._exit(1)


def execute(actor: PulsarActor, command: dict[str, Any]) -> None:
    match command["do"]:
        case "begin":
            actor.begin(command["service_url"])
        case "move":
            actor.move(command["region"], command["service_url"])
        case "finish":
            actor.finish()
        case unknown:
            raise ValueError(f"unknown command {unknown!r}")


def run_commands(actor: PulsarActor, parent: ParentConnection, command: dict[str, Any] | None) -> None:
    """Execute commands and act in turns until the command `leave`."""
    while not parent.leaving.is_set():
        if command is not None:
            try:
                execute(actor, command)
                response = {"done": command["id"]}
            except pulsar.PulsarException as refusal:
                response = {"refused": command["id"], "why": str(refusal)}
            report_counts(actor, parent)
            parent.send(**response)
        actor.act()
        command = parent.next_command(actor.idle_seconds())


def report_counts(actor: PulsarActor, parent: ParentConnection) -> None:
    parent.send(counts=dataclasses.asdict(actor.counts))


def keep_reporting(actor: PulsarActor, parent: ParentConnection) -> NoReturn:
    while True:
        report_counts(actor, parent)
        time.sleep(REPORT_SECONDS)


def main() -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = ParentConnection()
    begin = parent.next_command(BEGIN_SECONDS)
    if begin is None or begin["do"] != "begin":
        os._exit(2)
    run_dir, name = Path(begin["run_dir"]), begin["part"]["name"]
    log = run_dir / "actors" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    history = HistoryWriter(
        run_dir / "history" / f"{name}.jsonl", name, program="geoemu actor", others=["scenario"]
    )
    security = ClientSecurity.from_json(begin.get("security"))
    actor: PulsarActor
    if begin["kind"] == "producer":
        actor = ProducerActor(ProducerSpec(**begin["part"]), history, log, parent.pause, security)
    else:
        actor = ConsumerActor(ConsumerSpec(**begin["part"]), history, log, parent.pause, security)
    threading.Thread(target=keep_reporting, args=(actor, parent), name="counts", daemon=True).start()
    with contextlib.suppress(Leaving):
        run_commands(actor, parent, begin)
    actor.close()
    history.close()
    report_counts(actor, parent)
    # The client's threads may still run, and would call into an interpreter that is shutting down.
    os._exit(0)


if __name__ == "__main__":
    main()
