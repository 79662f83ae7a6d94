"""The HTTP port, tested as a client sees it."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator

import pytest

from emulator.broker.admin.openapi import openapi_document
from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import RouteMatch, RouteTable, reads
from emulator.broker.admin.resources import SUBJECTS, TABLE
from emulator.broker.authentication.sender import Sender
from emulator.broker.authorizer import Requirement
from emulator.config.broker_settings import BrokerSettings
from emulator.errors import ProtocolError, ServerError
from emulator.net.http_server import BODY_BYTES_MAX
from tests.broker.admin.served import DEADLINE_SECONDS, Served, reply_in, served

LINK = "/geoemu/v1/links/us/eu"


@pytest.fixture(scope="module")
def us() -> Iterator[Served]:
    with served() as region:
        yield region


def test_the_document_is_served(us: Served) -> None:
    assert us.get("/geoemu/v1/openapi.json") == json.loads(json.dumps(openapi_document(SUBJECTS)))


def test_head_has_the_length_and_not_the_body(us: Served) -> None:
    got, head = us.ask("GET", "/admin/v2/clusters"), us.ask("HEAD", "/admin/v2/clusters")
    assert head.status == 200
    assert head.headers["content-length"] == got.headers["content-length"] == str(len(got.body))
    assert head.body == b""


def test_head_of_an_unknown_path(us: Served) -> None:
    assert us.ask("HEAD", "/nowhere").status == 404
    assert us.ask("HEAD", "/nowhere").body == b""


def test_an_unsupported_method_is_refused_with_the_supported_ones(us: Served) -> None:
    reply = us.ask("DELETE", "/admin/v2/clusters")
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")
    assert "DELETE is not supported by /admin/v2/clusters" in reply.json()["reason"]


@pytest.mark.parametrize("target", ["//[", "http://[/x", "/%", "/admin/v2/persistent/%2F/%2F/%2F/stats", "*"])
def test_an_odd_target_is_answered(us: Served, target: str) -> None:
    assert us.ask("GET", target).status in (400, 404, 412)


def test_an_encoded_slash_belongs_to_the_name(us: Served) -> None:
    reply = us.ask("GET", "/admin/v2/persistent/public/default/a%2Fb/stats")
    assert (reply.status, reply.json()["reason"]) == (404, "Topic persistent://public/default/a/b not found")


class TestBodies:
    def test_a_foreign_host_is_refused_before_its_body_is_read(self, us: Served) -> None:
        """The announced body is never sent, and still there is a response."""
        with socket.create_connection(("127.0.0.1", us.admin_port), DEADLINE_SECONDS) as connection:
            connection.sendall(
                f"PUT {LINK} HTTP/1.1\r\nHost: evil.example\r\nContent-Type: application/json\r\n"
                "Content-Length: 1000\r\n\r\n".encode()
            )
            received = b""
            while b"\r\n\r\n" not in received:
                chunk = connection.recv(65_536)
                assert chunk
                received += chunk
        reply = reply_in(received)
        assert (reply.status, reply.headers["connection"]) == (421, "close")

    def test_a_page_of_another_site_is_refused(self, us: Served) -> None:
        reply = us.ask("PUT", LINK, b"{}", {"Origin": "http://evil.example"})
        assert reply.status == 403
        assert "evil.example" in reply.json()["reason"]

    @pytest.mark.parametrize(
        "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
    )
    def test_content_types_that_a_form_can_send_are_refused(self, us: Served, kind: str) -> None:
        assert us.ask("PUT", LINK, b'{"state": "cut"}', {"Content-Type": kind}).status == 415

    @pytest.mark.parametrize(
        "kind", ["application/json", "APPLICATION/JSON; charset=utf-8", "application/vnd.x+json"]
    )
    def test_json_is_taken(self, us: Served, kind: str) -> None:
        reply = us.ask("PUT", LINK, b'{"state": "cut"}', {"Content-Type": kind})
        assert (reply.status, reply.json()["reason"]) == (404, "no link us -> eu; peers are: ")

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"null",
            b"[]",
            b"{",
            b"\xff",
            b'{"colour": 1}',
            b'{"state": []}',
            b'{"state": "gone"}',
            b'{"latency_ms": "1"}',
            b'{"latency_ms": -1}',
            b'{"latency_ms": NaN}',
            b'{"latency_ms": 1e999}',
            b'{"latency_ms": true}',
            b'{"bandwidth_bytes_per_second": 0}',
            b'{"bandwidth_bytes_per_second": 1.5}',
            b"[" * 100_000,
            b"9" * 5_000,
        ],
    )
    def test_an_invalid_body_is_refused_with_a_reason(self, us: Served, body: bytes) -> None:
        reply = us.ask("PUT", LINK, body)
        assert reply.status == 400
        assert reply.json()["reason"]

    def test_a_huge_body_is_refused_and_the_refusal_arrives(self, us: Served) -> None:
        reply = us.ask("PUT", LINK, b" " * (2 * BODY_BYTES_MAX))
        assert (reply.status, reply.json()["reason"]) == (413, "a body may have 1048576 bytes at most")

    def test_a_huge_body_in_chunks_is_refused_too(self, us: Served) -> None:
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        head = f"PUT {LINK} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
        received = us.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 20 + b"0\r\n\r\n")
        assert reply_in(received).status == 413

    @pytest.mark.parametrize("length", ["-1", "x", "1, 2", "9" * 30])
    def test_a_length_that_makes_no_sense(self, us: Served, length: str) -> None:
        head = f"PUT {LINK} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        assert reply_in(us.raw(f"{head}Content-Length: {length}\r\n\r\n".encode())).status in (400, 413)

    def test_a_client_that_expects_100_continue_receives_it(self, us: Served) -> None:
        with socket.create_connection(("127.0.0.1", us.admin_port), DEADLINE_SECONDS) as connection:
            connection.sendall(
                f"PUT {LINK} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n".encode()
            )
            assert b" 100 " in connection.recv(65_536)
            connection.sendall(b"{}")
            assert b" 404 " in connection.recv(65_536)


class TestConnections:
    def test_several_requests_at_once_are_answered_in_turn(self, us: Served) -> None:
        one = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: x\r\n\r\n"
        other = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
        received = us.raw(one + other + one)
        assert [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]] == [b"200", b"404", b"200"]

    def test_bytes_that_are_not_http_get_one_response(self, us: Served) -> None:
        received = us.raw(b"\x00\x00\x00\x05hello\r\n\r\n" * 3)
        assert received.count(b"HTTP/1.1 ") == 1
        assert reply_in(received).status == 400

    def test_a_head_without_an_end_is_refused(self, us: Served) -> None:
        assert reply_in(us.raw(b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000)).status in (400, 431)

    def test_connections_without_requests_do_not_keep_requests_out(self) -> None:
        with (
            served(settings=BrokerSettings(http_connections_max=5)) as us,
            contextlib.ExitStack() as opened,
        ):
            address = ("127.0.0.1", us.admin_port)
            idle = [
                opened.enter_context(socket.create_connection(address, DEADLINE_SECONDS)) for _ in range(30)
            ]
            idle[-1].sendall(b"GET /metrics HTTP/1.1\r\n")
            metrics = us.ask("GET", "/metrics").body.decode()
            assert "geoemu_http_connections 5" in metrics
            assert 'geoemu_http_connections_ended_total{outcome="displaced"} 26' in metrics
            assert 'geoemu_http_connections_ended_total{outcome="refused"} 0' in metrics
            assert idle[0].recv(1) == b""


def test_every_row_is_authorized() -> None:
    """The 401 follows from the row, not from code in its handler."""
    checked: list[Requirement] = []

    def deny_all(sender: Sender, requirement: Requirement) -> None:
        checked.append(requirement)
        raise ProtocolError(ServerError.AuthenticationError, "who are you?")

    with served(deny_all) as us:
        for row in TABLE.resources:
            path = row.path
            for name in row.names:
                path = path.replace(f"{{{name}}}", "persistent" if name == "domain" else "us")
            for method, operation in row.operations.items():
                reply = us.ask(method, path, b"{}" if operation.body else None)
                assert reply.status == 401, (method, path)
                assert reply.headers["www-authenticate"] == "Bearer"
                permission, target = checked[-1]
                assert permission is row.permission_of(operation)
                named = {"tenant": target.tenant, "namespace": target.namespace, "topic": target.topic}
                assert {name for name, value in named.items() if value} == named.keys() & set(row.names)


def test_an_answer_that_has_no_form_in_json_is_an_internal_error_and_no_silence(
    us: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(call: AdminRequest) -> Content:
        return {"method": broken}

    found = RouteMatch(TABLE.resources[0], reads(broken, "Returns a function."), {}, {})
    monkeypatch.setattr(RouteTable, "find", lambda table, head: found)
    reply = us.ask("GET", "/admin/v2/brokers")
    assert (reply.status, "TypeError" in reply.json()["reason"]) == (500, True)
