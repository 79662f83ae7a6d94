"""The server of the dashboard: what it serves, what it refuses, and that it stays live."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.dashboard.server import BODY_BYTES_MAX, TOKEN_HEADER, DashboardServer
from emulator.run.history_events import read_events
from emulator.run.history_schema import FRAME
from tests.dashboard.served_dashboard import ServedDashboard, StatesOnly, served_dashboard

KILL = {"verb": "kill", "region": "us-east"}
LINK = {"from": "us-east", "to": "eu-central"}


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[ServedDashboard]:
    with served_dashboard(StatesOnly(tmp_path)) as running:
        yield running


def recorded(dashboard: ServedDashboard) -> list[dict[str, Any]]:
    """Return the facts in the operator's history."""
    file = dashboard.run.run_dir / "history" / "operator.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [
        {name: value for name, value in line.items() if name not in ("at_ms", "actor", "outcome")}
        for line in lines
        if line["op"] not in FRAME
    ]


def test_the_page_and_its_files_have_a_strict_policy(dashboard: ServedDashboard) -> None:
    page = dashboard.ask("GET", "/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';")
    assert "frame-ancestors 'none'" in policy
    for path, kind in (
        ("/dashboard.js", "text/javascript"),
        ("/dashboard.css", "text/css"),
        ("/api/state", "application/json"),
    ):
        reply = dashboard.ask("GET", path)
        assert reply.status == 200
        assert reply.headers["content-type"].startswith(kind)
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["content-security-policy"] == policy
    assert b"http:" not in page.body + dashboard.ask("GET", "/dashboard.js").body


def test_the_state_is_that_of_the_command_line(dashboard: ServedDashboard) -> None:
    state = dashboard.get("/api/state")
    assert (state["problem"], list(state)) == ("", ["status", "age_ms", "problem"])
    status = state["status"]
    assert [(one["name"], one["state"]) for one in status["regions"]] == [
        *(("us-east", "running"), ("us-west", "running"), ("eu-central", "running"))
    ]
    assert {(one["from"], one["state"], one["latency_ms"]) for one in status["links"]} == {
        (region, "up", 1.0) for region in dashboard.run.states
    }


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", ""])
def test_another_name_of_this_machine_is_misdirected(
    dashboard: ServedDashboard, method: str, host: str
) -> None:
    """A page that points its own name at this machine can neither read the token nor change the run."""
    headers = {"Host": host, TOKEN_HEADER: dashboard.token, "Content-Type": "application/json"}
    for target in ("/", "/api/state", "/api/actions"):
        assert dashboard.ask(method, target, headers=headers).status == 421
    assert recorded(dashboard) == []


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:1", "null", "https://{host}"])
def test_a_page_of_another_origin_changes_nothing(dashboard: ServedDashboard, origin: str) -> None:
    reply = dashboard.change(KILL, Origin=origin.format(host=dashboard.host))
    assert reply.status == 403
    assert dashboard.run.states["us-east"] == "running"


@pytest.mark.parametrize("token", ["", "wrong", "ü"])
def test_a_change_needs_the_token_of_the_page(dashboard: ServedDashboard, token: str) -> None:
    reply = dashboard.change(KILL, **{TOKEN_HEADER: token})
    assert (reply.status, reply.json()["reason"]) == (
        403,
        "the token is missing or of another dashboard: reload the page",
    )
    assert dashboard.run.states["us-east"] == "running"


def test_a_form_of_another_site_cannot_send_a_change(dashboard: ServedDashboard) -> None:
    assert dashboard.change(KILL, Content_Type="text/plain").status == 415
    assert dashboard.run.states["us-east"] == "running"


