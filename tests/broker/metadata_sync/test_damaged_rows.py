"""Damaged rows of the configuration store: metadata sync reports each, replaces it, and continues with all others."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from emulator.broker.admin.region_metrics import metadata_metrics
from emulator.broker.explain.topics import explain
from emulator.broker.metadata_sync.settings import differences
from emulator.broker.metadata_sync.sync_leader import SyncLeader
from emulator.broker.region import Region
from emulator.core.metadata.stored import encode_excluded
from emulator.core.policies.topics import DEDUPLICATION
from emulator.model.stored_keys import (
    SYNC_APPLIED_PATH,
    SYNC_CLOCK_PATH,
    SYNC_INCOMPLETE_PATH,
    SYNC_LEASE_PATH,
    SYNC_PENDING_PATH,
    SYNC_SEEN_TO_PATH,
    NamespacePath,
    SyncExcludedPath,
    SyncLossPath,
    SyncPeerPath,
    SyncRecordPath,
    TenantPath,
)
from emulator.model.values import Change
from tests.broker.metadata_sync.clusters import (
    NAMESPACE,
    SIDES,
    are_alike,
    clusters,
    create,
    soon,
    synchronizer,
)
from tests.broker.regions import Regions

OTHER = NamespacePath("acme/other")
ROWS = {
    "lease": SYNC_LEASE_PATH,
    "clock": SYNC_CLOCK_PATH,
    "applied": SYNC_APPLIED_PATH,
    "seen-to": SYNC_SEEN_TO_PATH,
    "drawn": SYNC_PENDING_PATH,
    "incomplete": SYNC_INCOMPLETE_PATH,
    "peer": SyncPeerPath("europe"),
    "excluded": SyncExcludedPath("europe"),
    "loss": SyncLossPath("europe"),
    "record": SyncRecordPath(NAMESPACE.text),
    "record of a tenant": SyncRecordPath(TenantPath("acme").text),
    "tombstone": SyncRecordPath(OTHER.text),
}
DAMAGE = (
    b"\x00\xff",
    b"",
    b'"text"',
    b"7",
    b"[1, [], {}]",
    b"null",
    b'{"region": 5, "entries": {"": [1]}, "by": 7, "times": -1, "incarnation": 1}',
    b"[" * 100_000,
)

pytestmark = [pytest.mark.within(120), pytest.mark.usefixtures("simulation")]


def metric(region: Region, name: str) -> float:
    return next(value for found, _, value in metadata_metrics(region) if found == name)


def why(region: Region, path: str) -> str:
    return explain(region, "metadata", path).why


async def settled(world: Regions) -> None:
    """Both clusters have one namespace, and a tombstone of another one."""
    us = world.running["us-east"]
    await create(us)
    await us.metadata.put(OTHER.text, b"{}")
    await soon(lambda: are_alike(world))
    world.cut("us-east", "eu")
    world.cut("us-west", "eu")
    await us.metadata.put(OTHER.text, None)


def heal(world: Regions) -> None:
    world.heal("us-east", "eu")
    world.heal("us-west", "eu")


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_a_damaged_row_is_reported_and_replaced_and_sync_goes_on(row: Any) -> None:
    """While a tombstone, and a change that no other cluster has yet, are in the store."""
    async with clusters(SIDES) as world:
        us, eu = world.running["us-east"], world.running["eu"]
        await settled(world)
        before = us.metadata.get(NAMESPACE.text)
        damage = synchronizer(us).damage
        for value in DAMAGE:
            damage.reports.clear()
            await us.metadata.put(row.text, value)
            await soon(lambda: row.text in damage.reports and not damage.found)
        assert metric(us, "geoemu_metadata_rows_damaged_total") >= len(DAMAGE)
        assert us.metadata.get(NAMESPACE.text) == before, "no document changes"
        heal(world)
        await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        await soon(lambda: eu.policies.of_namespace("acme/orders", DEDUPLICATION) is True)
        await eu.policies.set(NAMESPACE, DEDUPLICATION, False)
        await soon(lambda: us.policies.of_namespace("acme/orders", DEDUPLICATION) is False)
        await soon(lambda: are_alike(world))
        await soon(lambda: us.metadata.get(SYNC_INCOMPLETE_PATH.text) is None)
        assert not eu.policies.has_namespace("acme/other")
        assert metric(us, "geoemu_metadata_sync_failures_total") == 0
        assert "is damaged" in why(us, row.text)
        assert ("is damaged" in why(us, NAMESPACE.text)) is (row == ROWS["record"])


def test_a_damaged_report_does_not_hide_what_other_clusters_exclude() -> None:
    rows = {
        SyncExcludedPath(cluster).text: Change(1, SyncExcludedPath(cluster).text, value, 0)
        for cluster, value in (("asia", encode_excluded(("tenant/x",))), ("europe", b"7"))
    }
    metadata, settings = (
        SimpleNamespace(get=rows.get),
        SimpleNamespace(clusters=("asia", "europe"), excluded=()),
    )
    found = list(differences(cast(Any, metadata), cast(Any, settings)))
    assert [(one.cluster, one.only_there) for one in found] == [("asia", ["tenant/x"])]


async def test_a_failure_is_no_reason_any_more_once_the_leader_begins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first step reads the whole event topic and may take long."""
    async with clusters(SIDES) as world:
        us = world.running["us-east"]
        await settled(world)
        at_work = asyncio.Event()

        async def step(leader: SyncLeader) -> None:
            at_work.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(synchronizer(world.running["us-west"]).lease, "renew_or_acquire", None)
        with monkeypatch.context() as broken:
            broken.setattr(synchronizer(us).lease, "renew_or_acquire", None)
            await soon(lambda: "TypeError" in synchronizer(us).failure)
            monkeypatch.setattr(SyncLeader, "step", step)
        await at_work.wait()
        await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        await soon(lambda: not synchronizer(us).failure)
        said = why(us, NAMESPACE.text)
        assert ("did not confirm" in said, "interrupted" in said) == (True, False)


