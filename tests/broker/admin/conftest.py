"""Fixture of the tests of the admin API: each test gets a new region with an HTTP port."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.admin.served import Served, served


@pytest.fixture
def us() -> Iterator[Served]:
    with served() as region:
        yield region
