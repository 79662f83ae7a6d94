"""Start the processes of a run's regions, send them signals and wait for them.

regions/<name>/region.json   the region's configuration
regions/<name>/output.log    the output of the region, over all its starts
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import emulator
from emulator.config.link_shape import LinkShape
from emulator.config.region import PeerConfig, RegionConfig
from emulator.errors import RuntimeFailure
from emulator.model.values import CLIENTS
from emulator.run.directory import RunDirectory, replace_file
from emulator.run.processes import ProcessIdentity, ProcessState, identify, send_signal, state_of
from emulator.run.record import RunRecord
from emulator.runtimes.fork_server import ForkServer, open_fork_server
from emulator.runtimes.regions import forced_kill_failure
from emulator.runtimes.run_secrets import without_secrets

BROKER: tuple[str, ...] = (sys.executable, "-m", "emulator.broker")
"""The program of a region; its argument is the path of its region.json."""
LAST_LINES = 10
"""Number of the last lines of an ended region's output in an error message."""
SIGNAL_POLL_SECONDS = 0.005
STOP_SECONDS = 10.0
"""Time that a region may take to end after SIGTERM; then it is killed with SIGKILL."""


class RegionProcesses:
    """The processes of a run's regions; `run.json` records their ids."""

    def __init__(self, directory: RunDirectory, program: Sequence[str]) -> None:
        self._directory = directory
        self._program = program
        self._children: list[subprocess.Popen[bytes]] = []
        """Processes that this object started. Ended ones stay zombies until they are polled."""

    def open_fork_server(self, regions: int) -> AbstractAsyncContextManager[ForkServer | None]:
        """Start a server for `spawn` that imports the broker once for all of them; None: it would save nothing."""
        forked = regions if self._program == BROKER else 0
        return open_fork_server(self._directory.path, forked, self._environment())

    def spawn(self, record: RunRecord, name: str, server: ForkServer | None = None) -> None:
        """Start a region's process with the recorded links, clock and disk, and record it. Called within `edit`."""
        region, folder = record.regions[name], self._directory.region_dir(name)
        write_current_state(folder, record, name)
        process_id = None if server is None else server.fork(folder / "region.json", output_log(folder))
        region.process = identify(process_id or self._start_program(folder))
        region.begin()

    def _environment(self) -> dict[str, str]:
        return without_secrets(environment(), self._directory.path)

    def _start_program(self, folder: Path) -> int:
        """Start the program of a region and return its process id."""
        with output_log(folder).open("ab") as output:
            child = subprocess.Popen(
                [*self._program, str(folder / "region.json")],
                cwd=folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must reach this process only, which stops regions
            )
        self._children.append(child)
        return child.pid

    def state(self, record: RunRecord, name: str) -> ProcessState:
        for child in self._children:
            child.poll()
        process = record.regions[name].process
        return state_of(process) if process else "gone"

    def states(self, record: RunRecord) -> dict[str, ProcessState]:
        return {name: self.state(record, name) for name in record.regions}

    def signal(self, name: str, number: signal.Signals) -> bool:
        process = self._directory.read().regions[name].process
        return process is not None and send_signal(process, number)

    async def wait_for_state(self, name: str, *wanted: ProcessState) -> None:
        """Wait until the region is in one of the `wanted` states. Raises RuntimeFailure after STOP_SECONDS."""
        record = self._directory.read()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while self.state(record, name) not in wanted:
                    await asyncio.sleep(SIGNAL_POLL_SECONDS)
        except TimeoutError:
            process = record.regions[name].process
            raise RuntimeFailure(
                f"{name} (process {process.pid if process else '-'}) is not {' or '.join(wanted)} after "
                f"{STOP_SECONDS:g} s: look at it with `ps`"
            ) from None

    async def end(self, name: str) -> bool:
        """Stop a region with SIGTERM, and after STOP_SECONDS kill it with SIGKILL; return True in the second case."""
        self.signal(name, signal.SIGTERM)
        self.signal(name, signal.SIGCONT)  # a paused region handles SIGTERM when it resumes
        try:
            await self.wait_for_state(name, "gone")
        except RuntimeFailure:
            self.signal(name, signal.SIGKILL)
            await self.wait_for_state(name, "gone")
            return True
        return False

    def describe_not_ready(self, name: str, state: ProcessState) -> str:
        """Return why a region whose process is in `state`, paused or gone, did not become ready."""
        record = self._directory.read()
        if state == "paused":
            return f"{name} was paused before it was ready: `geoemu resume {name}`"
        if record.regions[name].stopped:
            return f"{name} was stopped before it was ready"
        process = record.regions[name].process
        codes = [child.returncode for child in self._children if process and child.pid == process.pid]
        how = f" with exit code {codes[0]}" if codes and codes[0] is not None else ""
        log = output_log(self._directory.region_dir(name))
        return f"{name} ended{how} before it was ready; the last lines of {log}:\n{last_lines(log)}"

    def stopped_gracefully(self, process: ProcessIdentity, name: str) -> bool:
        """Return whether the region reported a graceful stop of this process. The request need not be recorded: it may
        have been `pulsar-admin brokers shutdown` or a user's SIGTERM."""
        try:
            ready = json.loads((self._directory.region_dir(name) / "ready.json").read_text())
        except (OSError, ValueError):
            return False
        return ready.get("pid") == process.pid and ready.get("stopped") is True

    async def stop(self, names: Sequence[str]) -> None:
        """Stop regions gracefully. Raises RuntimeFailure if one had to be killed."""
        with self._directory.edit() as record:
            alive = [name for name in names if self.state(record, name) != "gone"]
            for name in alive:
                record.regions[name].stopped = True
        killed = await asyncio.gather(*map(self.end, alive))
        slow = [name for name, was_killed in zip(alive, killed, strict=True) if was_killed]
        if slow:
            with self._directory.edit() as record:
                for name in slow:
                    record.regions[name].stopped = False
            raise forced_kill_failure(slow, STOP_SECONDS)


