"""The Kafka store keeps the contract, against a real Kafka."""

from __future__ import annotations

import pytest

from emulator.runtimes.kafka_server import KafkaServer

from .harness import Harness
from .kafka_place import KafkaHarness
from .log_store_contract import LogStoreContract

pytestmark = pytest.mark.long


class TestKafkaStore(LogStoreContract):
    @pytest.fixture
    def harness(self, kafka_server: KafkaServer) -> Harness:
        return KafkaHarness(kafka_server)
