"""Faults of the links between clients and their region, and of the region: what a client reports meanwhile, and that it
loses nothing. docs/CLIENTS.md shows the results. A paused region behaves like a held link (test_process.py)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

import pytest

from emulator.broker.links.emulation import EmulatedLink
from tests.clients.driving import Failed
from tests.clients.harness import CLIENTS, WAIT_MS, ClientProgram, Scene, case, clients, rejected

pytestmark = [pytest.mark.real, pytest.mark.scene(transactions="yes", timeout_ms=60_000, seconds=150)]

TESTED = tuple(client for client in CLIENTS if client != "rust")
WITH_TRANSACTIONS = ("own", "java", "go")
HASTY_MS = 1_500
"""Send timeout and operation timeout of the client `hasty`."""
TIMED_OUT = {"own": "ClientError", "python": "Timeout", "java": "Timeout", "go": "Timeout"}
"""Error of a send, and of the creation of a producer, that the client ends after its timeout."""
UNREACHABLE = TIMED_OUT | {"java": "PulsarClient"}
"""Error of the creation of a producer while the region is down: Java reports the refused connection."""
SENDS_WHILE_RECONNECTING = ("go",)
"""Clients whose send timeout does not count while they reconnect: the send reports nothing until they are connected."""
SKIPS_ONE = ("go",)
"""Clients whose readers skip the next message at each reconnect: the Go client drops the message that it was about to
pass to the application, and requests what follows the first one in its queue."""


def link_of(scene: Scene) -> EmulatedLink:
    return scene.region.environment.client_link


def set_both(scene: Scene, **changes: object) -> None:
    for outbound in (True, False):
        link_of(scene).set(outbound=outbound, **changes)


def shaped(**changes: object) -> Change:
    """Return the change of both directions of the link."""

    async def change(scene: Scene) -> None:
        set_both(scene, **changes)

    return change


def limited(*, outbound: bool, bytes_per_second: int | None) -> Change:
    async def change(scene: Scene) -> None:
        link_of(scene).set(outbound=outbound, bandwidth_bytes_per_second=bytes_per_second)

    return change


async def reset(scene: Scene) -> None:
    link_of(scene).reset()


async def half_open(scene: Scene) -> None:
    link_of(scene).make_half_open()


async def end_half_open(scene: Scene) -> None:
    link_of(scene).end_half_open()


async def kill(scene: Scene) -> None:
    await scene.world.crash("us")


async def stop(scene: Scene) -> None:
    await scene.world.stop("us")


async def start(scene: Scene) -> None:
    await scene.world.start("us")


async def nothing(scene: Scene) -> None:
    """The fault is over at once."""


Change = Callable[[Scene], Awaitable[None]]


class ClientFault(NamedTuple):
    """A fault between a client and its region."""

    begin: Change
    end: Change
    silent: bool = False
    """Whether nothing arrives until the fault ends."""
    admits: bool = False
    """Whether new connections work although the open ones are silent."""
    disconnects: bool = False
    """Whether the client connects again, so that unacknowledged messages are delivered again."""


FAULTS = {
    "cut": ClientFault(shaped(state="cut"), shaped(state="up"), silent=True),
    "hold": ClientFault(shaped(state="held"), shaped(state="up"), silent=True),
    "latency": ClientFault(shaped(latency_ms=100, jitter_ms=50), shaped(latency_ms=0, jitter_ms=0)),
    "slow reader": ClientFault(
        limited(outbound=True, bytes_per_second=2_000), limited(outbound=True, bytes_per_second=None)
    ),
    "slow writer": ClientFault(
        limited(outbound=False, bytes_per_second=2_000), limited(outbound=False, bytes_per_second=None)
    ),
    "stall": ClientFault(shaped(stall_every_ms=500, stall_ms=300), shaped(stall_every_ms=0, stall_ms=0)),
    "flap": ClientFault(shaped(flap_period_ms=500, flap_up=0.5), shaped(flap_period_ms=0)),
    "reset": ClientFault(reset, nothing, disconnects=True),
    "half_open": ClientFault(half_open, end_half_open, silent=True, admits=True, disconnects=True),
    "kill": ClientFault(kill, start, silent=True, disconnects=True),
    "stop": ClientFault(stop, start, silent=True, disconnects=True),
}
EACH_FAULT = pytest.mark.parametrize(
    ("client", "fault"), [case(client, fault, java=pytest.mark.slow) for client in TESTED for fault in FAULTS]
)
SILENT = [fault for fault, kind in FAULTS.items() if kind.silent]


class Workload:
    """A producer, a Shared and a Failover consumer with unacknowledged messages, a reader, and an open transaction."""

    CONSUMERS = ("Shared", "Failover")
    KEPT = ("m0", "m1")
    """Messages that both consumers received before the fault and have not acknowledged."""

    def __init__(self, scene: Scene) -> None:
        self.program: ClientProgram = scene.program
        self.skips_one = scene.client in SKIPS_ONE
        self.with_transaction = scene.client in WITH_TRANSACTIONS

    async def begin(self) -> None:
        program = self.program
        await program.producer()
        for type_ in self.CONSUMERS:
            await program.subscribe(key=type_, subscription=type_, type=type_)
        await program.reader("earliest")
        await program.send("m0", "m1", "m2", "m3")
        for payload in self.KEPT:
            assert (await program.ask("read", key="r", timeout_ms=WAIT_MS))["payload"] == payload
            for type_ in self.CONSUMERS:
                assert await program.receive(type_, then="keep") == payload
        if self.with_transaction:
            await program.producer("bills", key="bills")
            await program.ask("begin", client="us", key="t", timeout_ms=60_000)
            await program.send("t0", key="bills", transaction="t")

    def publish(self, *payloads: str) -> list[asyncio.Future[dict[str, str]]]:
        """Send messages, and one of the transaction, without waiting for their receipts."""
        requests = [self.program.ask("send_batch", key="p", payloads=",".join(payloads))]
        if self.with_transaction:
            requests.append(self.program.ask("send", key="bills", payload="t1", transaction="t"))
        return requests

    async def check(self, payloads: Iterable[str], *, disconnects: bool) -> None:
        """Assert that each consumer receives every message in order, and once more from the first unacknowledged one on
        only if it was disconnected; that the reader receives each once; and that the transaction commits."""
        expected = list(payloads)
        for type_ in self.CONSUMERS:
            received = await self._receive_until(expected[-1], type_)
            assert disconnects or len(received) == len(set(received)), "nothing twice"
            assert set(received) - set(self.KEPT) == set(expected[2:]), (type_, received)
            steps_back = sum(later < earlier for earlier, later in itertools.pairwise(received))
            assert steps_back <= disconnects, (type_, received)
            await self._check_unacknowledged(type_, set(self.KEPT) - set(received))
        skipped = disconnects and self.skips_one
        for payload in expected[3 if skipped else 2 :]:
            assert (await self.program.ask("read", key="r", timeout_ms=WAIT_MS))["payload"] == payload
        if self.with_transaction:
            await self.program.ask("commit", key="t")
            await self.program.reader("earliest", "of bills", "bills")
            assert await self.program.rest("of bills") == ["t0", "t1"]

    async def _receive_until(self, last: str, type_: str) -> list[str]:
        received: list[str] = []
        while last not in received:
            try:
                received.append(await self.program.receive(type_))
            except Failed as failure:
                # geoemu's client: a message that it cannot acknowledge while it reconnects is delivered again.
                if "not acknowledged" not in str(failure):
                    raise
        return received

    async def _check_unacknowledged(self, type_: str, unacknowledged: set[str]) -> None:
        """Assert that the subscription's next consumer receives exactly these messages."""
        await self.program.ask("close", key=type_)
        await self.program.subscribe(key=f"next {type_}", subscription=type_, type=type_)
        received = {await self.program.receive(f"next {type_}") for _ in unacknowledged}
        assert received == unacknowledged