def test_a_large_body_is_refused_and_the_server_stays_up(dashboard: ServedDashboard) -> None:
    assert dashboard.change(b" " * (BODY_BYTES_MAX + 1)).status == 413
    assert dashboard.change(b"1", Content_Length="99999999999999").status == 413
    chunk = b"%x\r\n" % 9000 + b" " * 9000 + b"\r\n0\r\n\r\n"
    assert dashboard.change(chunk, Transfer_Encoding="chunked").status == 413
    assert dashboard.change(KILL).status == 200


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (b"", "the body is not JSON"),
        (b"{", "the body is not JSON"),
        (b"\xff\xfe", "the body is not JSON"),
        (b"[" * 4000, "the body is not JSON"),
        ([], "the body must be a JSON object"),
        (None, "the body must be a JSON object"),
        ({}, "verb: None is none of kill, "),
        ({"verb": ["kill"]}, "verb: ['kill'] is none of"),
        ({"verb": "__class__", "region": "us-east"}, "verb: '__class__' is none of"),
        ({"verb": "kill"}, "region: None must be the name of a region"),
        ({"verb": "kill", "region": 7}, "region: 7 must be the name of a region"),
        ({"verb": "kill", "region": "us-east", "force": True}, "'force' is no field of kill"),
        ({"verb": "cut", "from": "us-east"}, "to: None must be the name of a region"),
        ({"verb": "heal", "from": "us-east"}, "to: None must be the name of a region"),
        (
            {"verb": "cut", "from": "us-east", "to": "us-west", "one_way": 1},
            "one_way: 1 must be true or false",
        ),
        *(
            ({"verb": "latency", "from": "us-east", "to": "us-west", "latency_ms": value}, "latency_ms: ")
            for value in (None, "1", True, -1, 1e300, float("nan"), float("inf"))
        ),
        *(
            ({"verb": "bandwidth", **LINK, "bytes_per_second": value}, "bytes_per_second: ")
            for value in ("1", 0, -1, 1.5, 10**30, True, [])
        ),
        *(
            ({"verb": "skew", "region": "us-east", "ahead_ms": value}, "ahead_ms: ")
            for value in (None, "250ms", 0.5, 10**15, float("nan"))
        ),
        ({"verb": "skew", "region": ["us-east"], "ahead_ms": 1}, "region: ['us-east'] must be the name"),
        ({"verb": "skew", "region": "us-east", "ahead_ms": 1, "drift_ppm": "1"}, "drift_ppm: '1' must be"),
        (
            {"verb": "skew", "region": "us-east", "ahead_ms": 1, "drift_ppm": 500_000},
            "drift_ppm: 500000 must be",
        ),
        ({"verb": "disk", "region": "us-east"}, "state: None must be a text"),
        ({"verb": "disk", "region": "us-east", "state": {}}, "state: {} must be a text"),
        ({"verb": "disk", "region": "us-east", "state": "slow", "delay_ms": -1}, "delay_ms: -1 must be"),
        ({"verb": "drop", **LINK}, "what: None must be a text"),
        ({"verb": "drop", **LINK, "what": ["send"]}, "what: ['send'] must be a text"),
        ({"verb": "drop", **LINK, "what": "send", "nth": 0}, "nth: 0 must be a whole number of frames"),
        ({"verb": "drop", **LINK, "what": "send", "count": "all"}, "count: 'all' must be"),
        ({"verb": "drop", **LINK, "what": "send", "by_ms": 5}, "'by_ms' is no field of drop"),
        ({"verb": "drop", **LINK, "what": "send", "one_way": True}, "'one_way' is no field of drop"),
        ({"verb": "delay", **LINK, "what": "send"}, "by_ms: None must be a number"),
        ({"verb": "delay", **LINK, "what": "send", "by_ms": float("nan")}, "by_ms: nan must be"),
        ({"verb": "power_loss", "region": "us-east"}, "verb: 'power_loss' is none of"),
    ],
)
def test_a_nonsensical_change_is_refused_with_its_reason(
    dashboard: ServedDashboard, request_: Any, reason: str
) -> None:
    reply = dashboard.change(request_)
    assert reply.status == 400
    assert reason in reply.json()["reason"]
    assert recorded(dashboard) == []


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"verb": "kill", "region": "us-esat"}, "did you mean us-east?"),
        ({"verb": "cut", "from": "us-east", "to": "*"}, "no region '*' in this run"),
        ({"verb": "cut", "from": "us-east", "to": "us-east"}, "name two different regions"),
        ({"verb": "cut", "from": "clients", "to": "clients"}, "name two different regions"),
        ({"verb": "skew", "region": "clients", "ahead_ms": 1}, "no region 'clients' in this run"),
        ({"verb": "disk", "region": "us-east", "state": "broken"}, "state: 'broken' is none of healthy"),
        ({"verb": "disk", "region": "us-east", "state": "full", "delay_ms": 5}, "requires the state slow"),
        ({"verb": "disk", "region": "us-east", "state": "slow", "delay_ms": 0}, "more than 0"),
        ({"verb": "drop", **LINK, "what": "snapshot_respnse"}, "do you mean snapshot_response?"),
        ({"verb": "drop", **LINK, "what": "ack"}, "ack is a command of clients"),
        ({"verb": "drop", "from": "clients", "to": "us-east", "what": "snapshot_response"}, "is a marker"),
        ({"verb": "delay", **LINK, "what": "send", "by_ms": 0}, "a delay needs a time"),
    ],
)
def test_names_that_are_not_in_the_run_are_refused(
    dashboard: ServedDashboard, request_: Any, reason: str
) -> None:
    reply = dashboard.change(request_)
    assert reply.status == 409
    assert reason in reply.json()["reason"]
    assert recorded(dashboard) == []


