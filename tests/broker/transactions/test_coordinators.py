"""Coordinators of a region: requests of clients, and the state after a restart."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from emulator.broker.transactions import coordinator
from emulator.config.broker_settings import BrokerSettings
from emulator.errors import EXPIRED_TRANSACTION, ProtocolError, ServerError, StorageError
from emulator.model.transaction_names import TransactionStatus, TxnId
from emulator.wire import pulsar_pb2 as pb
from tests.broker.connection.raw import RawClient, raw_client
from tests.broker.connection.test_refusals import partitions
from tests.broker.regions import Regions, regions, until
from tests.broker.transactions.coordinator_requests import (
    KEY,
    TOPIC,
    add_partition,
    add_subscription,
    begin,
    connect,
    end,
    home,
    status,
    store_of,
)

COORDINATORS = "persistent://pulsar/system/transaction_coordinator_assign"


async def restarted(world: Regions) -> RawClient:
    await world.crash("us")
    await world.start("us")
    return await RawClient.connect(world)


async def test_clients_find_the_coordinators_by_partitions_of_their_topic() -> None:
    async with regions("us", transaction_coordinators=3) as world, raw_client(world) as client:
        answer = (await client.ask(partitions(COORDINATORS))).partitionMetadataResponse
        assert answer.partitions == 3
        for number in range(3):
            lookup = pb.CommandLookupTopic(request_id=1, topic=f"{COORDINATORS}-partition-{number}")
            found = await client.ask(pb.BaseCommand(type=pb.BaseCommand.LOOKUP, lookupTopic=lookup))
            assert found.lookupTopicResponse.response == pb.CommandLookupTopicResponse.Connect
            answer_ = await connect(client, number)
            assert not answer_.HasField("error")
            assert not answer_.HasField("epoch")
        assert (await connect(client, 3)).error == pb.TransactionCoordinatorNotFound


@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_begins_and_ends(commit: bool) -> None:
    async with regions("us") as world, raw_client(world) as client:
        await client.open_producer()
        await client.subscribe()
        txn = await begin(client, coordinator=2)
        assert (txn.txnid_most_bits, txn.txnid_least_bits) == (2, 0)
        assert not (await add_partition(client, txn)).HasField("error")
        assert not (await add_subscription(client, txn, "s")).HasField("error")
        assert status(world, txn) is TransactionStatus.OPEN
        answer = await end(client, txn, commit=commit)
        assert (answer.txnid_most_bits, answer.HasField("error")) == (2, False)
        assert status(world, txn) is (TransactionStatus.COMMITTED if commit else TransactionStatus.ABORTED)


async def test_an_end_request_whose_response_was_lost_may_be_repeated() -> None:
    """Also after a restart of the region. The other outcome is rejected, and so is any further operation."""
    async with regions("us") as world, raw_client(world) as client:
        txn = await begin(client)
        await end(client, txn)
        again = await restarted(world)
        assert not (await end(again, txn)).HasField("error")
        assert (await end(again, txn, commit=False)).error == pb.InvalidTxnStatus
        assert (await add_partition(again, txn)).error == pb.InvalidTxnStatus


async def test_an_open_transaction_survives_a_restart() -> None:
    async with regions("us") as world, raw_client(world) as client:
        await client.open_producer()
        txn = await begin(client)
        await add_partition(client, txn)
        again = await restarted(world)
        world.running["us"].coordinators.check_publish(TxnId(0, 0), TOPIC)
        assert not (await end(again, txn)).HasField("error")
        assert (await begin(again)).txnid_least_bits == 1


async def test_unknown_transactions_are_not_found() -> None:
    async with regions("us") as world, raw_client(world) as client:
        nobody = pb.CommandNewTxnResponse(request_id=0, txnid_most_bits=1, txnid_least_bits=5)
        assert (await end(client, nobody)).error == pb.TransactionNotFound
        assert (await add_partition(client, nobody)).error == pb.TransactionNotFound
        beyond = pb.CommandNewTxnResponse(request_id=0, txnid_most_bits=77, txnid_least_bits=5)
        assert (await end(client, beyond)).error == pb.TransactionCoordinatorNotFound
        assert status(world, beyond) is None


async def test_a_transaction_that_is_open_for_too_long_is_aborted() -> None:
    async with regions("us") as world, raw_client(world) as client:
        txn = await begin(client, timeout_ms=1)
        await until(lambda: status(world, txn) is TransactionStatus.ABORTED)
        answer = await end(client, txn)
        assert answer.error == pb.InvalidTxnStatus
        assert "timed out" in answer.message


async def test_a_time_out_continues_after_a_restart() -> None:
    async with regions("us") as world, raw_client(world) as client:
        txn = await begin(client, timeout_ms=100)
        await restarted(world)
        await until(lambda: status(world, txn) is TransactionStatus.ABORTED)


async def test_a_deleted_topic_counts_as_notified() -> None:
    async with regions("us") as world, raw_client(world) as client:
        txn = await begin(client)
        await add_partition(client, txn, "persistent://public/default/nowhere")
        await add_subscription(client, txn, "s", "persistent://public/default/nowhere")
        assert not (await end(client, txn)).HasField("error")


async def test_a_coordinator_whose_log_fails_is_loaded_again() -> None:
    """An unacknowledged request may have happened or not; an acknowledged one has."""
    async with regions("us") as world, raw_client(world) as client:
        kept = await begin(client)
        store = store_of(world)
        store.fail_next_group(StorageError("the disk is away", definite=True))
        assert (await begin(client)).error == pb.PersistenceError
        await until(lambda: 0 in world.running["us"].coordinators._loaded)
        assert status(world, kept) is TransactionStatus.OPEN
        assert not (await end(client, kept)).HasField("error")
        assert (await begin(client)).txnid_least_bits == 1


@pytest.mark.parametrize("count", [3, 0])
async def test_the_outcomes_of_a_former_coordinator_are_unknown_while_it_is_loaded_again(count: int) -> None:
    """TP4: a participant that received None would abort a transaction that may be committed."""
    async with regions("us") as world, raw_client(world) as client:
        txn = await begin(client, coordinator=3)
        await _restart_with_coordinators(world, count)
        coordinators = world.running["us"].coordinators
        failure = StorageError("the disk is away", definite=True)
        coordinators._replace_failed(coordinators.get(3), failure)
        for query in (
            lambda: status(world, txn),
            lambda: coordinators.check_publish(TxnId(3, txn.txnid_least_bits), TOPIC),
        ):
            with pytest.raises(ProtocolError, match="it is being loaded") as problem:
                query()
            assert problem.value.code is ServerError.ServiceNotReady
        with pytest.raises(ProtocolError, match="repeat the request"):
            coordinators.get(3)
        await until(lambda: 3 in coordinators._loaded)
        assert status(world, txn) is TransactionStatus.OPEN


async def test_the_log_is_summed_up_and_trimmed() -> None:
    async with regions("us", transaction_outcomes_max=10) as world, raw_client(world) as client:
        kept = await begin(client)
        for _ in range(400):
            await end(client, await begin(client))
        log = await world.running["us"].store.open_log("internal://pulsar/system/__transaction_log_0")
        assert log is not None
        await until(lambda: log.first_entry_id > 0)
        again = await restarted(world)
        assert status(world, kept) is TransactionStatus.OPEN
        assert (await begin(again)).txnid_least_bits == 401


async def test_a_region_that_stops_writes_which_transactions_are_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TX5: the response of END_TXN precedes that write, and its timer does not outlive the region."""
    monkeypatch.setattr(coordinator, "ENDED_SECONDS_MAX", 1_000)
    async with regions("us") as world, raw_client(world) as client:
        await end(client, await begin(client))
        timer = world.running["us"].coordinators.get(0)._ended_timer
        await world.stop("us")
        assert timer is not None
        assert timer.cancelled()
        await world.start("us")
        log = await world.running["us"].store.open_log("internal://pulsar/system/__transaction_log_0")
        assert log is not None
        kinds = [json.loads(entry.data)[0] for entry in await log.read(0, 100, 10_000)]
        assert kinds == ["began", "decided", "ended"]


