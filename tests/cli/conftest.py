"""Fixtures of the command-line tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtimes.fixtures import end_all, write_topology


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder with a topology; no region outlives the test."""
    write_topology(tmp_path)
    yield tmp_path
    for run in (tmp_path / ".geoemu").glob("runs/*"):
        end_all(run)
