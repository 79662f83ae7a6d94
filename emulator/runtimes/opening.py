"""From a name or a folder to a runtime. Each one is imported only where it is used."""

from __future__ import annotations

from pathlib import Path

from emulator.config.topology import Topology
from emulator.errors import Refused
from emulator.run.directory import RunDirectory, find_run
from emulator.runtimes.contract import Runtime

RUNTIMES = ("process", "compose")
"""Where regions can run."""


def create_run(
    runtime: str,
    topology: Topology,
    run_dir: Path | None,
    *,
    detached: bool = False,
    log_format: str = "text",
    insecure: bool = False,
) -> Runtime:
    """A new run, nothing started yet. `run_dir` None: a new one in the current folder. Refused when it cannot be.
    `insecure`: regions may listen where other machines reach them."""
    match runtime:
        case "process":
            from emulator.runtimes.process import ProcessRuntime

            return ProcessRuntime.create(
                topology, run_dir, detached=detached, log_format=log_format, insecure=insecure
            )
        case "compose":
            from emulator.runtimes.compose import ComposeRuntime

            return ComposeRuntime.create(
                topology, run_dir, detached=detached, log_format=log_format, insecure=insecure
            )
    raise Refused(_not_offered(runtime))


def open_run(run_dir: Path | None) -> Runtime:
    """The run in a directory; None: the latest one of the current folder. Refused when there is none."""
    directory = find_run(run_dir)
    return _attach(directory, directory.read().runtime)


def _attach(directory: RunDirectory, runtime: str) -> Runtime:
    match runtime:
        case "process":
            from emulator.runtimes.process import ProcessRuntime

            return ProcessRuntime(directory)
        case "compose":
            from emulator.runtimes.compose import ComposeRuntime

            return ComposeRuntime(directory)
    raise Refused(_not_offered(runtime))


def _not_offered(runtime: str) -> str:
    return f"this geoemu cannot run regions as {runtime!r}: use --runtime {' or '.join(RUNTIMES)}"
