"""Fixture of the dispatch tests: a dispatcher with default limits."""

from __future__ import annotations

import pytest

from emulator.core.dispatch.dispatcher import Dispatcher
from tests.core.dispatch.playbook import dispatcher


@pytest.fixture
def machine() -> Dispatcher:
    return dispatcher()