def output_log(region_dir: Path) -> Path:
    return region_dir / "output.log"


def last_lines(log: Path) -> str:
    """Return the last lines of a region's output, indented, for an error message."""
    try:
        lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
    except FileNotFoundError:
        lines = []
    return "\n".join(f"    {line}" for line in lines or ["(nothing)"])


def write_current_state(region_dir: Path, record: RunRecord, name: str) -> None:
    """Write the current links, clock and disk of a region to its region.json."""
    path = region_dir / "region.json"
    config = _with_links(RegionConfig.load(path), record.links)
    region = record.regions[name]
    config = dataclasses.replace(
        config,
        clock_ahead_ms=region.clock_ahead_ms,
        clock_drift_ppm=region.clock_drift_ppm,
        clock_set_at_ms=region.clock_set_at_ms,
        disk=region.disk,
    )
    replace_file(path, config.to_json())


def _with_links(config: RegionConfig, links: Mapping[tuple[str, str], LinkShape]) -> RegionConfig:

    def peer_now(peer: PeerConfig) -> PeerConfig:
        return dataclasses.replace(
            peer,
            outbound=links.get((config.region, peer.region), peer.outbound),
            inbound=links.get((peer.region, config.region), peer.inbound),
        )

    return dataclasses.replace(
        config,
        peers=tuple(peer_now(peer) for peer in config.peers),
        to_clients=links.get((config.region, CLIENTS), config.to_clients),
        from_clients=links.get((CLIENTS, config.region), config.from_clients),
    )


def new_run_token() -> str:
    """Return a random token for `with_topic_prefix`; all regions of a run have the same one. It is not derived from
    the run directory, because a later run may use the same directory."""
    return secrets.token_hex(4)


def new_run_secret() -> str:
    """Return a new secret with which the regions of a run authenticate each other. It is stored only in their
    `region.json`."""
    return secrets.token_hex(32)


def with_topic_prefix(config: RegionConfig, run_token: str) -> RegionConfig:
    """Return the configuration with a topic prefix that separates the run from other runs on the same Kafka; unchanged
    if the log is not in Kafka or has a topic prefix."""
    if config.log.backend != "kafka" or "topic_prefix" in config.log.options:
        return config
    options = {**config.log.options, "topic_prefix": f"geoemu-{run_token}"}
    return dataclasses.replace(config, log=dataclasses.replace(config.log, options=options))


def environment() -> dict[str, str]:
    """Return the environment of geoemu's child processes: that of this process, with the checkout in PYTHONPATH unless
    geoemu is installed."""
    root = Path(emulator.__file__).parents[1]
    if root.name in ("site-packages", "dist-packages"):
        return dict(os.environ)
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}
