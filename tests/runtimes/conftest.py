"""Fixtures of the runtime tests: end all processes of a run after its test, and create runs with both runtimes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator.runtimes.compose.run_files import render
from emulator.runtimes.process import ProcessRuntime

from .fixtures import end_all


@pytest.fixture(autouse=True)
def _nothing_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    end_all(tmp_path / "run")


@pytest.fixture(params=["process", "compose"])
def make(request: pytest.FixtureRequest) -> Callable[..., object]:
    """Return the function that creates a run without starting it, for processes or for Compose."""
    return {"process": ProcessRuntime.create, "compose": render}[request.param]
