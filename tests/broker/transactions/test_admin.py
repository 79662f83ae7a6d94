"""Transactions and keys in the admin API, stats, explanations and metrics."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from emulator.broker.explain.topics import NotKnown, explain
from emulator.client import Client, InitialPosition
from emulator.config.broker_settings import BrokerSettings
from emulator.model.transaction_names import TransactionStatus
from tests.broker.admin.served import Served, served
from tests.broker.regions import regions, until

KEYS = ["/admin/v2/transactions/transaction-keys", "/admin/v3/transactions/transaction-keys"]
V3 = "/admin/v3/transactions"


@pytest.fixture
def at() -> Iterator[Served]:
    with served() as region:
        yield region


def play(at: Served, scenario: Callable[[Client], Awaitable[Any]], key: str | None = "task-1") -> Any:
    """Run with a client in the region's own loop, so that its transactions stay open until the next scenario."""

    async def within() -> Any:
        client = Client(f"pulsar://127.0.0.1:{at.service_port}", transaction_key=key)
        return await scenario(client)

    return asyncio.run_coroutine_threadsafe(within(), at.loop).result(30)


async def begin(client: Client) -> Any:
    transaction = await client.new_transaction(timeout_seconds=60)
    producer = await client.producer("orders")
    await producer.send(b"x", transaction=transaction)
    return transaction


@pytest.mark.parametrize("path", KEYS)
def test_keys_are_listed_shown_and_deleted(at: Served, path: str) -> None:
    assert at.get(path) == []
    transaction = play(at, begin)
    assert at.get(path) == ["task-1"]
    shown = at.get(f"{path}/task-1")
    assert (shown["transactionKey"], shown["owner"], shown["epoch"]) == ("task-1", "", 0)
    assert (shown["transactionId"], shown["transactionStatus"]) == (transaction.id.text, "OPEN")
    assert shown["connected"]
    assert at.ask("DELETE", f"{path}/task-1").status == 204
    assert at.get(path) == []
    assert at.region.coordinators.status(transaction.id) is TransactionStatus.ABORTED
    assert at.ask("GET", f"{path}/task-1").status == 404
    assert at.ask("DELETE", f"{path}/task-1").status == 404


def test_a_key_of_two_owners_is_addressed_with_its_owner(at: Served) -> None:
    """Regions whose clients have no roles have no owners, so the test writes the second one."""
    play(at, begin)

    async def another() -> None:
        coordinator = at.region.coordinators.get(at.region.coordinators.coordinator_of("task-1"))
        coordinator.keys.book.connect("joe", "task-1", -1, "", 0)

    asyncio.run_coroutine_threadsafe(another(), at.loop).result(30)
    assert at.get(KEYS[0]) == ["joe&task-1", "task-1"]
    ambiguous = at.ask("GET", f"{KEYS[0]}/task-1")
    assert ambiguous.status == 409
    assert "'joe'" in ambiguous.json()["reason"]
    assert at.get(f"{KEYS[0]}/joe%26task-1")["owner"] == "joe"
    assert at.get(f"{KEYS[0]}/%26task-1")["owner"] == ""


def test_a_transaction_is_shown_while_it_is_open_and_after_it(at: Served) -> None:
    transaction = play(at, begin)
    most, least = transaction.id
    shown = at.get(f"{V3}/transactionMetadata/{most}/{least}")
    assert (shown["txnId"], shown["status"]) == (transaction.id.text, "OPEN")
    assert list(shown["producedPartitions"]) == ["persistent://public/default/orders"]
    assert (shown["timeoutAt"], shown["transactionKey"]) == (60_000, "task-1")
    stats = at.get(f"{V3}/coordinatorStats?coordinatorId={most}")
    assert (stats["state"], stats["ongoingTxnSize"]) == ("Ready", 1)
    assert set(at.get(f"{V3}/coordinatorStats")) == {"0", "1", "2", "3"}
    assert at.get(f"{V3}/coordinatorInternalStats/{most}")["transactionLogStats"]["numberOfEntries"] == 2
    assert len(at.get(f"{V3}/coordinators")) == 4
    assert transaction.id.text in at.get(f"{V3}/slowTransactions/0")
    assert at.get(f"{V3}/slowTransactions/600000") == {}
    buffer = at.get(f"{V3}/transactionBufferStats/public/default/orders")
    assert buffer["ongoingTransactions"] == [transaction.id.text]
    held = at.get(f"{V3}/transactionInBufferStats/public/default/orders/{most}/{least}")
    assert held["messages"] == 1
    assert at.ask("POST", f"{V3}/abortTransaction/{most}/{least}").status == 204
    assert at.get(f"{V3}/transactionMetadata/{most}/{least}")["status"] == "ABORTED"
    gone = at.ask("GET", f"{V3}/transactionInBufferStats/public/default/orders/{most}/{least}")
    assert gone.status == 404


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "transactionMetadata/0/9", 404),
        ("GET", "transactionMetadata/9/9", 404),
        ("GET", "transactionMetadata/a/9", 400),
        ("GET", "transactionMetadata/0/99999999999999999999999", 400),
        ("GET", "slowTransactions/-1", 400),
        ("GET", "coordinatorStats?coordinatorId=9", 404),
        ("POST", "abortTransaction/0/9", 404),
        ("POST", "transactionCoordinator/replicas", 406),
    ],
)
def test_requests_for_unknown_transactions_are_refused_with_a_reason(
    at: Served, method: str, target: str, status: int
) -> None:
    reply = at.ask(method, f"{V3}/{target}", b"5" if "replicas" in target else None)
    assert reply.status == status
    assert " " in reply.json()["reason"]


