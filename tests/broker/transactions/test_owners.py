"""Roles as owners: of transaction keys, and of transactions."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.config.security import (
    AuthenticationConfig,
    AuthorizationConfig,
    SecurityConfig,
    TokenConfig,
)
from emulator.core.transactions.coordinator import Coordinator
from emulator.core.transactions.journal_format import Began, Holder, decode, encode
from emulator.errors import ProtocolError
from emulator.model.transaction_names import TransactionStatus
from emulator.wire import pulsar_pb2 as pb
from tests.broker.authentication.tokens import client_of, secret_file
from tests.broker.connection.raw import raw_client
from tests.broker.regions import regions
from tests.broker.transactions import coordinator_requests as requests
from tests.broker.transactions.coordinator_requests import KEY, home, status
from tests.core.transactions.test_coordinator import BOUNDS


def secured(folder: Path, *superusers: str) -> SecurityConfig:
    """Return the security of a region: authorization is off without superusers."""
    authentication = AuthenticationConfig(token=TokenConfig(secret_key=secret_file(folder)))
    return SecurityConfig(None, authentication, AuthorizationConfig(superusers) if superusers else None)


async def test_another_role_has_a_key_of_its_own(tmp_path: Path) -> None:
    """The same name under another role fences no client, and aborts no transaction."""
    async with (
        regions("us", security={"us": secured(tmp_path)}) as world,
        client_of(world, "app") as app,
        client_of(world, "other") as other,
    ):
        coordinator = home(world)
        assert (await requests.connect(app, coordinator, key=KEY)).epoch == 0
        txn = await requests.begin(app, coordinator)
        assert (await requests.connect(other, coordinator, key=KEY)).epoch == 0
        await requests.begin(other, coordinator)
        assert status(world, txn) is TransactionStatus.OPEN
        assert not (await requests.end(app, txn)).HasField("error")
        keys = world.running["us"].coordinators.get(coordinator).keys.book.keys
        assert {owner for owner, _ in keys} == {"app", "other"}


async def test_no_request_for_the_transaction_of_another_role(tmp_path: Path) -> None:
    async with (
        regions("us", security={"us": secured(tmp_path)}) as world,
        client_of(world, "app") as app,
        client_of(world, "other") as other,
    ):
        txn = await requests.begin(app)
        for answer in (
            await requests.add_partition(other, txn),
            await requests.add_subscription(other, txn, "s"),
            await requests.end(other, txn),
            await requests.end(other, txn, commit=False),
        ):
            assert answer.error == pb.TransactionNotFound
            assert "role 'other' is neither the owner" in answer.message
        assert status(world, txn) is TransactionStatus.OPEN
        async with client_of(world, "app") as again:  # another connection of the role
            assert not (await requests.add_partition(again, txn)).HasField("error")


async def test_a_superuser_may_end_every_transaction(tmp_path: Path) -> None:
    async with (
        regions("us", security={"us": secured(tmp_path, "admin")}) as world,
        client_of(world, "app") as app,
        client_of(world, "other") as other,
        client_of(world, "admin") as admin,
    ):
        txn = await requests.begin(app)
        assert (await requests.end(other, txn)).error == pb.TransactionNotFound
        assert not (await requests.end(admin, txn, commit=False)).HasField("error")


async def test_the_owner_survives_a_restart(tmp_path: Path) -> None:
    async with regions("us", security={"us": secured(tmp_path)}) as world:
        async with client_of(world, "app") as app:
            txn = await requests.begin(app)
        await world.crash("us")
        await world.start("us")
        async with client_of(world, "other") as other, client_of(world, "app") as app:
            assert (await requests.end(other, txn)).error == pb.TransactionNotFound
            assert not (await requests.end(app, txn)).HasField("error")


async def test_keys_without_an_owner_stay_so(tmp_path: Path) -> None:
    """When authentication is turned on, no role inherits keys and transactions of unauthenticated clients."""
    async with regions("us") as world:
        coordinator = home(world)
        async with raw_client(world) as client:
            await requests.connect(client, coordinator, key=KEY)
            assert (await requests.connect(client, coordinator, key=KEY, epoch=0)).epoch == 1
            txn = await requests.begin(client, coordinator)
        await world.stop("us")
        world.security["us"] = secured(tmp_path)
        await world.start("us")
        async with client_of(world, "app") as app:
            stale = await requests.connect(app, coordinator, key=KEY, epoch=1)
            assert stale.error == pb.NotAllowedError  # its epoch was granted to no role
            assert (await requests.connect(app, coordinator, key=KEY)).epoch == 0
            keys = world.running["us"].coordinators.get(coordinator).keys.book.keys
            assert {(state.owner, state.epoch) for state in keys.values()} == {("", 1), ("app", 0)}
            assert status(world, txn) is TransactionStatus.OPEN  # until it times out, or its key is deleted


def test_the_owner_is_stored_once() -> None:
    keyed = Began(1, 2, 3, Holder("app", "k", 4), "app")
    plain = Began(1, 2, 3, None, 'a "b"')
    assert encode(keyed) == b'["began",1,2,3,["app","k",4]]'
    assert encode(plain) == b'["began",1,2,3,null,"a \\"b\\""]'
    assert encode(Began(1, 2, 3, None)) == b'["began",1,2,3,null]'
    for entry in (keyed, plain, Began(1, 2, 3, None)):
        assert decode(encode(entry)) == entry


def test_checkpoints_keep_the_owner() -> None:
    coordinator = Coordinator(0, BOUNDS)
    entry = coordinator.begin(1_000, 0, None, 0, "app")
    copy = Coordinator(0, BOUNDS)
    for each in coordinator.checkpoint_entries():
        copy.apply(decode(encode(each)), 0)
    copy.check_owner(entry.least, "app")
    with pytest.raises(ProtocolError, match="neither the owner"):
        copy.check_owner(entry.least, "")
    copy.check_owner(99, "other")  # unknown transactions are another check's
