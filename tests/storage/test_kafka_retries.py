"""Which errors of Kafka a region waits out."""

from __future__ import annotations

import kafka.errors
import pytest

from emulator.errors import StorageError
from emulator.storage.kafka.cluster import KafkaCluster, check
from emulator.storage.kafka.settings import KafkaSettings

INVALID_REPLICATION_FACTOR = kafka.errors.InvalidReplicationFactorError.errno
FENCED = (
    "Unable to replicate the partition 1 time(s): All brokers are currently fenced, or have all their log"
    " directories cordoned."
)
NOT_REGISTERED = "Replication factor: 1 larger than available brokers: 0."
TOO_FEW = (
    "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 1"
    " broker(s) are registered."
)


class Responses:
    """A request that receives these error messages, then succeeds."""

    def __init__(self, *messages: str) -> None:
        self._messages = list(messages)

    async def __call__(self) -> str:
        if self._messages:
            check(INVALID_REPLICATION_FACTOR, self._messages.pop(0))
        return "created"


@pytest.fixture
def cluster() -> KafkaCluster:
    return KafkaCluster(KafkaSettings.read("us", "127.0.0.1:1", {}))


@pytest.fixture(autouse=True)
def no_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refresh(self: KafkaCluster, topics: object) -> None: ...

    monkeypatch.setattr(KafkaCluster, "refresh_leaders", refresh)


@pytest.mark.within(10)
async def test_a_region_waits_for_a_kafka_that_has_just_started_and_is_still_fenced(
    cluster: KafkaCluster,
) -> None:
    assert await cluster.retry(Responses(FENCED, NOT_REGISTERED), timeout_seconds=10) == "created"


@pytest.mark.within(10)
async def test_a_replication_factor_above_the_number_of_brokers_is_rejected_at_once(
    cluster: KafkaCluster,
) -> None:
    with pytest.raises(StorageError, match="only 1 broker"):
        await cluster.retry(Responses(TOO_FEW), timeout_seconds=10)
