"""kill -9 after each single commit of a region on SQLite or Kafka, while a transaction runs. The transaction counts as
a whole or not at all, responses hold (INV-76), and the next task of its key receives what is left (INV-83)."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from emulator.broker.region import Region
from emulator.broker.transactions import key_registry
from emulator.client import EARLIEST, Client, ClientError, Consumer, ConsumerType, Transaction
from emulator.model.transaction_names import TxnId
from emulator.runtimes.kafka_server import KafkaServer
from tests.broker.regions import free_port
from tests.broker.transactions.killed_region import Place, Work, live, region_on, subscribed
from tests.broker.transactions.test_successors import Unreachable, acknowledge_upto, wants_messages
from tests.storage.kafka_place import new_prefix

pytestmark = [pytest.mark.real, pytest.mark.slow]

PATIENCE_SECONDS = 30
COMMITS_MAX = 40
INBOX = "persistent://public/default/inbox"
CUMULATIVE = Work(type=ConsumerType.FAILOVER, messages=(b"0", b"1", b"2"))

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.broker.transactions.killed_region"])


def told_until_killed(place: Place, port: int, after: int, work: Work) -> list[str]:
    """Return what a run reported before it was killed."""
    ours, theirs = processes.Pipe(duplex=False)
    child = processes.Process(target=live, args=(place, port, after, work, theirs))
    child.start()
    theirs.close()
    told = b""
    while ours.poll(PATIENCE_SECONDS) and (heard := os.read(ours.fileno(), 4096)):
        told += heard
    child.kill()
    child.join()
    ours.close()
    return told.decode().splitlines()


def began(told: list[str]) -> TxnId | None:
    return next((TxnId(*map(int, line.split()[1:])) for line in told if line.startswith("b")), None)


async def examine(place: Place, port: int, told: list[str], work: Work) -> None:
    """Check the state after the restart."""
    async with asyncio.timeout(PATIENCE_SECONDS), region_on(place, port) as (_, client):
        txn = began(told)
        if txn is not None:
            with suppress(ClientError):  # it may have been decided otherwise
                await Transaction(client.coordinators, txn, client.service_address).abort()
        consumer = await subscribed(client)
        found, is_left = await stored(client), await _is_given(client, consumer)
        assert (found, is_left) in (([b"it"], False), ([], True)), (told, found, is_left)
        if "d" in told:
            assert found == ([b"it"] if work.commit else []), (told, found)


async def stored(client: Client) -> list[bytes]:
    reader = await client.reader("outbox", EARLIEST)
    found = []
    while await reader.has_message():
        found.append((await reader.receive()).payload)
    await reader.close()
    return found


async def _is_given(client: Client, consumer: Consumer) -> bool:
    """Return whether the message of the inbox is delivered again: it comes in front of the next one."""
    await (await client.producer("inbox")).send(b"next")
    return (await consumer.receive()).payload == b"it"


def killed_behind_every_commit(
    place_of: Callable[[int], Place], work: Work, examine: Callable[..., object] = examine
) -> None:
    lives = []
    for after in count(1):
        assert after < COMMITS_MAX, "it never ends"
        place, port = place_of(after), free_port()
        told = told_until_killed(place, port, after, work)
        asyncio.run(examine(place, port, told, work))  # type: ignore[arg-type]
        lives.append(told)
        if "o" in told:
            break
    assert [] in lives, "none died before the response to the begin of the transaction"
    assert any("d" not in told and told for told in lives), "none died between its beginning and its end"
    assert len(lives) > 7, "there are fewer commits than steps"


def on_sqlite(folder: Path) -> Callable[[int], Place]:
    return lambda after: Place(sqlite=str(folder / f"{after}.sqlite"))


def on_kafka(server: KafkaServer) -> Callable[[int], Place]:
    return lambda after: Place(kafka=server.bootstrap_servers, topic_prefix=new_prefix())


@pytest.mark.parametrize("commit", [True, False])
def test_a_region_on_sqlite_that_is_killed_after_any_commit_has_all_of_a_transaction_or_nothing(
    commit: bool, tmp_path: Path
) -> None:
    killed_behind_every_commit(on_sqlite(tmp_path), Work(commit))


@pytest.mark.parametrize("commit", [True, False])
def test_a_region_on_kafka_that_is_killed_after_any_commit_has_all_of_a_transaction_or_nothing(
    commit: bool, kafka_server: KafkaServer
) -> None:
    killed_behind_every_commit(on_kafka(kafka_server), Work(commit))


async def succeed(place: Place, port: int, told: list[str], work: Work) -> None:
    """Let the next task process what is left, while the region cannot reach the subscription yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_registry, "FENCE_SECONDS", 0.05)
        unreachable = Unreachable(patch)
        async with asyncio.timeout(PATIENCE_SECONDS), region_on(place, port) as (region, client):
            await (await client.producer("inbox")).send(b"last")
            transaction = await client.new_transaction()
            consumer = await subscribed(client, work.type)
            await _until_received(region)
            unreachable.reached.set()
            outbox = await client.producer("outbox")
            message = None
            while message is None or message.payload != b"last":
                message = await consumer.receive()
                await outbox.send(message.payload, transaction=transaction)
            await acknowledge_upto(message, consumer, transaction)
            await transaction.commit()
            assert await stored(client) == [*work.messages, b"last"], told


async def _until_received(region: Region) -> None:
    """Wait until the consumer has received all available messages, before the transaction ends."""
    while not wants_messages(region, INBOX):
        await asyncio.sleep(0.002)


def test_the_next_task_of_a_key_processes_the_rest_after_a_kill_at_any_commit(tmp_path: Path) -> None:
    """Acknowledged cumulatively, so only the region can know that two tasks did the same."""
    killed_behind_every_commit(on_sqlite(tmp_path), CUMULATIVE, succeed)
