"""A region in its own process, with its log on a real Kafka."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pulsar

from emulator.config.broker_settings import BrokerSettings
from emulator.config.region import LogConfig, NamespaceConfig, RegionConfig

DEADLINE_SECONDS = 30
NAMESPACE = NamespaceConfig("public/default", ("eu",))


class RegionProcess:
    """One process of the region. A test may start several for the same log, successively or concurrently."""

    def __init__(self, folder: Path, log: LogConfig, **settings: Any) -> None:
        ready = folder / "ready.json"
        folder.mkdir()
        config = RegionConfig(
            "eu",
            "europe",
            log=log,
            namespaces=(NAMESPACE,),
            settings=BrokerSettings(**settings),
            ready_file=str(ready),
        )
        (folder / "region.json").write_text(config.to_json())
        command = [sys.executable, "-m", "emulator.broker", str(folder / "region.json")]
        self.process = subprocess.Popen(command)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not ready.exists():
            assert self.process.poll() is None, "the region's process ended before it was ready"
            assert time.monotonic() < deadline, "the region was not ready in time"
            time.sleep(0.01)
        ports = json.loads(ready.read_text())
        self.url = f"pulsar://127.0.0.1:{ports['service_port']}"
        self._admin_port = ports["admin_port"]

    def client(self) -> pulsar.Client:
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        return pulsar.Client(self.url, logger=logger, operation_timeout_seconds=5)

    def ask(self, method: str, target: str, body: Any = None) -> Any:
        """Send an admin request, assert its success, and return the decoded body; None: no body."""
        connection = http.client.HTTPConnection("127.0.0.1", self._admin_port, timeout=DEADLINE_SECONDS)
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, target, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        assert answer.status in (200, 204), (target, answer.status, content)
        return json.loads(content) if content else None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
