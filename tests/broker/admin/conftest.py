"""A region with its HTTP port, for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.admin.served import Served, served


@pytest.fixture
def us() -> Iterator[Served]:
    with served() as region:
        yield region