def test_clients_with_an_http_url_find_the_coordinators(at: Served) -> None:
    topic = "persistent/pulsar/system/transaction_coordinator_assign"
    assert at.get(f"/admin/v2/{topic}/partitions") == {"partitions": 4}
    assert at.get(f"/lookup/v2/topic/{topic}-partition-0")["brokerUrl"].startswith("pulsar://")


ODD = ["a/b", "..", ".", "a%2Fb", "%", 'say "so"\\', "?x#y", "ключ 🗝", " ", "transaction-keys", "🗝" * 255]


@pytest.mark.parametrize("path", KEYS)
def test_a_key_with_special_characters_is_addressed_by_its_encoded_name_and_listed_in_metrics(
    at: Served, path: str
) -> None:
    for key in ODD:
        play(at, begin, key)
    assert at.get(path) == sorted(ODD)
    text = at.ask("GET", "/metrics").body.decode()
    for key in ODD:
        label = key.replace("\\", "\\\\").replace('"', '\\"')
        assert f'pulsar_txn_transaction_key_epoch{{cluster="us",transaction_key="{label}"}} 0\n' in text
        target = f"{path}/{quote(key, safe='')}"
        assert at.get(target)["transactionKey"] == key
        assert at.ask("DELETE", target).status == 204
    assert at.get(path) == []


def test_metrics_name_no_more_keys_than_the_setting_allows_and_those_that_changed_last() -> None:
    with served(settings=BrokerSettings(transaction_key_labels_max=2)) as at:
        for number in range(5):
            play(at, begin, f"task-{number}")
        lines = at.ask("GET", "/metrics").body.decode().splitlines()
        assert 'pulsar_txn_transaction_key_count{cluster="us"} 5' in lines
        for figure in ("epoch", "age_sum", "age_count"):
            assert sum(one.startswith(f"pulsar_txn_transaction_key_{figure}{{") for one in lines) == 2


def test_the_age_of_a_key_that_was_deleted_begins_anew_and_its_epoch_does_not(at: Served) -> None:
    play(at, begin, "a")
    assert at.ask("DELETE", f"{KEYS[0]}/a").status == 204
    play(at, begin, "a")
    text = at.ask("GET", "/metrics").body.decode()
    assert 'pulsar_txn_transaction_key_epoch{cluster="us",transaction_key="a"} 2\n' in text
    assert 'pulsar_txn_transaction_key_age_count{cluster="us",transaction_key="a"} 1\n' in text


def test_explain_names_the_key_of_the_transaction_that_blocks_a_topic_and_its_age(at: Served) -> None:
    transaction = play(at, begin, "settlement")

    async def explained() -> str:
        return explain(at.region, "topic", "orders").why

    why = asyncio.run_coroutine_threadsafe(explained(), at.loop).result(10)
    assert re.search(rf"transaction {re.escape(transaction.id.text)} of .* open for \d+\.\d s", why), why
    assert "begun under key 'settlement', epoch 0" in why


def test_metrics_name_transactions_and_transaction_keys(at: Served) -> None:
    for key in ("a", "b"):
        play(at, begin, key)
    text = at.ask("GET", "/metrics").body.decode()
    assert 'pulsar_txn_transaction_key_count{cluster="us"} 2\n' in text
    assert 'pulsar_txn_transaction_key_epoch{cluster="us",transaction_key="a"} 0\n' in text
    assert 'pulsar_txn_transaction_key_age_count{cluster="us",transaction_key="b"} 1\n' in text
    assert "# TYPE pulsar_txn_transaction_key_age summary\n" in text
    created = [line for line in text.splitlines() if line.startswith("pulsar_txn_created_total{")]
    assert sum(int(line.split()[1]) for line in created) == 2


async def test_explain_names_the_transaction_that_blocks_a_topic() -> None:
    async with regions("us") as world, world.client("us") as client:
        transaction = await begin(client)
        region = world.running["us"]
        topic = explain(region, "topic", "orders")
        assert f"transaction {transaction.id.text} of" in topic.why
        assert topic.waits_for == (f"transaction {transaction.id.text}",)
        one = explain(region, "transaction", transaction.id.text)
        assert one == explain(region, "transaction", transaction.id.text.strip("()"))
        assert "OPEN; begun without a key; participants are persistent://public/default/orders" in one.what
        await transaction.commit()
        assert (
            explain(region, "transaction", transaction.id.text).what == "COMMITTED: requested by its client"
        )
        assert explain(region, "topic", "orders").why == ""