def test_changes_are_recorded_as_those_of_the_command_line(dashboard: ServedDashboard) -> None:
    link = {"from": "us-east", "to": "eu-central"}
    for request in (
        KILL,
        {"verb": "start", "region": "us-east"},
        {"verb": "cut", **link, "one_way": True},
        {"verb": "heal", **link},
        {"verb": "latency", **link, "latency_ms": 500},
        {"verb": "heal"},
    ):
        reply = dashboard.change(request)
        assert reply.status == 200, reply
    pair = {"region": "us-east", "other_region": "eu-central"}
    assert recorded(dashboard) == [
        {"op": "kill", "region": "us-east"},
        {"op": "start", "region": "us-east"},
        {"op": "cut", **pair, "detail": "one way"},
        {"op": "heal", **pair},
        {"op": "latency", **pair, "detail": "500 ms both ways"},
        {"op": "heal", "detail": "everything"},
    ]
    events = list(read_events(dashboard.run.run_dir / "history" / "operator.jsonl"))
    assert [event.op for event in events] == [fact["op"] for fact in recorded(dashboard)]


def test_faults_of_clocks_disks_frames_bandwidth_and_clients_are_those_of_the_command_line(
    dashboard: ServedDashboard,
) -> None:
    clients = {"from": "clients", "to": "us-east"}
    done = []
    for request in (
        {"verb": "skew", "region": "us-east", "ahead_ms": -250},
        {"verb": "disk", "region": "us-east", "state": "slow", "delay_ms": 300},
        {"verb": "disk", "region": "us-west", "state": "full"},
        {"verb": "bandwidth", **LINK, "bytes_per_second": 100_000},
        {"verb": "drop", **LINK, "what": "snapshot_response", "nth": 2},
        {"verb": "delay", **clients, "what": "ack", "by_ms": 2000, "count": 3},
        {"verb": "cut", **clients, "one_way": True},
    ):
        reply = dashboard.change(request)
        assert reply.status == 200, reply
        done.append(reply.json()["done"])
    assert done == [
        "the clock of us-east is 250 ms behind",
        "the disk of us-east is slow, 300 ms",
        "the disk of us-west is full",
        "bandwidth between us-east and eu-central: 100000 bytes/s",
        "drop from us-east to eu-central: 1 snapshot_response, from number 2 on",
        "delay from clients to us-east: 3 ack by 2000 ms",
        "cut between clients and us-east",
    ]
    pair, of_clients = ({"region": "us-east", "other_region": other} for other in ("eu-central", "clients"))
    assert recorded(dashboard) == [
        {"op": "skew", "region": "us-east", "detail": "clock -250 ms"},
        {"op": "disk", "region": "us-east", "detail": "slow, 300 ms"},
        {"op": "disk", "region": "us-west", "detail": "full"},
        {"op": "bandwidth", **pair, "detail": "100000 bytes/s both ways"},
        {"op": "drop", **pair, "detail": "1 snapshot_response, from number 2 on one way"},
        {"op": "delay", **of_clients, "detail": "3 ack by 2000 ms one way back"},
        {"op": "cut", **of_clients, "detail": "one way back"},
    ]
    status = dashboard.get("/api/state")["status"]
    assert status["regions"][0]["clock"] == {"ahead_ms": -250, "drift_ppm": 0.0}
    (faulty,) = [link for link in status["links"] if link["from"] == "clients"]
    assert (faulty["to"], faulty["state"], faulty["frame_faults"][0]["what"]) == ("us-east", "cut", "ack")


