"""What the dashboard returns of topics, subscriptions, plans and events of regions, one of which is silent."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from emulator.config.loading import load_topology
from emulator.dashboard.event_log import EVENTS_MAX
from emulator.run.history import HistoryWriter
from tests.broker.admin.served import Served, served
from tests.dashboard.served_dashboard import (
    HTML,
    ServedDashboard,
    StatesOnly,
    served_dashboard,
    use_names_of_html,
)
from tests.runtimes.fixtures import write_topology

ORDERS = "persistent://public/default/orders"


@pytest.fixture(scope="module")
def us() -> Iterator[Served]:
    """A region with topics and a subscription whose names are HTML."""
    with served() as region:
        use_names_of_html(region)
        yield region


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never responds."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        yield listening.getsockname()[1]


@pytest.fixture
def dashboard(tmp_path: Path, us: Served) -> Iterator[ServedDashboard]:
    """A run with a region and two that were killed."""
    topology = write_topology(tmp_path)
    cluster = tmp_path / "clusters" / "americas.yaml"
    cluster.write_text(cluster.read_text().replace("us-east", "us"))
    run = StatesOnly(tmp_path, load_topology(topology))
    run.admin_urls = {"us": f"http://127.0.0.1:{us.admin_port}"}
    run.states |= {"us-west": "killed", "eu-central": "killed"}
    with served_dashboard(run) as running:
        yield running


@pytest.fixture
def beside_silence(dashboard: ServedDashboard, silent_port: int) -> ServedDashboard:
    """A run with a region, a silent region, and one that was killed."""
    dashboard.run.admin_urls["us-west"] = f"http://127.0.0.1:{silent_port}"
    dashboard.run.states["us-west"] = "running"
    return dashboard


def test_topics_are_listed_and_filtered(dashboard: ServedDashboard) -> None:
    assert dashboard.get("/api/topics") == {"topics": [HTML, "orders"], "omitted": 0}
    assert dashboard.get("/api/topics?contains=ORD")["topics"] == ["orders"]


def test_a_topic_is_shown_in_every_region_whether_it_responds_or_not(beside_silence: ServedDashboard) -> None:
    shown = beside_silence.get("/api/topic?topic=orders")
    here, silent, killed = shown["regions"]
    (row,) = here["rows"]
    assert (row["topic"], row["entries"], row["access"]["owner"]) == (ORDERS, 3, None)
    assert row["subscriptions"][f"billing {HTML}"]["backlog"] == 2
    assert (silent["region"], silent["rows"]) == ("us-west", [])
    assert silent["problem"].startswith("it is running and does not respond")
    assert killed["problem"] == "it is killed"
    assert shown["subscription"] is None, "none was requested"
    explained, *problems = shown["explain"]["regions"]
    assert explained["what"].startswith("serves 3 entries to 1 subscription")
    assert all("does not respond" in one["problem"] for one in problems)


def test_names_with_spaces_and_html_are_explained(dashboard: ServedDashboard) -> None:
    query = urlencode({"topic": HTML, "subscription": f"billing {HTML}"})
    shown = dashboard.get(f"/api/topic?{query}")
    assert shown["regions"][0]["rows"][0]["topic"].endswith(HTML)
    assert shown["explain"]["regions"][0]["what"].startswith("serves 3 entries")
    assert shown["subscription"]["regions"][0]["subscription"]["mark_delete"]


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/api/topic?topic=refunds", 404),
        ("/api/topic?topic=", 404),
        ("/api/topic", 404),
        ("/api/topic?topic=a%3A%2F%2Fb", 404),
        ("/api/explain?kind=nothing&name=orders", 404),
        ("/api/explain", 404),
        ("/api/explain?kind=subscription&name=orders", 404),
        ("/api/explain?kind=topic&name=" + "x" * 20_000, 404),
    ],
)
def test_unknown_and_nonsensical_names_are_refused(
    dashboard: ServedDashboard, target: str, status: int
) -> None:
    reply = dashboard.ask("GET", target)
    assert reply.status == status
    assert reply.json()["reason"]


def test_an_explanation_is_that_of_the_command_line(dashboard: ServedDashboard) -> None:
    explained = dashboard.get("/api/explain?kind=topic&name=orders")
    assert (explained["kind"], explained["name"]) == ("topic", "orders")
    assert explained["regions"][0]["region"] == "us"


def test_the_state_stays_live_beside_a_silent_region(beside_silence: ServedDashboard) -> None:
    beside_silence.get("/api/state")
    begun = time.monotonic()
    for _ in range(3):
        assert len(beside_silence.get("/api/state")["status"]["regions"]) == 3
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ([], 400),
        ({"topic": "orders"}, 400),
        ({"topic": "orders", "subscription": "s", "from": "us", "to": 7}, 400),
        ({"topic": "orders", "subscription": "s", "from": "us", "to": "mars"}, 409),
        ({"topic": "orders", "subscription": "s", "from": "us", "to": "us"}, 409),
        ({"topic": "a://b", "subscription": "s", "from": "us", "to": "us-west"}, 409),
        ({"topic": "orders", "subscription": "s", "from": "us", "to": "eu-central"}, 502),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused(
    dashboard: ServedDashboard, request_: object, status: int
) -> None:
    reply = dashboard.change(request_, "/api/failover-plan")
    assert reply.status == status
    assert reply.json()["reason"]
    assert not (dashboard.run.run_dir / "history" / "operator.jsonl").exists()


def test_events_are_the_newest_facts_of_every_history_and_observed_states(dashboard: ServedDashboard) -> None:
    folder = dashboard.run.run_dir / "history"
    scenario = HistoryWriter(folder / "scenario.jsonl", "scenario")
    scenario.write("kill", "fact", region="us")
    scenario.close()
    with (folder / "scenario.jsonl").open("ab") as file:
        file.write(
            b'{"torn\n[1]\n"text"\n{"outcome": "fact", "op": "kill", "at_ms": "1"}\n' + b"[" * 9000 + b"\n"
        )
    dashboard.get("/api/state")
    dashboard.run.states["us"] = "killed"
    begun = time.monotonic()
    while len(events := dashboard.get("/api/events")) < 2:
        dashboard.get("/api/state")
        assert time.monotonic() - begun < 20
    assert [(one["actor"], one["op"], one["region"]) for one in events] == [
        *(("observed", "state", "us"), ("scenario", "kill", "us"))
    ]
    assert events[0]["detail"] == "running -> killed"


def test_the_number_of_events_is_bounded(dashboard: ServedDashboard) -> None:
    fact = {"actor": "operator", "op": "cut", "outcome": "fact", "region": "a", "detail": "x" * 200}
    lines = "".join(json.dumps({"at_ms": number, **fact}) + "\n" for number in range(5_000))
    (dashboard.run.run_dir / "history" / "operator.jsonl").write_text(lines)
    found = [one["at_ms"] for one in dashboard.get("/api/events")]
    assert found == list(range(4_999, 4_999 - EVENTS_MAX, -1))