# Keys.


async def test_a_newer_connection_fences_the_older_and_its_transaction() -> None:
    async with regions("us") as world, raw_client(world) as old, raw_client(world) as new:
        number = home(world)
        assert (await connect(old, number, key=KEY)).epoch == 0
        txn = await begin(old, number)
        assert (await connect(new, number, key=KEY)).epoch == 1
        assert status(world, txn) is TransactionStatus.ABORTED
        with pytest.raises(EOFError):
            await old.next()
        answer = await end(new, txn)
        assert answer.error == pb.NotAllowedError
        assert EXPIRED_TRANSACTION in answer.message
        with pytest.raises(ProtocolError, match=EXPIRED_TRANSACTION):
            world.running["us"].coordinators.check_publish(TxnId(number, txn.txnid_least_bits), TOPIC)
        again = await RawClient.connect(world)
        stale = await connect(again, number, key=KEY, epoch=0)
        assert stale.error == pb.NotAllowedError
        assert "stale" in stale.message
        assert not (await begin(new, number)).HasField("error")


async def test_the_same_connection_may_connect_again() -> None:
    """Its transaction is aborted all the same, and the connection stays."""
    async with regions("us") as world, raw_client(world) as client:
        number = home(world)
        await connect(client, number, key=KEY)
        txn = await begin(client, number)
        assert (await connect(client, number, key=KEY, epoch=0)).epoch == 1
        assert status(world, txn) is TransactionStatus.ABORTED
        assert not (await begin(client, number)).HasField("error")


