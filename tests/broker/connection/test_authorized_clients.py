"""Clients of a region with authorization: what each role may attach, and what a grant or revocation changes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from emulator.broker.region import Region
from emulator.config.security import AuthenticationConfig, AuthorizationConfig, SecurityConfig, TokenConfig
from emulator.core.authorization.grants import Grants
from emulator.core.policies.permissions import PERMISSIONS, SUBSCRIPTION_AUTH_MODE
from emulator.model.stored_keys import NamespacePath
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import send_frame
from tests.broker.authentication.tokens import client_of, secret_file
from tests.broker.connection.raw import RawClient, entry
from tests.broker.metadata_sync.clusters import NAMESPACE, TWO, clusters, create, soon
from tests.broker.regions import Regions, regions

PRODUCE, CONSUME = frozenset({"produce"}), frozenset({"consume"})
DEFAULT = NamespacePath("public/default")


@asynccontextmanager
async def authorized(folder: Path, grants: Grants) -> AsyncIterator[Regions]:
    """Run a region whose superuser is `root`, with these grants on public/default."""
    security = SecurityConfig(
        authentication=AuthenticationConfig(token=TokenConfig(secret_key=secret_file(folder))),
        authorization=AuthorizationConfig(superusers=("root",)),
    )
    async with regions("us", security={"us": security}) as world:
        await world.running["us"].policies.set(DEFAULT, PERMISSIONS, grants)
        yield world


async def refused_producer(client: RawClient, producer_id: int = 1) -> str:
    """Request a producer, assert that it is refused, and return the message."""
    client.ask_for_producer(producer_id)
    answer = await client.next()
    assert (answer.error.request_id, answer.error.error) == (producer_id, pb.AuthorizationError)
    return answer.error.message


async def test_a_role_attaches_what_it_is_granted_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grants = Grants(by_role={"writer": PRODUCE, "reader": CONSUME})
    async with authorized(tmp_path, grants) as world:
        async with client_of(world, "root") as root, client_of(world, "writer") as writer:
            assert (await root.open_producer(name="first")).producer_name == "first"
            assert (await writer.open_producer()).producer_name == "p"
            answer = await writer.subscribe()
            assert answer.error.error == pb.AuthorizationError
        async with client_of(world, "reader") as reader:
            assert (await reader.subscribe()).success.request_id == 1
            with caplog.at_level(logging.INFO, "emulator.broker"):
                message = await refused_producer(reader)
            assert message == (
                "not authorized: role reader lacks produce on persistent://public/default/orders"
            )
            (line,) = [one.getMessage() for one in caplog.records if "refused" in one.getMessage()]
            assert message in line
            # The connection stays open, and its consumer attached.
            assert (await reader.subscribe(2, subscription="other")).success.request_id == 2
        refusals = {one.name: count for one, count in refusals_of(world.running["us"]).items() if count}
        assert refusals == {"CONSUME": 1, "PRODUCE": 1}


def refusals_of(region: Region) -> dict[object, int]:
    assert region.authorizer is not None
    return dict(region.authorizer.refusals)


async def test_a_producer_that_creates_a_subscription_must_be_allowed_to_consume_from_it(
    tmp_path: Path,
) -> None:
    grants = Grants(by_role={"writer": PRODUCE})
    async with authorized(tmp_path, grants) as world, client_of(world, "writer") as writer:
        writer.ask_for_producer(initial_subscription_name="dead")
        assert (await writer.next()).error.error == pb.AuthorizationError
        assert not world.running["us"].directory.exists("persistent://public/default/orders")


async def test_a_revocation_applies_to_the_next_producer_and_not_to_the_attached_one(tmp_path: Path) -> None:
    grants = Grants(by_role={"writer": PRODUCE})
    async with authorized(tmp_path, grants) as world, client_of(world, "writer") as writer:
        await writer.open_producer()
        await world.running["us"].policies.set(DEFAULT, PERMISSIONS, None)
        writer.writer.write(send_frame(1, 0, data=entry()))
        assert (await writer.next()).send_receipt.sequence_id == 0
        await refused_producer(writer, 2)
        topic = Grants(by_topic={"persistent://public/default/orders": {"writer": PRODUCE}})
        await world.running["us"].policies.set(DEFAULT, PERMISSIONS, topic)
        assert (await writer.open_producer(2, name="q")).producer_name == "q"


async def test_a_waiting_producer_of_an_unloaded_topic_needs_the_permission_again(tmp_path: Path) -> None:
    grants = Grants(by_role={"writer": PRODUCE})
    async with authorized(tmp_path, grants) as world, client_of(world, "writer") as writer:
        region = world.running["us"]
        await writer.open_producer(1, name="owner", producer_access_mode=pb.WaitForExclusive)
        writer.ask_for_producer(2, name="waiter", producer_access_mode=pb.WaitForExclusive)
        assert not (await writer.next()).producer_success.producer_ready
        await region.policies.set(DEFAULT, PERMISSIONS, None)
        await region.directory.unload("persistent://public/default/orders", "test")
        answers = [await writer.next(), await writer.next()]
        assert {one.close_producer.producer_id for one in answers if one.HasField("close_producer")} == {1}
        assert {one.error.error for one in answers if one.HasField("error")} == {pb.AuthorizationError}
        await region.policies.set(DEFAULT, PERMISSIONS, grants)
        again = await writer.open_producer(2, name="waiter", producer_access_mode=pb.WaitForExclusive)
        assert again.producer_name == "waiter"


async def test_subscription_names_must_begin_with_the_role_if_the_namespace_requires_it(
    tmp_path: Path,
) -> None:
    async with authorized(tmp_path, Grants(by_role={"reader": CONSUME})) as world:
        await world.running["us"].policies.set(DEFAULT, SUBSCRIPTION_AUTH_MODE, "Prefix")
        async with client_of(world, "reader") as reader:
            answer = await reader.subscribe(subscription="audit")
            assert answer.error.error == pb.AuthorizationError
            assert "must begin with the role reader" in answer.error.message
            assert (await reader.subscribe(subscription="reader-audit")).success.request_id == 1


@pytest.mark.within(60)
async def test_permissions_apply_in_all_clusters_that_synchronise_metadata() -> None:
    async with clusters(TWO) as world:
        us, eu = world.running["us"], world.running["eu"]
        await create(us)
        await soon(lambda: eu.policies.has_namespace("acme/orders"))
        granted = Grants(by_role={"writer": PRODUCE}, by_subscription={"audit": frozenset({"ada"})})
        await us.policies.set(NAMESPACE, PERMISSIONS, granted)
        await soon(lambda: eu.policies.of_namespace("acme/orders", PERMISSIONS) == granted)
        await us.tenancy.change_tenant("acme", us.tenancy.tenant("acme")._replace(admin_roles=("boss",)))
        await soon(lambda: eu.tenancy.admin_roles("acme") == ("boss",))