def test_the_names_of_frames_are_those_that_a_fault_accepts(dashboard: ServedDashboard) -> None:
    names = dashboard.get("/api/frames")
    ends = {"between_regions": LINK, "clients": {"from": "clients", "to": "us-east"}}
    assert names.keys() == ends.keys()
    for kind, link in ends.items():
        for name in (names[kind][0], names[kind][-1]):
            assert dashboard.change({"verb": "drop", **link, "what": name}).status == 200


def test_a_change_without_effect_is_reported_and_not_recorded(dashboard: ServedDashboard) -> None:
    assert dashboard.change(KILL).status == 200
    again = dashboard.change(KILL)
    assert (again.status, again.json()) == (200, {"done": "us-east is already killed: nothing was done"})
    assert len(recorded(dashboard)) == 1


def test_a_change_that_fails_is_an_error_with_its_reason(dashboard: ServedDashboard) -> None:
    dashboard.run.failure = "us-east was not ready within 10 s"
    reply = dashboard.change(KILL)
    assert (reply.status, reply.json()) == (502, {"reason": "us-east was not ready within 10 s"})
    assert recorded(dashboard) == []


def test_an_ended_run_is_shown_and_not_changed(dashboard: ServedDashboard) -> None:
    dashboard.run.ended = True
    assert dashboard.get("/api/state")["status"]["ended"] is True
    reply = dashboard.change(KILL)
    assert reply.status == 409
    assert "has ended" in reply.json()["reason"]


def test_the_state_is_returned_while_the_run_does_not_respond(dashboard: ServedDashboard) -> None:
    first = dashboard.get("/api/state")
    dashboard.run.is_silent = True
    begun = time.monotonic()
    later = dashboard.get("/api/state")
    while later["age_ms"] <= 1_000:
        assert time.monotonic() - begun < 20
        later = dashboard.get("/api/state")
    assert later["status"] == first["status"]
    dashboard.run.is_silent = False
    dashboard.run.states["us-west"] = "killed"
    while dashboard.get("/api/state")["status"]["regions"][1]["state"] != "killed":
        assert time.monotonic() - begun < 20


async def test_a_change_under_way_is_completed_and_recorded_before_the_server_ends(tmp_path: Path) -> None:
    run = StatesOnly(tmp_path)
    run.is_slow = True
    server = DashboardServer(run)  # type: ignore[arg-type]
    dashboard = ServedDashboard(await server.start(0), run)
    request = asyncio.create_task(asyncio.to_thread(dashboard.change, KILL))
    async with asyncio.timeout(20):
        while not server.changes_under_way:
            await asyncio.sleep(0.01)
        closing = asyncio.create_task(server.close())
        while dashboard_accepts(dashboard):
            await asyncio.sleep(0.01)
        assert not closing.done()
        run.is_slow = False
        await closing
        await asyncio.gather(request, return_exceptions=True)
    assert [fact["op"] for fact in recorded(dashboard)] == ["kill"]


def dashboard_accepts(dashboard: ServedDashboard) -> bool:
    host, _, port = dashboard.host.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def test_other_paths_and_methods_are_refused(dashboard: ServedDashboard) -> None:
    for method, target, status in (
        ("GET", "/../pyproject.toml", 404),
        ("GET", "/server.py", 404),
        ("GET", "/api/actions", 405),
        ("DELETE", "/", 405),
        ("POST", "/api/state", 405),
        ("GET", "/api/state?" + "&".join(f"a{n}=1" for n in range(20)), 400),
        ("GET", "/api/state?topic=%ff", 400),
    ):
        assert dashboard.ask(method, target).status == status, target
