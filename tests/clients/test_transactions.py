"""Transactions with real clients: the Java client, and the Go client, which names them in its commands only."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import EARLIEST
from emulator.model.transaction_names import TransactionStatus, TxnId
from tests.broker.regions import until
from tests.clients.driving import Failed
from tests.clients.harness import ORDERS, Scene, clients

pytestmark = [
    pytest.mark.real,
    pytest.mark.scene(transactions="yes", timeout_ms=60_000, seconds=180),
    clients("python", "rust"),
]
OUTCOMES = pytest.mark.parametrize("outcome", ["commit", "abort"])


async def begin(scene: Scene, timeout_ms: int = 60_000) -> TxnId:
    """Begin the transaction `t`."""
    begun = await scene.program.ask("begin", client="us", key="t", timeout_ms=timeout_ms)
    return TxnId(int(begun["most"]), int(begun["least"]))


async def stored(scene: Scene, topic: str = "orders") -> list[bytes]:
    """Return the messages that a reader receives."""
    async with scene.world.client("us") as client:
        reader = await client.reader(topic, EARLIEST)
        found = []
        while await reader.has_message():
            found.append((await asyncio.wait_for(reader.receive(), 60)).payload)
        return found


@OUTCOMES
async def test_messages_count_when_their_transaction_commits(scene: Scene, outcome: str) -> None:
    """The plain message has a producer of its own: the Go client (0.15) keeps naming the transaction in later messages
    of the same producer."""
    program = scene.program
    for topic in ("orders", "bills"):
        await program.producer(topic, key=topic)
    await program.producer(key="plain")
    txn = await begin(scene)
    for topic in ("orders", "bills"):
        await program.send(f"of {topic}", key=topic, transaction="t")
    await program.send("plain", key="plain")
    assert await stored(scene) == await stored(scene, "bills") == []
    await program.ask(outcome, key="t")
    committed = outcome == "commit"
    assert await stored(scene) == ([b"of orders", b"plain"] if committed else [b"plain"])
    assert await stored(scene, "bills") == ([b"of bills"] if committed else [])
    ended = TransactionStatus.COMMITTED if committed else TransactionStatus.ABORTED
    assert scene.region.coordinators.status(txn) is ended


@OUTCOMES
async def test_acknowledgements_count_when_their_transaction_commits(scene: Scene, outcome: str) -> None:
    program = scene.program
    await program.producer()
    await program.subscribe(type="Shared")
    await program.send("1")
    await begin(scene)
    assert await program.receive(transaction="t") == "1"
    await program.ask(outcome, key="t")
    subscription = scene.region.directory.serving[ORDERS].subscriptions["s"]
    await until(lambda: subscription.backlog() == (0 if outcome == "commit" else 1))
    if outcome == "abort":
        assert await program.receive() == "1"


async def test_a_transaction_goes_on_after_a_crash_of_the_region(scene: Scene) -> None:
    await scene.program.producer()
    await begin(scene)
    await scene.program.send("before", transaction="t")
    await scene.restart()
    await scene.program.send("after", transaction="t")
    await scene.program.ask("commit", key="t")
    assert await stored(scene) == [b"before", b"after"]


async def test_a_transaction_whose_time_is_over_cannot_be_committed(scene: Scene) -> None:
    await scene.program.producer()
    txn = await begin(scene, timeout_ms=1_500)
    await scene.program.send("no", transaction="t")
    await until(lambda: scene.region.coordinators.status(txn) is TransactionStatus.ABORTED, 60)
    with pytest.raises(Failed):
        await scene.program.ask("commit", key="t")
    assert await stored(scene) == []
