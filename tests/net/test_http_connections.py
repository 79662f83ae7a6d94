"""Limits of HTTP connections: what is displaced or refused above them, and clients that do not read or send."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.net import http_server
from emulator.net.http_connections import HELD_BYTES_MAX, HttpConnections
from emulator.net.http_server import HttpConnection, PreparedCall, RequestHead, Response
from emulator.net.network import SocketNetwork
from tests.net.test_tls import until

HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
DEADLINE_SECONDS = 60.0


class One:
    """A connection that records whether it was aborted."""

    def __init__(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


def test_the_longest_waiting_connection_of_the_host_makes_room() -> None:
    connections = HttpConnections(per_host_max=2)
    first, second, third, other = One(), One(), One(), One()
    for one in (first, second):
        assert connections.admit(one, "a")
    connections.executes(first)
    connections.waits(first)  # now it waits since later than the second
    assert connections.admit(other, "b")
    assert connections.admit(third, "a")
    assert [one.is_aborted for one in (first, second, third, other)] == [False, True, False, False]
    assert (len(connections), connections.displaced) == (3, 1)


def test_the_host_with_the_most_connections_makes_room_for_others() -> None:
    connections = HttpConnections(count_max=4)
    many, few = [One() for _ in range(3)], One()
    for one in many:
        connections.admit(one, "attacker")
    connections.admit(few, "b")
    assert connections.admit(One(), "c")
    assert [one.is_aborted for one in many] == [True, False, False]
    assert not few.is_aborted


def test_connections_that_execute_requests_are_not_displaced() -> None:
    connections = HttpConnections(count_max=2)
    both = One(), One()
    for one in both:
        connections.admit(one, "a")
        connections.executes(one)
    assert not connections.admit(One(), "b")
    assert (len(connections), connections.refused) == (2, 1)
    connections.release(both[0])
    connections.waits(both[0])  # a response for a client that is gone
    assert connections.admit(One(), "b")


def test_connections_with_the_oldest_bytes_are_closed_above_the_bound() -> None:
    connections, third = HttpConnections(), HELD_BYTES_MAX // 3
    executing, old, new, other, small = (One() for _ in range(5))
    for one in (executing, old, new, other, small):
        connections.admit(one, "a")
    for one in (executing, old, new):
        connections.hold(one, third)
    connections.hold(small, 1)
    connections.executes(executing)
    assert not any(one.is_aborted for one in (executing, old, new, small))
    connections.hold(other, third)
    assert [one.is_aborted for one in (executing, old, new, other, small)] == [
        False,
        True,
        False,
        False,
        False,
    ]
    assert connections.held_bytes == 3 * third + 1
    connections.hold(new, 2 * HELD_BYTES_MAX)
    assert not new.is_aborted
    for one in (executing, old, new, other):
        connections.hold(one, 0)
    connections.release(small)
    assert (connections.held_bytes, connections._held) == (0, {})


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "executes", "waits", "release"]), st.integers(0, 7), st.sampled_from("abc")
    ),
    max_size=80,
)


@given(ACTIONS)
def test_neither_limit_is_exceeded_and_no_host_is_remembered(actions: list[tuple[str, int, str]]) -> None:
    connections, known = HttpConnections(4, 2), [One() for _ in range(8)]
    hosts: dict[One, str] = {}
    for action, number, host in actions:
        one = known[number]
        hosts = {open_: at for open_, at in hosts.items() if not open_.is_aborted}
        if action == "admit":
            if one not in hosts:
                one.is_aborted = False
                if connections.admit(one, host):
                    hosts[one] = host
        elif action == "release":
            connections.release(one)
            hosts.pop(one, None)
        else:
            getattr(connections, action)(one)
        hosts = {open_: at for open_, at in hosts.items() if not open_.is_aborted}
        assert len(connections) == len(hosts) <= 4
        assert all(list(hosts.values()).count(at) <= 2 for at in "abc")
    for one in known:
        connections.release(one)
    assert not connections._by_host
    assert not connections._waiting


@dataclass
class Server:
    """A server whose requests to /slow wait until `release` is set; others return a response of 16 MB, or `ok`."""

    port: int = 0
    release: asyncio.Event = field(default_factory=asyncio.Event)
    executing: int = 0

    def begin(self, head: RequestHead) -> PreparedCall:
        async def respond(body: bytes) -> Response:
            self.executing += 1
            if head.target == "/slow":
                await self.release.wait()
            self.executing -= 1
            return Response(b"x" * 16_000_000 if head.target == "/large" else "ok")

        return respond

    async def status(self, host: str, target: str = "/") -> str:
        """Send a request from an own address; return the status code, empty if the connection ends without."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(host, 0))
        with contextlib.suppress(ConnectionError):
            writer.write(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            received = await asyncio.wait_for(reader.read(), DEADLINE_SECONDS)
            writer.close()
            return received[9:12].decode()
        return ""


@contextlib.asynccontextmanager
async def serving(connections: HttpConnections) -> AsyncIterator[Server]:
    server, tasks = Server(), set[asyncio.Task[None]]()

    def spawn(work: object) -> None:
        tasks.add(asyncio.ensure_future(work))  # type: ignore[call-overload]

    listener = await SocketNetwork().listen(
        lambda: HttpConnection(server, spawn, connections), "127.0.0.1", 0
    )
    server.port = listener.port
    try:
        yield server
    finally:
        listener.close()
        server.release.set()


async def test_connections_without_requests_do_not_keep_others_out() -> None:
    connections = HttpConnections(count_max=20, per_host_max=10)
    async with serving(connections) as server:
        attackers = [
            await asyncio.open_connection("127.0.0.1", server.port, local_addr=(host, 0))
            for host in HOSTS[:2]
            for _ in range(50)
        ]
        for _, writer in attackers[::2]:
            writer.write(b"GET / HT")
        assert await server.status(HOSTS[0]) == "200"
        assert await server.status(HOSTS[2]) == "200"
        await until(lambda: len(connections) <= 20)
        assert connections.displaced >= 80
        assert connections.refused == 0
        for _, writer in attackers:
            writer.close()
        await until(lambda: not len(connections))


async def test_a_connection_is_refused_while_all_others_execute_requests() -> None:
    connections = HttpConnections(count_max=3)
    async with serving(connections) as server:
        slow = [asyncio.create_task(server.status(HOSTS[0], "/slow")) for _ in range(3)]
        await until(lambda: server.executing == 3)
        assert await server.status(HOSTS[1]) in ("503", "")
        assert connections.refused == 1
        server.release.set()
        assert await asyncio.gather(*slow) == ["200"] * 3
        await until(lambda: not len(connections))
        assert await server.status(HOSTS[1]) == "200"


async def test_unread_responses_of_many_clients_use_bounded_memory() -> None:
    connections = HttpConnections()
    async with serving(connections) as server:
        streams = [await asyncio.open_connection("127.0.0.1", server.port, limit=1_000) for _ in range(12)]
        for reader, writer in streams:  # each response has 16 MB, of which the sockets hold a few
            writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await reader.readexactly(1) == b"H"
        await until(lambda: connections.displaced > 0)
        assert connections.held_bytes <= HELD_BYTES_MAX + 16_000_000
        assert await server.status(HOSTS[0]) == "200"
        for _, writer in streams:
            writer.transport.abort()
        await until(lambda: not len(connections))
        assert connections.held_bytes == 0


@pytest.mark.parametrize("header", ["Connection: close", "Connection: keep-alive"])
async def test_a_client_that_does_not_read_its_response_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
    monkeypatch.setattr(http_server, "IDLE_SECONDS", 0.2)
    connections = HttpConnections()
    async with serving(connections) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1_000)
        writer.write(f"GET /large HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n".encode())
        assert await reader.readexactly(1) == b"H"
        await until(lambda: not len(connections))
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(16_000_000)
        writer.close()


async def test_invalid_bytes_after_a_head_request_are_refused_with_a_body() -> None:
    async with serving(HttpConnections()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            writer.write(b"\xc2\r\n\r\n")
            assert b" 400 " in await reader.readuntil(b"\r\n\r\n")
            assert b"reason" in await reader.read()
        writer.close()
