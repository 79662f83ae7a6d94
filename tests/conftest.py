"""What costs too much to be started more than once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from emulator.runtimes.kafka_server import KafkaServer

# A deadline would fail correct code on a busy machine.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def _audible() -> None:
    """Simulated worlds silence the brokers in them, for as long as the process lives."""
    for name in ("emulator", "asyncio"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A Kafka for all tests that leave it alone, with the settings that every Kafka of ours has."""
    from tests.storage.kafka_place import running_kafka

    with running_kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server