async def add_hasty_client(scene: Scene) -> None:
    """Add a client with short timeouts, and its producer `h`."""
    port = scene.world.ports["us"]
    await scene.add_client(scene.program, "hasty", port, timeout_ms=HASTY_MS, send_timeout_ms=HASTY_MS)
    await open_hasty(scene.program, "h")


def open_hasty(program: ClientProgram, key: str) -> asyncio.Future[dict[str, str]]:
    return program.producer("hasty", key=key, client="hasty", send_timeout_ms=HASTY_MS)


async def send_until_stored(program: ClientProgram, payload: str) -> None:
    """Send with the producer `h`; again if the client has not connected again within its send timeout."""
    while True:
        try:
            return await program.send(payload, key="h")
        except Failed as failure:
            if failure.name not in TIMED_OUT.values():
                raise


def seconds() -> float:
    """Time of the event loop, which is virtual with geoemu's client."""
    return asyncio.get_running_loop().time()


@EACH_FAULT
async def test_a_client_recovers_from(
    scene: Scene, fault: str, record_property: Callable[[str, object], None]
) -> None:
    kind, work = FAULTS[fault], Workload(scene)
    await work.begin()
    await kind.begin(scene)
    began = seconds()
    sent = work.publish("m4", "m5", "m6", "m7")
    if kind.silent:
        done, _ = await asyncio.wait(sent, timeout=1)
        assert not done, "nothing is reported"
        await kind.end(scene)
        began = seconds()
        await asyncio.gather(*sent)
    else:
        await asyncio.gather(*sent)
        await kind.end(scene)
    record_property("seconds", round(seconds() - began, 2))
    await work.check((f"m{number}" for number in range(8)), disconnects=kind.disconnects)


