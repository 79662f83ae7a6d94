"""One run shared by all tests; each test uses its own topic, actor and tap."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.recording.regions import LiveRun, regions_up


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRun]:
    with regions_up(tmp_path_factory.mktemp("tapped")) as up:
        yield up
