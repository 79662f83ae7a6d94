"""The gate of the HTTP port: schemes, the control credential of a run, public paths, proxies."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from passlib.context import CryptContext

from emulator.broker.authentication.http_gate import HttpGate
from emulator.broker.authentication.sender import Sender
from emulator.broker.authorization import TrustLevel
from emulator.broker.authorizer import Requirement
from emulator.config.security import AuthenticationConfig, AuthorizationConfig, SecurityConfig, TokenConfig
from emulator.model.principals import NO_PRINCIPAL, Principal
from emulator.net.control import control_credential, control_header
from emulator.net.http_server import RequestHead
from tests.broker.admin.served import Reply, Served, served

from .test_basic_and_certificates import subject
from .tokens import secret_file, token

CLUSTERS = "/admin/v2/clusters"
SENDERS: list[Sender] = []


def record(sender: Sender, requirement: Requirement) -> None:
    """Authorize every request, and record its sender."""
    SENDERS.append(sender)


@pytest.fixture
def us(tmp_path: Path) -> Iterator[Served]:
    SENDERS.clear()
    users = tmp_path / "users"
    users.write_text("ana:" + CryptContext(["apr_md5_crypt"]).hash("pass:word"))
    authentication = AuthenticationConfig(
        token=TokenConfig(secret_key=secret_file(tmp_path)), basic_users=str(users), tls=True
    )
    security = SecurityConfig(None, authentication, AuthorizationConfig(("admin",), ("proxy",)))
    with served(record, security=security, run_secret="secret of the run") as region:
        yield region


def ask(us: Served, authorization: str = "", target: str = CLUSTERS, **headers: str) -> Reply:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if authorization:
        sent["Authorization"] = authorization
    return us.ask("GET", target, headers=sent)


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_token(us: Served, scheme: str) -> None:
    assert ask(us, f"{scheme} {token().decode()}").status == 200
    assert [Sender(TrustLevel.CLIENT, Principal("app"))] == SENDERS


def test_name_and_password(us: Served) -> None:
    assert ask(us, basic("ana:pass:word")).status == 200
    assert [Sender(TrustLevel.CLIENT, Principal("ana"))] == SENDERS


def test_the_control_of_the_run(us: Served) -> None:
    assert ask(us, control_header("secret of the run")).status == 200
    assert [Sender(TrustLevel.CONTROL, NO_PRINCIPAL)] == SENDERS
    assert "secret of the run" not in control_header("secret of the run")


@pytest.mark.parametrize(
    ("header", "label", "reason"),
    [
        ("", "none", "missing"),
        ("Bearer", "token", "malformed"),
        ("Bearer x", "token", "malformed"),
        (f"Bearer {token().decode()[:-3]}", "token", "signature"),
        (f"Bearer {token(exp=1).decode()}", "token", "expired"),
        (f"Bearer {'x' * 60_000}", "token", "malformed"),
        ("Basic", "basic", "malformed"),
        ("Basic not base64!", "basic", "malformed"),
        ("Basic \xff\xfe", "basic", "malformed"),
        (basic("ana"), "basic", "malformed"),
        (basic("ana:wrong"), "basic", "credentials"),
        (basic("admin:"), "basic", "credentials"),
        ("Geoemu", "control", "credentials"),
        (f"Geoemu {control_credential('another run')}", "control", "credentials"),
        ("Geoemu \xff", "control", "credentials"),
        ("Negotiate x", "other", "unknown-method"),
    ],
    ids=range(16),
)
def test_requests_that_are_refused(us: Served, header: str, label: str, reason: str) -> None:
    reply = ask(us, header)
    assert reply.status == 401
    assert reply.json()["reason"].startswith("Authentication required")
    assert reply.headers["www-authenticate"] in ('Bearer realm="pulsar"', 'Basic realm="pulsar"')
    assert not SENDERS
    assert dict(us.region.resources.refused_authentications.counts) == {(label, reason): 1}
    assert (
        f'geoemu_refused_authentications_total{{method="{label}",reason="{reason}"}} 1'
        in us.ask("GET", "/metrics").body.decode()
    )


def test_a_body_is_not_read_before_the_sender_is_known(us: Served) -> None:
    head = f"PUT {CLUSTERS}/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    reply = us.raw(f"{head}Content-Length: 1000000\r\n\r\n".encode())
    assert reply.startswith(b"HTTP/1.1 401 ")


def test_a_repeated_header_is_refused(us: Served) -> None:
    for name, value in (
        ("Authorization", control_header("secret of the run")),
        ("X-Original-Principal", "app"),
    ):
        head = f"GET {CLUSTERS} HTTP/1.1\r\nHost: 127.0.0.1\r\n" + 2 * f"{name}: {value}\r\n"
        assert us.raw(f"{head}Connection: close\r\n\r\n".encode()).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("target", ["/metrics", "/metrics/", "/metrics?x=1", "/status.html"])
def test_public_paths(us: Served, target: str) -> None:
    assert ask(us, target=target).status == 200


@pytest.mark.parametrize(
    "target",
    [
        "/admin/v2/brokers/health",
        "/geoemu/v1/status",
        "/metrics/../admin/v2/clusters",
        "/%6detrics",
        "//metrics",
        "/status.html/x",
        "/openapi.json",
        "/nothing",
    ],
)
def test_everything_else_needs_authentication(us: Served, target: str) -> None:
    assert ask(us, target=target).status == 401


async def test_a_certificate_is_used_without_a_header(us: Served) -> None:
    gate = us.region.gate
    assert gate is not None
    door = HttpGate(gate, "")
    head: dict[str, Any] = {"method": "GET", "target": CLUSTERS}
    certified = RequestHead(**head, headers={}, certificate=subject("app"))
    assert door.authenticate(certified) == Sender(TrustLevel.CLIENT, Principal("app"))
    bearer = {"authorization": f"Bearer {token(sub='other').decode()}"}
    both = RequestHead(**head, headers=bearer, certificate=subject("app"))
    assert door.authenticate(both).principal == Principal("other")


def test_proxies(us: Served) -> None:
    proxy = f"Bearer {token(sub='proxy').decode()}"
    assert ask(us, proxy, X_Original_Principal="app").status == 200
    assert [Sender(TrustLevel.CLIENT, Principal("proxy", "app"))] == SENDERS
    for header, original in ((proxy, ""), (proxy, "proxy"), (f"Bearer {token().decode()}", "admin")):
        assert ask(us, header, X_Original_Principal=original).status == 403


def test_the_guard_of_hosts_remains(us: Served) -> None:
    bearer = f"Bearer {token().decode()}"
    reply = us.ask("PUT", f"{CLUSTERS}/x", {}, {"Host": "evil.example", "Authorization": bearer})
    assert reply.status == 421