@pytest.mark.parametrize(
    ("client", "fault"), [case(client, fault, java=pytest.mark.slow) for client in TESTED for fault in SILENT]
)
async def test_a_client_reports_its_timeouts_during(scene: Scene, fault: str) -> None:
    """And its producer works again after the fault."""
    kind, program, is_down = FAULTS[fault], scene.program, fault in ("kill", "stop")
    await add_hasty_client(scene)
    await program.send("before", key="h")
    await kind.begin(scene)
    sent = program.ask("send", key="h", payload="during")
    if is_down and scene.client in SENDS_WHILE_RECONNECTING:
        await asyncio.wait([sent], timeout=2 * HASTY_MS / 1000)
    else:
        refusal = await rejected(sent)
        assert refusal.name == TIMED_OUT[scene.client], refusal
    if not kind.admits:
        refusal = await rejected(open_hasty(program, "another"))
        assert refusal.name == (UNREACHABLE if is_down else TIMED_OUT)[scene.client], refusal
    await kind.end(scene)
    await send_until_stored(program, "after")
    if not sent.done():
        await sent


@clients("rust")
async def test_a_producer_is_opened_although_its_connections_are_reset_meanwhile(scene: Scene) -> None:
    """At any time: during the handshake, the lookup, the request of partitions, and the request of the producer."""
    set_both(scene, latency_ms=20)
    opening = scene.program.producer()
    for _ in range(8):
        await asyncio.wait([opening], timeout=0.05)
        link_of(scene).reset()
    set_both(scene, latency_ms=0)
    await asyncio.wait_for(opening, WAIT_MS / 1000)
    await scene.program.send("x")


@clients("rust")
@pytest.mark.scene(programs=2, timeout_ms=60_000, seconds=120, keep_alive_interval_ms=1_000)
async def test_the_topic_of_a_half_open_exclusive_producer_goes_to_the_next_one(scene: Scene) -> None:
    """After the region's keep-alive; when its link works again, the former owner receives an error."""
    owner, other = scene.programs
    await owner.producer(access="Exclusive")
    await owner.send("before")
    link_of(scene).make_half_open()
    await asyncio.wait_for(other.producer(access="WaitForExclusive"), WAIT_MS / 1000)
    await other.send("mine")
    link_of(scene).end_half_open()
    assert (await rejected(owner.ask("send", key="p", payload="too late"))).name == "ProducerFenced"
