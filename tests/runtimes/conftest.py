"""Runs that never outlive their test, and both ways to make one."""

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
    """Make a run in a folder without starting it."""
    return {"process": ProcessRuntime.create, "compose": render}[request.param]
