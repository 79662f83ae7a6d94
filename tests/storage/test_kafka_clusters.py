"""A user's own Kafka: with users and certificates, and of several brokers."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition

from emulator.errors import StorageError
from emulator.runtimes.kafka_server import KafkaServer
from emulator.runtimes.listening import WantedPort, choose_ports
from emulator.storage.kafka import open_kafka

from .harness import DEADLINE_SECONDS, data_of, opened, read_all
from .kafka_place import new_prefix, running_kafka

pytestmark = [pytest.mark.slow, pytest.mark.within(DEADLINE_SECONDS)]

PASSWORD = "storage secret"
JAAS = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a key of the broker's own, and the certificate that clients trust."""
    folder = tmp_path_factory.mktemp("certificates")
    if shutil.which("keytool") is None:
        pytest.skip("there is no keytool")
    store = ["-keystore", "broker.p12", "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", "broker"]
    for command in (
        "-genkeypair -keyalg EC -dname CN=localhost -ext SAN=IP:127.0.0.1 -validity 2",
        "-exportcert -rfc -file broker.pem",
    ):
        subprocess.run(["keytool", *command.split(), *store], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, certificates: Path
) -> Iterator[tuple[KafkaServer, str]]:
    """Start a Kafka; yield it with its address for clients that have the certificate and a password."""
    port, own_port, controller = choose_ports(WantedPort("kafka", key, "127.0.0.1", 0) for key in "abc")
    plain, scram = f"{JAAS}.plain.PlainLoginModule", f"{JAAS}.scram.ScramLoginModule"
    settings = {
        "listeners": f"CLIENT://127.0.0.1:{own_port},GUARDED://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"CLIENT://127.0.0.1:{own_port},GUARDED://127.0.0.1:{port}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,GUARDED:SASL_SSL,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "ssl.keystore.location": str(certificates / "broker.p12"),
        "ssl.keystore.password": PASSWORD,
        "listener.name.guarded.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.guarded.plain.sasl.jaas.config": f'{plain} required user_alice="wonder";',
        "listener.name.guarded.scram-sha-512.sasl.jaas.config": f"{scram} required;",
    }
    users = ["--add-scram", "SCRAM-SHA-512=[name=alice,password=wonder]"]
    folder = tmp_path_factory.mktemp("kafka")
    with running_kafka(folder, port=own_port, format_arguments=users, **settings) as server:
        yield server, f"127.0.0.1:{port}"


@pytest.mark.real
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_region_authenticates_with_its_password_over_tls(
    guarded: tuple[KafkaServer, str], certificates: Path, mechanism: str
):
    """With a wrong one it is rejected at once, with one message."""
    options: dict[str, Any] = {
        "topic_prefix": new_prefix(),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(certificates / "broker.pem"),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "wonder",
    }
    store, log = await opened(open_kafka("eu", guarded[1], options))
    await log.append([b"x", bytes(1_000_000)])
    assert data_of(await read_all(log)) == [b"x", bytes(1_000_000)]
    await store.close()
    with pytest.raises(StorageError, match=r"request to Kafka failed: .*Authentication"):
        await open_kafka("eu", guarded[1], {**options, "sasl_plain_password": "wrong"})


@pytest.mark.real
async def test_a_certificate_without_a_trusted_issuer_is_rejected(guarded: tuple[KafkaServer, str]):
    with pytest.raises(StorageError, match="CERTIFICATE_VERIFY_FAILED"):
        await open_kafka("eu", guarded[1], {"security_protocol": "SSL"})


@pytest.fixture(scope="module")
def two_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """The first of two brokers."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as first:
        voters = f"1@127.0.0.1:{first.controller_port}"
        (port,) = choose_ports([WantedPort("kafka", "second", "127.0.0.1", 0)])
        second = {
            "node.id": "2",
            "process.roles": "broker",
            "listeners": f"CLIENT://127.0.0.1:{port}",
            "controller.quorum.voters": voters,
        }
        second["advertised.listeners"] = second["listeners"]
        with running_kafka(tmp_path_factory.mktemp("kafka"), port=port, **second):
            yield first


@pytest.mark.real
async def test_a_log_that_moves_to_another_broker_is_followed(two_brokers: KafkaServer):
    """While entries are appended: none is lost, doubled or out of order, and reading continues too."""
    store, log = await opened(open_kafka("eu", two_brokers.bootstrap_servers, {"topic_prefix": new_prefix()}))
    acknowledged: list[bytes] = []
    moved = asyncio.Event()

    async def write() -> None:
        while not moved.is_set() or len(acknowledged) < 200:
            data = b"%d" % len(acknowledged)
            await log.append([data])
            acknowledged.append(data)

    async def move() -> None:
        try:
            for broker in (2, 1, 2):
                await asyncio.to_thread(_move, two_brokers, log.topic, broker)
        finally:
            moved.set()

    await asyncio.gather(write(), move())
    assert store.cluster.leader(log.topic) == 2
    assert data_of(await read_all(log)) == acknowledged
    await store.close()


def _move(server: KafkaServer, topic: str, broker: int) -> None:
    """Move the topic; return when the broker is its leader and only replica."""
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
    try:
        admin.alter_partition_reassignments({TopicPartition(topic, 0): [broker]})
        while admin.describe_topics([topic])[0]["partitions"][0]["replica_nodes"] != [broker]:
            pass
    finally:
        admin.close()
