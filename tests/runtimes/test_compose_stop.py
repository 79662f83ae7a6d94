"""A container that does not stop gracefully, with a fake Docker engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.errors import RuntimeFailure
from emulator.run.directory import RunDirectory
from emulator.runtimes.compose.run_files import render
from emulator.runtimes.compose.runtime import ComposeRuntime
from emulator.runtimes.docker_engine import Container, DockerEngine

from .fixtures import REGIONS, small_topology


class DeafContainers(DockerEngine):
    """An engine whose containers ignore SIGTERM, so `stop` kills them."""

    def __init__(self) -> None:
        self.killed: set[str] = set()
        self.copied: list[Path] = []

    async def containers(self, run_label: str, label: str) -> dict[str, Container]:
        return {
            name: Container(name, name, "gone", True, 137, None)
            if name in self.killed
            else Container(name, name, "running", True, 0, 1)
            for name in REGIONS
        }

    async def stop(self, container: Container, seconds: float) -> None:
        self.killed.add(container.name)

    async def copy_out(self, container: Container, folder: str, to: Path) -> None:
        self.copied.append(to)


async def test_the_store_of_a_cluster_is_copied_although_its_region_had_to_be_killed(tmp_path: Path) -> None:
    render(small_topology(tmp_path), tmp_path / "run")
    directory, engine = RunDirectory(tmp_path / "run"), DeafContainers()
    runtime = ComposeRuntime(directory, engine)
    with pytest.raises(RuntimeFailure, match="eu-central did not end within 10 s and had to be killed"):
        await runtime.stop("eu-central")
    assert engine.copied == [directory.configuration_dir("europe")]
