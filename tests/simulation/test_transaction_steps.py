"""A region dies after every single durable step of a transaction, one world per step: the transaction counts as a whole
or not at all, responses hold, and a key has one open transaction."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest

from emulator.client import (
    EARLIEST,
    Client,
    ClientError,
    Consumer,
    ConsumerType,
    InitialPosition,
    Producer,
    Transaction,
)
from emulator.model.transaction_names import TransactionStatus, coordinator_of
from emulator.simulation.stored_messages import scan_once
from emulator.simulation.world import World, world
from tests.swarm.checkers.transaction_tasks import ABORT_MARKER, COMMIT_MARKER, COORDINATOR_LOG

KEY = "task"
OUTBOX = "persistent://public/default/outbox"
SUBSCRIPTION = "s"
STEPS_MAX = 60


class Killed:
    """A region that dies after its n-th commit, counted from `arm`, and is started again."""

    def __init__(self, w: World, after: int) -> None:
        self.w = w
        self.after = after
        self.stored: tuple[str, ...] | None = None
        """Durable steps of transactions at its death; None: it did not die."""
        self._commits: int | None = None
        disk = w.regions["us"].medium
        report = disk.on_event

        def on_event(what: str) -> None:
            report(what)
            if self._commits is not None and what.startswith("commit"):
                self._commits += 1
                if self._commits == self.after:
                    w.simulation.at(w.simulation.now, self._die)

        disk.on_event = on_event

    def arm(self) -> None:
        self._commits = 0

    def disarm(self) -> None:
        self._commits = None

    def _die(self) -> None:
        self.stored = steps_on_disk(self.w)
        self.w.kill("us")
        self.w.start("us")


def steps_on_disk(w: World) -> tuple[str, ...]:
    """Return the steps in the journals of coordinators and in the log of the outbox, each once."""
    found: dict[str, None] = {}
    for name, log in sorted(w.regions["us"].medium.logs.items()):
        if name.startswith(COORDINATOR_LOG):
            found |= dict.fromkeys(json.loads(data)[0] for data in log.entries)
        elif name == OUTBOX:
            infos = [scan_once(data, verify=True) for data in log.entries]
            found |= dict.fromkeys(
                {None: "message", COMMIT_MARKER: "commit", ABORT_MARKER: "abort"}[info.marker_type]
                for info in infos
            )
    return tuple(found)


class Bench:
    """One message in an inbox, and a program that has to process it."""

    def __init__(self, w: World, key: str | None) -> None:
        self.w = w
        host = w.client_host("program", "us")
        host.network.loop = w.simulation.driver.loop
        self.client = w.client_on(host, ("us",), transaction_key=key)
        self.consumer: Consumer
        self.outbox: Producer

    async def ready(self) -> None:
        inbox = await self.client.producer("inbox")
        await inbox.send(b"it")
        self.outbox = await self.client.producer("outbox")
        self.consumer = await self.subscribed(self.client)
        await self.w.quiet()

    async def subscribed(self, client: Client) -> Consumer:
        return await client.subscribe(
            "inbox", SUBSCRIPTION, type_=ConsumerType.SHARED, initial_position=InitialPosition.EARLIEST
        )

    async def process(self) -> Transaction:
        """Do everything but the end."""
        message = await self.consumer.receive()
        transaction = await self.client.new_transaction()
        try:
            await self.outbox.send(b"result", transaction=transaction)
            await self.consumer.acknowledge(message, transaction=transaction)
        except ClientError:
            await transaction.abort()
            raise
        return transaction

    async def results(self) -> list[bytes]:
        reader = await self.client.reader("outbox", EARLIEST)
        found = []
        while await reader.has_message():
            found.append((await reader.receive()).payload)
        return found

    async def is_consumed(self) -> bool:
        """Return whether the inbox is empty. Every other consumer is gone by then."""
        await self.consumer.close()
        await self.w.quiet()
        broker = self.w.regions["us"].broker
        assert broker is not None
        stats = await self.w.ask_admin("us", "GET", "/admin/v2/persistent/public/default/inbox/stats")
        backlog: int = stats.json()["subscriptions"][SUBSCRIPTION]["msgBacklog"]
        return backlog == 0


SimulatedScenario = Callable[[Bench, Killed], Awaitable[None]]


def killed_behind_every_step(scenario: SimulatedScenario, key: str | None = None) -> set[tuple[str, ...]]:
    """Return the durable steps at each of the deaths."""
    seen: set[tuple[str, ...]] = set()
    for after in count(1):
        assert after < STEPS_MAX, "it never ends"
        with world("us", seed=after) as w:
            killed, bench = Killed(w, after), Bench(w, key)

            async def whole(bench: Bench = bench, killed: Killed = killed) -> None:
                await bench.ready()
                await scenario(bench, killed)

            w.play(whole())
            if killed.stored is None:
                return seen
            seen.add(killed.stored)
    raise AssertionError("not reached")


async def _all_or_nothing(bench: Bench, outcome: str) -> None:
    found, consumed = await bench.results(), await bench.is_consumed()
    assert (found, consumed) in (([b"result"], True), ([], False)), (outcome, found, consumed)
    if outcome:
        assert found == ([b"result"] if outcome == "committed" else []), (outcome, found)


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("end", ["committed", "aborted"])
def test_all_or_nothing_of_a_transaction_counts_behind_whatever_step_its_region_dies(
    end: str, key: str | None
) -> None:
    async def scenario(bench: Bench, killed: Killed) -> None:
        killed.arm()
        outcome = ""
        try:
            transaction = await bench.process()
            await (transaction.commit() if end == "committed" else transaction.abort())
            outcome = end
        except ClientError:
            outcome = "aborted"  # its messages are uncertain, so the program aborted it
        await bench.w.quiet()  # the coordinator's remaining writes are steps, too
        killed.disarm()
        await bench.w.ready()
        await _all_or_nothing(bench, outcome)

    steps = killed_behind_every_step(scenario, key)
    last = [journal[-1] if journal else "" for journal in map(_of_journal, steps)]
    assert {"began", "partitions", "subscriptions", "decided", "ended"} <= set(last)
    marker = "commit" if end == "committed" else "abort"
    assert any("decided" in one and marker not in one for one in steps), "nothing between decision and marker"
    assert any(marker in one and "ended" not in one for one in steps), "nothing between marker and end"


def _of_journal(steps: tuple[str, ...]) -> list[str]:
    return [one for one in steps if one not in ("message", "commit", "abort")]


def test_a_key_has_one_open_transaction_behind_whatever_step_its_region_dies_when_another_begins() -> None:
    """The first is abandoned: the second one aborts it."""

    async def scenario(bench: Bench, killed: Killed) -> None:
        await bench.process()
        killed.arm()
        await bench.client.new_transaction()
        await bench.w.quiet()
        killed.disarm()
        await bench.w.ready()
        _check_open(bench.w)

    killed_behind_every_step(_watched(scenario), KEY)


def test_so_it_is_when_another_program_takes_the_key() -> None:
    """Once the new program has its epoch, the former one's transaction does not count, though its client asks for it
    without a key."""

    async def scenario(bench: Bench, killed: Killed) -> None:
        transaction = await bench.process()
        killed.arm()
        host = bench.w.client_host("newcomer", "us")
        host.network.loop = bench.w.simulation.driver.loop
        newcomer = bench.w.client_on(host, ("us",), transaction_key=KEY)
        await newcomer.new_transaction()
        keyless = bench.w.client("us")
        late = Transaction(keyless.coordinators, transaction.id, keyless.service_address)
        with pytest.raises(ClientError):
            await late.commit()
        await bench.w.quiet()
        killed.disarm()
        await bench.w.ready()
        _check_open(bench.w)
        await newcomer.close()
        bench.client = keyless
        assert await bench.results() == []
        assert not await bench.is_consumed()

    killed_behind_every_step(_watched(scenario), KEY)


def _watched(scenario: SimulatedScenario) -> SimulatedScenario:
    """Also check the stored state after each death."""

    async def whole(bench: Bench, killed: Killed) -> None:
        die = killed._die

        def die_and_check() -> None:
            die()
            assert _open_at_once(bench.w) <= 1

        killed._die = die_and_check  # type: ignore[method-assign]
        await scenario(bench, killed)

    return whole


def _open_at_once(w: World) -> int:
    """Return the largest number of open transactions of the key, at any end of its coordinator's log."""
    open_ones: set[int] = set()
    most = 0
    for data in w.regions["us"].medium.logs[f"{COORDINATOR_LOG}{coordinator_of(KEY, 4)}"].entries:
        what, least, *_ = json.loads(data)
        if what == "began":
            open_ones.add(least)
        elif what == "decided":
            open_ones.discard(least)
        most = max(most, len(open_ones))
    return most


def _check_open(w: World) -> None:
    assert _open_at_once(w) <= 1
    broker: Any = w.regions["us"].broker
    of_key = broker.coordinators.get(coordinator_of(KEY, 4)).core.of_key("", KEY)
    assert sum(one.status is TransactionStatus.OPEN for one in of_key) <= 1
