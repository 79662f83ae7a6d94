"""Clients whose service URL is the HTTP port."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.broker.admin.served import DEADLINE_SECONDS, served

pytest.importorskip("pulsar")

PROGRAM = """
import sys, pulsar
client = pulsar.Client(sys.argv[1], operation_timeout_seconds=5, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
consumer = client.subscribe("orders", "billing")
client.create_producer("orders").send(b"hello")
print(consumer.receive(timeout_millis=5000).data().decode())
client.close()
"""


@pytest.mark.real
def test_the_c_plus_plus_client_finds_its_topic_by_http() -> None:
    """Runs in a process of its own, because that client once crashed on the response: it needs a TLS address, even an
    empty one."""
    with served() as us:
        url = f"http://127.0.0.1:{us.admin_port}"
        client = subprocess.run(
            [sys.executable, "-c", PROGRAM, url],
            capture_output=True,
            text=True,
            timeout=3 * DEADLINE_SECONDS,
            check=False,
        )
    assert (client.returncode, client.stdout) == (0, "hello\n"), client.stderr


def test_a_lookup_has_every_address_that_some_client_insists_on() -> None:
    with served() as us:
        answer = us.get("/lookup/v2/topic/persistent/public/default/orders")
        assert answer == {
            "brokerUrl": f"pulsar://127.0.0.1:{us.service_port}",
            "nativeUrl": f"pulsar://127.0.0.1:{us.service_port}",
            "httpUrl": f"http://127.0.0.1:{us.admin_port}",
            "brokerUrlTls": "",
            "brokerUrlSsl": "",
        }
        assert us.ask("GET", "/lookup/v2/topic/persistent/public/elsewhere/orders").status == 404
