"""Faults of the links between clients and their region, with a released Pulsar client and regions as processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar  # type: ignore[import-untyped]
import pytest

import geoemu

from .fixtures import end_all, wait_until, write_topology

pytestmark = [pytest.mark.real, pytest.mark.long]

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
TOPIC = "persistent://public/default/orders"
RECOVERY_SECONDS = 60.0
"""Time within which the Python client, whose keep-alive takes up to a minute, works again after a fault."""

FAULTS: dict[str, Callable[[geoemu.Geo], None]] = {
    "cut": lambda geo: geo.cut("clients", "us-east"),
    "hold": lambda geo: geo.hold("clients", "us-east"),
    "latency": lambda geo: geo.latency("clients", "us-east", "200ms", jitter="50ms"),
    "bandwidth": lambda geo: geo.bandwidth("us-east", "clients", "20KB/s", one_way=True),
    "stall": lambda geo: geo.stall("clients", "us-east", "400ms", every="1s"),
    "flap": lambda geo: geo.flap("clients", "us-east", period="2s", up="50%"),
    "profile": lambda geo: geo.profile("clients", "us-east", "lossy-wifi"),
    "reset": lambda geo: geo.reset("clients", "us-east"),
}
"""Faults that end with `heal`. A half-open connection has a test of its own: only its keep-alive ends it."""


@pytest.fixture(scope="module")
def geo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[geoemu.Geo]:
    folder = tmp_path_factory.mktemp("link_faults")
    with geoemu.up(write_topology(folder), run_dir=folder / "run") as geo:
        yield geo
    end_all(folder / "run")


class Workload:
    """One producer and one consumer, which the fault meets in the middle of their work."""

    def __init__(self, geo: geoemu.Geo, name: str) -> None:
        topic = f"{TOPIC}-{name}"
        self._client = geo.recorded(pulsar.Client(geo.url("us-east"), logger=QUIET), actor=f"client-{name}")
        self._consumer = self._client.subscribe(
            topic, "billing", initial_position=pulsar.InitialPosition.Earliest
        )
        self._producer = self._client.create_producer(topic, send_timeout_millis=0)
        self.acknowledged: list[int] = []
        self._lock = threading.Lock()

    def publish(self, numbers: range) -> None:
        for number in numbers:
            self._producer.send_async(
                b"%d" % number, lambda result, _, number=number: self._done(result, number)
            )

    def _done(self, result: pulsar.Result, number: int) -> None:
        assert result == pulsar.Result.Ok
        with self._lock:
            self.acknowledged.append(number)

    def receive(self, count: int) -> list[int]:
        """Receive until `count` different messages arrived, and acknowledge each."""
        found: dict[int, None] = {}
        while len(found) < count:
            message = self._consumer.receive(round(RECOVERY_SECONDS * 1000))
            self._consumer.acknowledge(message)
            found[int(message.data())] = None
        return list(found)

    def close(self) -> None:
        self._client.close()


@pytest.mark.parametrize("name", FAULTS)
def test_clients_recover_from_each_fault_of_their_link(geo: geoemu.Geo, name: str) -> None:
    workload = Workload(geo, name)
    workload.publish(range(20))
    FAULTS[name](geo)
    workload.publish(range(20, 40))
    if name in ("cut", "hold"):
        assert not set(range(20, 40)) & set(workload.acknowledged)
    geo.heal("clients", "us-east")
    assert workload.receive(40) == list(range(40)), "in order, each once or again"
    wait_until(
        lambda: len(workload.acknowledged) == 40, "every publish is acknowledged", seconds=RECOVERY_SECONDS
    )
    workload.close()


def test_heal_resets_half_open_connections_and_the_client_connects_again(geo: geoemu.Geo) -> None:
    workload = Workload(geo, "half-open")
    workload.publish(range(20))
    wait_until(
        lambda: len(workload.acknowledged) == 20, "published before the fault", seconds=RECOVERY_SECONDS
    )
    geo.half_open("clients", "us-east")
    workload.publish(range(20, 40))
    other = Workload(geo, "half-open-other")
    other.publish(range(5))
    assert other.receive(5) == list(range(5)), "new connections work"
    assert len(workload.acknowledged) == 20, "the old one is silent"
    geo.heal("clients", "us-east")
    assert workload.receive(40) == list(range(40))
    workload.close()
    other.close()


def test_the_verdict_of_all_faults_is_valid_and_shows_them(geo: geoemu.Geo, tmp_path: Path) -> None:
    geo.drain()
    verdict = geo.verify(engine="embedded")
    assert verdict.is_valid, str(verdict)