async def test_an_unexpected_error_does_not_end_metadata_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted and explained until a step succeeds again."""
    async with clusters(SIDES) as world:
        us, eu = world.running["us-east"], world.running["eu"]
        await create(us)
        await soon(lambda: are_alike(world))
        with monkeypatch.context() as broken:
            broken.setattr(synchronizer(us).lease, "renew_or_acquire", None)
            broken.setattr(synchronizer(world.running["us-west"]).lease, "renew_or_acquire", None)
            await soon(lambda: synchronizer(us).metrics.failures > 0)
            assert "TypeError" in synchronizer(us).failure
            await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        await soon(lambda: eu.policies.of_namespace("acme/orders", DEDUPLICATION) is True)
        await soon(lambda: not synchronizer(us).failure)
        assert metric(us, "geoemu_metadata_sync_failures_total") > 0


async def test_a_damaged_document_does_not_prevent_synchronising_others() -> None:
    """Another program wrote it into the store, so it has no record either."""
    async with clusters(SIDES) as world:
        us, eu = world.running["us-east"], world.running["eu"]
        store = world.configurations["americas"]
        await create(us)
        await soon(lambda: are_alike(world))
        for name in ("us-east", "us-west"):
            await world.stop(name)
        document = json.dumps({"policies": []}).encode()
        for path in (TenantPath("broken").text, "namespace/acme%2Fbroken", "nonsense", "sync-record/%zz"):
            store.transact(lambda rows, path=path: rows.put(path, document))
        for name in ("us-east", "us-west"):
            us = await world.start(name)
        await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        await soon(lambda: eu.policies.of_namespace("acme/orders", DEDUPLICATION) is True)


async def test_the_failure_of_a_region_that_is_not_the_leader_is_no_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with clusters(SIDES) as world:
        us, west = world.running["us-east"], world.running["us-west"]
        await settled(world)
        await soon(lambda: synchronizer(us).lease.is_held or synchronizer(west).lease.is_held)
        other = west if synchronizer(us).lease.is_held else us
        monkeypatch.setattr(synchronizer(other).lease, "renew_or_acquire", None)
        await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        await soon(lambda: "TypeError" in synchronizer(other).failure)
        await soon(lambda: "did not confirm" in why(other, NAMESPACE.text))
        assert "interrupted" not in why(other, NAMESPACE.text)