async def test_a_key_has_one_open_transaction() -> None:
    async with regions("us") as world, raw_client(world) as client:
        number = home(world)
        await connect(client, number, key=KEY)
        first, second = await begin(client, number), await begin(client, number)
        await until(lambda: status(world, first) is TransactionStatus.ABORTED)
        assert status(world, second) is TransactionStatus.OPEN


async def test_a_fenced_transaction_stays_fenced_after_a_restart() -> None:
    async with regions("us") as world, raw_client(world) as old, raw_client(world) as new:
        number = home(world)
        await connect(old, number, key=KEY)
        txn = await begin(old, number)
        await connect(new, number, key=KEY)
        again = await restarted(world)
        assert status(world, txn) is TransactionStatus.ABORTED
        assert (await connect(again, number, key=KEY, epoch=0)).error == pb.NotAllowedError
        assert (await connect(again, number, key=KEY, epoch=1)).epoch == 2


async def test_a_key_is_bound_to_its_coordinator_and_checked() -> None:
    async with regions("us") as world, raw_client(world) as client:
        number = home(world)
        wrong = await connect(client, (number + 1) % 4, key=KEY)
        assert wrong.error == pb.NotAllowedError
        assert f"bound to coordinator {number}" in wrong.message
        bad = await connect(client, 0, key="a&b")
        assert bad.error == pb.NotAllowedError
        assert "'&'" in bad.message


async def test_the_number_of_coordinators_cannot_change_while_there_are_keys() -> None:
    async with regions("us") as world, raw_client(world) as client:
        number = home(world)
        await connect(client, number, key=KEY)
        await world.crash("us")
        world.settings["us"] = _with_coordinators(world, 5)
        with pytest.raises(StorageError, match="transaction_coordinators is 5 and was 4"):
            await world.start("us")
        world.settings["us"] = _with_coordinators(world, 4)
        await world.start("us")
        coordinator = world.running["us"].coordinators.get(number)
        await coordinator.keys.delete("", KEY)
        await world.crash("us")
        world.settings["us"] = _with_coordinators(world, 5)
        await world.start("us")
        again = await RawClient.connect(world)
        answer = await connect(again, home(world), key=KEY)
        assert answer.epoch > 1


async def test_a_rejected_first_request_does_not_unbind_later_keys() -> None:
    """INV-55: the number of coordinators is stored with the first granted key, not with a rejected request."""
    async with regions("us") as world, raw_client(world) as client:
        number = home(world)
        assert (await connect(client, number, key=KEY, epoch=3)).error == pb.NotAllowedError
        assert (await connect(client, number, key=KEY)).epoch == 0
        await world.crash("us")
        world.settings["us"] = _with_coordinators(world, 5)
        with pytest.raises(StorageError, match="transaction_coordinators is 5 and was 4"):
            await world.start("us")
        world.settings["us"] = _with_coordinators(world, 4)
        await world.start("us")


async def test_epochs_grow_when_the_number_of_coordinators_is_changed_back() -> None:
    """INV-55: the key belongs to coordinator 3 of 4 and to coordinator 1 of 3."""
    key, granted = "task-2", []
    async with regions("us") as world:
        for count in (4, 3, 4):
            await _restart_with_coordinators(world, count)
            number = home(world, key)
            for _ in range(3):
                async with raw_client(world) as client:
                    granted.append((await connect(client, number, key=key)).epoch)
            await world.running["us"].coordinators.get(number).keys.delete("", key)
    assert granted == sorted(set(granted))


async def test_a_region_with_keys_restarts_after_the_number_of_coordinators_was_reduced() -> None:
    """The log of a former coordinator still contains the former number."""
    key = "task-2"
    async with regions("us") as world:
        async with raw_client(world) as client:
            number = home(world, key)
            await connect(client, number, key=key)
            await world.running["us"].coordinators.get(number).keys.delete("", key)
        await _restart_with_coordinators(world, 3)
        async with raw_client(world) as client:
            epoch = (await connect(client, home(world, key), key=key)).epoch
        await _restart_with_coordinators(world, 3)
        async with raw_client(world) as client:
            assert (await connect(client, home(world, key), key=key)).epoch == epoch + 1


async def _restart_with_coordinators(world: Regions, count: int) -> None:
    await world.crash("us")
    world.settings["us"] = _with_coordinators(world, count)
    await world.start("us")


def _with_coordinators(world: Regions, count: int) -> BrokerSettings:
    return replace(world.settings["us"], transaction_coordinators=count)