def test_a_key_shows_each_of_its_transactions_with_its_state_and_its_last_client(at: Served) -> None:
    async def two(client: Client) -> tuple[Any, Any, Any]:
        committed, aborted = await begin(client), await client.new_transaction(timeout_seconds=60)
        return committed, aborted, await client.new_transaction(timeout_seconds=60)

    fenced, also_fenced, committed = play(at, two)
    play(
        at,
        lambda client: at.region.coordinators.get(committed.id.most).finish(
            committed.id.least, commit=True, why="requested by its client"
        ),
    )
    still_open = play(at, begin)
    shown = at.get(f"{KEYS[0]}/task-1")
    assert [(one["txnId"], one["status"], one["epoch"]) for one in shown["transactions"]] == [
        (fenced.id.text, "ABORTED", 0),
        (also_fenced.id.text, "ABORTED", 0),
        (committed.id.text, "COMMITTED", 0),
        (still_open.id.text, "OPEN", 1),
    ]
    assert "its key began another transaction" in shown["transactions"][0]["why"]
    assert re.fullmatch(r"\S+ at 127\.0\.0\.1:\d+", shown["lastClient"]), shown
    ended = at.get(f"{V3}/transactionMetadata/{committed.id.most}/{committed.id.least}")
    assert (ended["transactionKey"], ended["owner"]) == ("task-1", "")


async def test_explain_names_the_epoch_the_last_client_and_the_transactions_of_a_key() -> None:
    async with regions("us") as world:
        region = world.running["us"]
        with pytest.raises(NotKnown):
            explain(region, "transaction-key", "task-1")
        async with Client(f"pulsar://127.0.0.1:{world.ports['us']}", transaction_key="task-1") as client:
            transaction = await begin(client)
            one = explain(region, "transaction-key", "task-1")
            assert re.match(r"epoch 0, last used by \S+ at .+; transactions: \(\d,0\) OPEN$", one.what), one
            assert one.why == f"transaction {transaction.id.text} is OPEN"
            assert one.waits_for == (f"transaction {transaction.id.text}",)
            await transaction.commit()
            after = explain(region, "transaction-key", "task-1")
            assert after.what.endswith(f"{transaction.id.text} COMMITTED")
            assert (after.why, after.waits_for) == ("", ())


def test_a_key_whose_client_closed_is_not_connected(at: Served) -> None:

    async def scenario(client: Client) -> list[Any]:
        await begin(client)
        kept = list(at.region.clients.connections)  # so that the garbage collector changes nothing
        await client.close()
        await until(lambda: not at.region.clients.connections)
        return kept

    kept = play(at, scenario)
    shown = at.get(f"{KEYS[0]}/task-1")
    assert kept
    assert not shown["connected"]
    assert shown["transactions"][0]["status"] == "OPEN"


# The subscriptions of a transaction.

OF_S = "public/default/orders/s"


def test_pending_acknowledgements_of_a_transaction_are_shown_at_their_subscription(at: Served) -> None:
    async def read_and_hold(client: Client) -> Any:
        producer = await client.producer("orders")
        for number in range(3):
            await producer.send(b"%d" % number)
        consumer = await client.subscribe("orders", "s", initial_position=InitialPosition.EARLIEST)
        transaction = await client.new_transaction(timeout_seconds=60)
        for _ in range(2):
            await consumer.acknowledge(await consumer.receive(), transaction=transaction)
        return transaction

    transaction = play(at, read_and_hold)
    most, least = transaction.id
    stats = at.get(f"{V3}/pendingAckStats/{OF_S}")
    assert (stats["ongoingTransactions"], stats["heldEntries"]) == ([transaction.id.text], 2)
    held = at.get(f"{V3}/transactionInPendingAckStats/{OF_S}/{most}/{least}")
    assert held == {"cumulativeAckPosition": None, "individualAcks": 2}
    ledger = at.get("/admin/v2/persistent/public/default/orders/lastMessageId")["ledgerId"]
    position = f"{V3}/positionStatsInPendingAck/{OF_S}/{ledger}"
    states = [at.get(f"{position}/{entry}")["state"] for entry in range(4)]
    assert states == ["PendingAck", "PendingAck", "NotInPendingAck", "InvalidPosition"]
    assert at.get(f"{position}/2?batchIndex=999999999999")["state"] == "NotInPendingAck"
    assert at.ask("GET", f"{position}/x").status == 400
    assert at.get(f"{V3}/pendingAckInternalStats/{OF_S}") == {"pendingAckLogStats": None}
    assert at.get(f"{V3}/transactionBufferInternalStats/public/default/orders") == {"snapshotType": None}
    assert "geoemu_txn_pending_ack_entries" in at.ask("GET", "/metrics").body.decode()
    assert at.ask("GET", f"{V3}/pendingAckStats/public/default/orders/other").status == 404
    assert at.ask("GET", f"{V3}/transactionInPendingAckStats/{OF_S}/{most}/{least + 1}").status == 404
