"""The state of topics, queried from regions over HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from emulator.runtimes.contract import RegionStatus
from emulator.scenarios.region_queries import TopicStatus, read_topics_over_http, survey

from .virtual import ORDERS

ANSWER = [
    {
        "topic": ORDERS,
        "last_position": "3:41",
        "entries": 42,
        "replication": {
            "us-west": {"backlog": 7, "connected": True},
            "eu": {"backlog": 0, "connected": False},
        },
        "subscriptions": {
            "billing": {"backlog": 3, "mark_delete": "3:38", "why_not_replicated": "no snapshot yet"},
            "audit": {"backlog": 0, "mark_delete": "3:41", "why_not_replicated": ""},
        },
    }
]


class _Region(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.path == "/geoemu/v1/topics"
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(json.dumps(ANSWER).encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def admin_url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Region) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def region(name: str, admin_url: str, state: str = "running") -> RegionStatus:
    return RegionStatus(name, "americas", state, "pulsar://", admin_url, 1)  # type: ignore[arg-type]


def test_a_region_returns_its_replication_backlogs_and_unacknowledged_messages(admin_url: str) -> None:
    (topic,) = asyncio.run(read_topics_over_http(region("us-east", admin_url)))
    assert topic == TopicStatus(
        topic=ORDERS,
        backlogs={"us-west": 7, "eu": 0},
        unacknowledged={"billing": 3, "audit": 0},
        why_not_replicated={"billing": "no snapshot yet"},
        last_entry=41,
    )


def test_a_survey_keeps_answers_and_silence_apart(admin_url: str) -> None:
    regions = [
        region("us-east", admin_url),
        region("us-west", f"{admin_url}/elsewhere"),
        region("eu-central", admin_url, "killed"),
    ]
    found = asyncio.run(survey(regions, read_topics_over_http))
    assert found.silent == (
        "eu-central is killed",
        "us-west does not respond: HTTP Error 404: Not Found",
    )
    assert list(found.unreplicated(ORDERS)) == [
        f"7 entries of {ORDERS} not replicated from us-east to us-west"
    ]
    assert list(found.unacknowledged_in("us-east", ORDERS, "billing")) == [
        "billing has not acknowledged 3 messages in us-east"
    ]
    assert list(found.unacknowledged_in("us-east", ORDERS, "audit")) == []
    assert list(found.reasons("billing")) == ["reason from us-east: no snapshot yet"]
