"""One run shared by all tests that do not change its regions; each test uses its own topic and actor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .regions import LiveRun, regions_up


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRun]:
    with regions_up(tmp_path_factory.mktemp("recorded")) as up:
        yield up
