"""`geoemu dashboard` of a run of processes: the state, faults, a plan of a fail-over, and its end by Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from emulator.client import Client, InitialPosition
from emulator.run.history_events import read_events
from tests.broker.regions import free_port
from tests.cli.test_cli import geoemu
from tests.cli.test_runs import CURRENT, in_foreground, states, typed
from tests.runtimes.fixtures import REGIONS

pytestmark = [pytest.mark.real, pytest.mark.long]


class Page:
    """Requests as the page sends them."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        html = urllib.request.urlopen(url, timeout=30).read().decode()
        found = re.search(r'name="geoemu-token" content="([^"]+)"', html)
        assert found
        self._headers = {"x-geoemu-token": found[1], "content-type": "application/json", "origin": self._url}

    def get(self, target: str) -> Any:
        return json.load(urllib.request.urlopen(self._url + target, timeout=30))

    def post(self, target: str, body: Any) -> Any:
        request = urllib.request.Request(self._url + target, json.dumps(body).encode(), self._headers)
        return json.load(urllib.request.urlopen(request, timeout=60))


async def use(url: str) -> None:
    async with Client([url]) as client:
        consumer = await client.subscribe("orders", "billing", initial_position=InitialPosition.EARLIEST)
        producer = await client.producer("orders")
        for _ in range(3):
            await producer.send(b"x")
        await consumer.acknowledge(await consumer.receive(), confirmed=True)


def test_a_run_is_shown_changed_and_planned_until_the_dashboard_is_interrupted(folder: Path) -> None:
    typed(folder, "up", "--detach")
    port = free_port()
    with in_foreground(folder, "dashboard", "--port", str(port), until="Ctrl-C ends the page") as process:
        page = Page(f"http://127.0.0.1:{port}/")
        status = page.get("/api/state")["status"]
        assert {name: status[name] for name in ("runtime", "ended", "replication_lag")} == {
            **{"runtime": "process", "ended": False, "replication_lag": []}
        }
        assert [one["state"] for one in status["regions"]] == ["running"] * 3
        asyncio.run(use(status["regions"][0]["service_url"]))
        assert page.get("/api/topics")["topics"] == ["orders"]
        link = {"from": "us-east", "to": "eu-central"}
        page.post("/api/actions", {"verb": "cut", **link})
        plan = page.post("/api/failover-plan", {"topic": "orders", "subscription": "billing", **link})
        assert plan["skipped_messages"] is not None, "us-east contributed"
        page.post("/api/actions", {"verb": "heal"})
        page.post("/api/actions", {"verb": "kill", "region": "us-west"})
        assert states(folder)["us-west"] == "killed"
        assert page.post("/api/actions", {"verb": "start", "region": "us-west"}) == {
            "done": "start us-west: done"
        }
        taken = geoemu("dashboard", "--port", str(port), folder=folder)
        assert (taken.returncode, taken.stdout) == (2, "")
        assert f"port {port} is not available" in taken.stderr
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        assert process.returncode == 0
    assert states(folder) == dict.fromkeys(REGIONS, "running"), "the run goes on"
    facts = [(one.op, one.region) for one in read_events(folder / CURRENT / "history" / "operator.jsonl")]
    assert facts == [
        *(("cut", "us-east"), ("failover_plan", "us-east"), ("heal", None)),
        *(("kill", "us-west"), ("start", "us-west")),
    ]
