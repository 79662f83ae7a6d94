"""Create or open the runtime of a run. Each runtime is imported only when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.config.topology import Topology
from emulator.errors import Refused
from emulator.run.directory import find_run, refuse_unknown
from emulator.runtimes.contract import Runtime

if TYPE_CHECKING:
    from emulator.run.history import HistoryWriter
    from emulator.runtimes.compose.runtime import ComposeRuntime
    from emulator.runtimes.process import ProcessRuntime

RUNTIMES = ("process", "compose")
"""Names of the runtimes in which regions can run."""


def create_run(
    runtime: str,
    topology: Topology,
    run_dir: Path | None,
    *,
    detached: bool = False,
    log_format: str = "text",
    insecure: bool = False,
) -> Runtime:
    """Create a run without starting it. `run_dir` None: a new directory in the current folder. `insecure`: regions may
    listen on addresses that other machines can reach. Raises Refused if the run cannot be created."""
    return _runtime(runtime).create(
        topology, run_dir, detached=detached, log_format=log_format, insecure=insecure
    )


def open_run(run_dir: Path | None) -> Runtime:
    """Open the run in a directory; None: the latest run of the current folder. Raises Refused if there is none, or if
    its runtime is not available."""
    directory = find_run(run_dir)
    return _runtime(directory.read().runtime)(directory)


def _runtime(name: str) -> type[ProcessRuntime] | type[ComposeRuntime]:
    match name:
        case "process":
            from emulator.runtimes.process import ProcessRuntime

            return ProcessRuntime
        case "compose":
            from emulator.runtimes.compose.runtime import ComposeRuntime

            return ComposeRuntime
    raise Refused(f"this geoemu cannot run regions as {name!r}: use --runtime {' or '.join(RUNTIMES)}")


LOCK_SECONDS = 10.0
"""Time for which a command waits for the lock of the operator's history."""


def operator_history(run: Runtime) -> HistoryWriter:
    """Open the history of the run's operator, which records verbs of any terminal. Close it right after the write,
    because another command may wait for its lock."""
    from emulator.run.history import HistoryWriter

    path = run.run_dir / "history" / "operator.jsonl"
    return HistoryWriter(path, "operator", program="geoemu", wait_seconds=LOCK_SECONDS)


def select_regions(topology: Topology, regions: Sequence[str] | None, cluster: str | None) -> list[str]:
    """Return the regions of `cluster`, or the named regions if it is None, each once. Raises Refused if a name is not
    in the run."""
    if cluster is None:
        for region in regions or ():
            refuse_unknown("region", region, topology.region_names)
        return list(dict.fromkeys(regions or ()))
    refuse_unknown("cluster", cluster, [each.name for each in topology.clusters])
    return [region.name for region in topology.regions if region.cluster == cluster]
