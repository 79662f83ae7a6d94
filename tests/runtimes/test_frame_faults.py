"""Faults of single commands, receipts and markers on regions as processes, by the Python API and the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pulsar  # type: ignore[import-untyped]
import pytest

import geoemu
from emulator.errors import Refused

from .fixtures import end_all, write_topology

pytestmark = [pytest.mark.real, pytest.mark.long]

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
TOPIC = "persistent://public/default/orders"


@pytest.fixture(scope="module")
def geo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[geoemu.Geo]:
    folder = tmp_path_factory.mktemp("frame_faults")
    with geoemu.up(write_topology(folder), run_dir=folder / "run") as geo:
        yield geo
    end_all(folder / "run")


def geoemu_command(geo: geoemu.Geo, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "emulator.cli", *arguments, "--run-dir", str(geo.run_dir)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_messages_arrive_once_and_in_order_whatever_the_link_loses(geo: geoemu.Geo) -> None:
    client = pulsar.Client(geo.url("us-east"), logger=QUIET)
    producer = client.create_producer(TOPIC)
    producer.send(b"first")
    geo.drain()
    geo.drop("us-east->eu-central", "send")
    geo.reorder("us-east->eu-central", "send", nth=4)
    geo.duplicate("eu-central->us-east", "send_receipt", count=2)
    geo.delay("us-east->eu-central", "ping", "200ms")
    done = geoemu_command(geo, "drop", "eu-central->us-east", "send_receipt", "--count", "1", "--nth", "5")
    assert done.returncode == 0, done.stderr
    assert "will drop 1 send_receipt, from number 5 on" in done.stdout
    for number in range(20):
        producer.send(b"%d" % number)
    geo.drain()
    status = geoemu_command(geo, "status").stdout
    assert "us-east -> eu-central is up" in status
    assert "drop 1 send" in status
    geo.heal()
    assert "drop" not in geoemu_command(geo, "status").stdout
    with_eu = pulsar.Client(geo.url("eu-central"), logger=QUIET)
    reader = with_eu.create_reader(TOPIC, pulsar.MessageId.earliest)
    found = [reader.read_next(timeout_millis=20_000).data() for _ in range(21)]
    assert found == [b"first", *(b"%d" % number for number in range(20))]
    assert not reader.has_message_available()
    client.close()
    with_eu.close()


def test_a_client_recovers_from_a_lost_receipt(geo: geoemu.Geo) -> None:
    """The client resends when its connection is reset. The namespace does not deduplicate, so the message is stored
    twice."""
    client = pulsar.Client(geo.url("us-east"), logger=QUIET)
    producer = client.create_producer(TOPIC + "-client", producer_name="p", send_timeout_millis=0)
    producer.send(b"first")
    geo.drop("us-east->clients", "send_receipt")
    results: list[object] = []
    producer.send_async(b"second", lambda result, _: results.append(result))
    reader = client.create_reader(TOPIC + "-client", pulsar.MessageId.earliest)
    found = [reader.read_next(timeout_millis=60_000).data() for _ in range(2)]  # after its receipt was lost
    geo.reset("clients", "us-east")
    producer.flush()
    assert results == [pulsar.Result.Ok]
    geo.heal()
    found.append(reader.read_next(timeout_millis=60_000).data())
    assert found == [b"first", b"second", b"second"]
    assert not reader.has_message_available()
    client.close()


def test_a_fault_armed_while_its_region_is_down_acts_when_it_returns(geo: geoemu.Geo) -> None:
    geo.kill("us-east")
    geo.drop("us-east->eu-central", "connect")
    geo.start("us-east")
    geo.heal()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("drop", "us-east->eu-central", "snapshot_respons"), "do you mean snapshot_response?"),
        (("drop", "us-east", "send"), "is no direction of a link"),
        (("drop", "us-east->eu-central", "send", "--count", "0"), "count: 0 is not a whole number"),
        (("delay", "us-east->eu-central", "send", "0s"), "a delay needs a time"),
        (("reorder", "us-east->nowhere", "send"), "no region 'nowhere'"),
        (("drop", "clients->us-east", "snapshot_response"), "clients neither send nor receive"),
    ],
)
def test_nonsense_is_refused_by_command_and_api(
    geo: geoemu.Geo, arguments: tuple[str, ...], message: str
) -> None:
    done = geoemu_command(geo, *arguments)
    assert done.returncode != 0
    assert message in " ".join(done.stderr.split())


def test_nonsense_is_refused_by_the_api(geo: geoemu.Geo) -> None:
    with pytest.raises(Refused, match="do you mean snapshot_response"):
        geo.drop("us-east->eu-central", "snapshot_respons")
    with pytest.raises(Refused, match="nth: 0"):
        geo.duplicate("us-east->eu-central", "send", nth=0)
