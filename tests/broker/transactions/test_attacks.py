"""Malicious or faulty clients: their requests are rejected, and the transactions of others are unchanged."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.connection.consumers import NAME_LENGTH_MAX
from emulator.errors import StorageError
from emulator.model.transaction_names import TransactionStatus, TxnId
from emulator.model.values import TopicName
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.entry import build_entry
from tests.broker.connection.raw import raw_client
from tests.broker.regions import Regions, regions, until
from tests.broker.transactions.coordinator_requests import (
    KEY,
    TOPIC,
    add_partition,
    add_subscription,
    begin,
    begin_command,
    connect,
    connect_command,
    end,
    home,
    ids,
    status,
    store_of,
)


async def test_a_transaction_requested_right_after_its_key_belongs_to_that_key() -> None:
    async with regions("us") as world, raw_client(world) as first, raw_client(world) as second:
        number = home(world)
        first.send(connect_command(number, KEY))
        first.send(begin_command(number))
        answers = {answer.type: answer for answer in (await first.next(), await first.next())}
        txn = answers[pb.BaseCommand.NEW_TXN_RESPONSE].newTxnResponse
        assert not txn.HasField("error"), txn
        assert (await connect(second, number, key=KEY)).epoch == 1
        assert status(world, txn) is not TransactionStatus.OPEN


async def test_of_two_concurrent_requests_for_keys_a_connection_gets_one() -> None:
    async with regions("us") as world, raw_client(world) as client:
        keys = [key for key in map(str, range(100)) if home(world, key) == 0][:2]
        for request_id, key in enumerate(keys):
            client.send(connect_command(0, key, request_id=request_id))
        answers = [(await client.next()).tcClientConnectResponse for _ in keys]
        assert sorted(answer.HasField("error") for answer in answers) == [False, True]


async def test_of_two_connects_at_once_the_newer_epoch_stays() -> None:
    async with regions("us") as world, raw_client(world) as client:
        number = home(world)
        for request_id in range(2):
            client.send(connect_command(number, KEY, request_id=request_id))
        epochs = [(await client.next()).tcClientConnectResponse.epoch for _ in range(2)]
        assert sorted(epochs) == [0, 1]
        assert not (await begin(client, number)).HasField("error")


async def test_a_refused_request_for_a_transaction_leaves_the_key_s_open_one_alone() -> None:
    async with regions("us") as world, raw_client(world) as client:
        number = home(world)
        await connect(client, number, key=KEY)
        txn = await begin(client, number)
        for nonsense in (2**64 - 1, 2**63, 86_400_001):
            assert (await begin(client, number, nonsense)).error == pb.NotAllowedError
        assert status(world, txn) is TransactionStatus.OPEN


@pytest.mark.parametrize("coordinator", [4, 2**31, 2**63, 2**64 - 1])
async def test_a_coordinator_that_does_not_exist_is_refused(coordinator: int) -> None:
    async with regions("us") as world, raw_client(world) as client:
        assert (await connect(client, coordinator)).HasField("error")
        assert (await begin(client, coordinator)).HasField("error")
        none = pb.CommandNewTxnResponse(request_id=1, txnid_most_bits=coordinator, txnid_least_bits=2**64 - 1)
        assert (await add_partition(client, none)).HasField("error")
        assert (await add_subscription(client, none, "s")).HasField("error")
        assert (await end(client, none)).HasField("error")


@pytest.mark.parametrize("key", ["a&b", "&", "x" * 1_000_000, "\n", "\x00", "ключ\u202e", "a" * 256])
async def test_a_key_that_may_not_be_is_refused_in_a_short_sentence(key: str) -> None:
    async with regions("us") as world, raw_client(world) as client:
        for number in range(4):
            answer = await connect(client, number, key=key)
            assert answer.error == pb.NotAllowedError
            assert len(answer.message) < 1_000
        assert (await connect(client, home(world), key=KEY)).epoch == 0
        assert not (await begin(client, home(world))).HasField("error")


@pytest.mark.parametrize("epoch", [-2, 0, 1, 2**62, 2**63 - 1, -(2**63)])
async def test_an_epoch_that_was_never_granted_is_refused(epoch: int) -> None:
    async with regions("us") as world, raw_client(world) as client:
        number = home(world)
        assert (await connect(client, number, key=KEY, epoch=epoch)).error == pb.NotAllowedError
        assert (await connect(client, number, key=KEY)).epoch == 0


PLACES = [
    TOPIC,
    "persistent://public/default/parted",
    "persistent://public/default/parted-partition-1",
    "persistent://public/default/parted-partition-7",
    "persistent://public/default/over",
    "persistent://public/default/gone",
    "persistent://pulsar/system/transaction_coordinator_assign",
    "persistent://pulsar/system/transaction_coordinator_assign-partition-0",
    "persistent://pulsar/system/__transaction_log_0",
    "internal://pulsar/system/__transaction_log_0",
    "persistent://public/other/x",
    "non-persistent://public/default/x",
    "persistent://public/default/" + "n" * 100_000,
    "persistent://public/default/a/b",
    "",
    "\x00",
    "persistent://public/default/a\nb",
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: repr(place)[-40:])
@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_ends_whatever_participants_were_added(place: str, commit: bool) -> None:
    async with regions("us") as world, raw_client(world) as client:
        await _places(world)
        txn = await begin(client)
        added = await add_partition(client, txn, place)
        assert len(added.message) < 2_000, len(added.message)
        added_ = await add_subscription(client, txn, "s", place)
        assert len(added_.message) < 2_000
        answer = await end(client, txn, commit=commit)
        assert not answer.HasField("error"), answer


async def _places(world: Regions) -> None:
    region = world.running["us"]
    async with world.client("us") as client:
        for name in ("orders", "over", "gone"):
            producer = await client.producer(name)
            await producer.send(b"1")
            await producer.close()
    await region.partitioned.create(TopicName.parse("parted"), 2)
    await region.directory.serving["persistent://public/default/over"].termination.terminate()


async def test_only_its_coordinator_ends_a_transaction_at_a_participant() -> None:
    async with regions("us") as world, raw_client(world) as owner, raw_client(world) as forger:
        await owner.open_producer()
        txn = await begin(owner)
        await add_partition(owner, txn)
        owner.writer.write(sent(1, "p", b"x", txn))
        assert (await owner.next()).type == pb.BaseCommand.SEND_RECEIPT
        for action in (pb.COMMIT, pb.ABORT):
            for command in forged_ends(txn, action):
                assert (await forger.ask(command)).error.error == pb.NotAllowedError
        await forger.open_producer(2, name="q")
        for marker in (10, 20, 21, 22, 23, -1, 2**31 - 1):
            for in_command in (True, False):
                forger.writer.write(sent(2, "q", b"", txn, in_command=in_command, marker_type=marker))
                assert "only regions" in (await forger.next()).send_error.message
        topic = world.running["us"].directory.serving[TOPIC]
        assert list(topic.state.buffer.open) == [TxnId(0, 0)]
        assert status(world, txn) is TransactionStatus.OPEN


def sent(
    producer_id: int,
    name: str,
    payload: bytes,
    txn: pb.CommandNewTxnResponse,
    *,
    in_command: bool = True,
    sequence_id: int = 0,
    **fields: int,
) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name=name,
        sequence_id=sequence_id,
        publish_time=1,
        **ids(txn),
        **fields,  # type: ignore[arg-type]
    )
    return send_frame(
        producer_id,
        sequence_id,
        data=build_entry(metadata, payload),
        txn_most=txn.txnid_most_bits if in_command else None,
        txn_least=txn.txnid_least_bits if in_command else None,
    )


def forged_ends(txn: pb.CommandNewTxnResponse, action: pb.TxnAction) -> list[pb.BaseCommand]:
    at_topic = pb.CommandEndTxnOnPartition(request_id=1, topic=TOPIC, txn_action=action, **ids(txn))
    place = pb.Subscription(topic=TOPIC, subscription="s")
    at_subscription = pb.CommandEndTxnOnSubscription(
        request_id=1, subscription=place, txn_action=action, **ids(txn)
    )
    return [
        pb.BaseCommand(type=pb.BaseCommand.END_TXN_ON_PARTITION, endTxnOnPartition=at_topic),
        pb.BaseCommand(type=pb.BaseCommand.END_TXN_ON_SUBSCRIPTION, endTxnOnSubscription=at_subscription),
    ]


async def test_many_more_participants_than_are_allowed_are_refused() -> None:
    async with regions("us") as world, raw_client(world) as client:
        txn = await begin(client)
        body = pb.CommandAddPartitionToTxn(
            request_id=9,
            txnid_most_bits=0,
            txnid_least_bits=0,
            partitions=[f"t{number}" for number in range(100_000)],
        )
        command = pb.BaseCommand(type=pb.BaseCommand.ADD_PARTITION_TO_TXN, addPartitionToTxn=body)
        answer = (await client.ask(command)).addPartitionToTxnResponse
        assert answer.error == pb.NotAllowedError
        assert not (await end(client, txn)).HasField("error")


async def test_pending_writes_of_a_failed_coordinator_are_read_by_its_next_load() -> None:
    """Only one of its two logs failed: an append to the other may still become durable, and its number is taken."""
    async with regions("us") as world, raw_client(world) as first, raw_client(world) as second:
        await end(first, await begin(first))
        region = world.running["us"]
        coordinators, store = region.coordinators, store_of(world)
        coordinator = coordinators.get(0)
        store.hold()
        first.send(begin_command(0))
        await until(lambda: 1 in coordinator.core.live)
        coordinators._replace_failed(coordinator, StorageError("the log of keys is away", definite=False))
        for _ in range(50):
            await asyncio.sleep(0)
        store.release()
        told = (await first.next()).newTxnResponse
        assert told.HasField("error") or told.txnid_least_bits == 1
        await until(lambda: 0 in coordinators._loaded)
        assert (await begin(second)).txnid_least_bits == 2


async def test_a_subscription_that_a_consumer_may_open_may_take_part_in_a_transaction_and_no_longer_name() -> (
    None
):
    async with regions("us") as world, raw_client(world) as client:
        txn = await begin(client)
        longest = await add_subscription(client, txn, "s" * NAME_LENGTH_MAX)
        assert not longest.HasField("error"), longest
        for name in ("", "s" * (NAME_LENGTH_MAX + 1)):
            refused = await add_subscription(client, txn, name)
            assert refused.error == pb.NotAllowedError
            assert f"1 to 4,096 characters, it has {len(name):,}" in refused.message
