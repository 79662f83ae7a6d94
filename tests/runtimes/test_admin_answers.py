"""kill -9 right after each response of the admin API: the acknowledged change is there when the region is back. And the
state of a run after an admin call shut a region down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from emulator.client import Client
from emulator.config.loading import load_topology
from emulator.runtimes.admin_client import call_url
from emulator.runtimes.contract import RegionStatus
from emulator.runtimes.process import ProcessRuntime

from .fixtures import admin_request

pytestmark = [pytest.mark.real, pytest.mark.long]
V2 = "/admin/v2"
ONE, MANY = "persistent/acme/orders/one", "persistent/acme/orders/many"
MESSAGES = 3
AVRO = '{"type":"record","name":"A","fields":[{"name":"a","type":"int"}]}'


class Step(NamedTuple):
    """A call, and the request that shows whether it happened."""

    method: str
    path: str
    body: Any
    look: str
    is_so: Callable[[Any], bool]
    """Condition on that response; it gets the status of a response that is no 200."""


def backlog(subscription: str, expected: int) -> Callable[[Any], bool]:
    return lambda said: said["subscriptions"][subscription]["msgBacklog"] == expected


def same(expected: Any) -> Callable[[Any], bool]:
    return lambda said: said == expected


STATS = f"{ONE}/stats"
BILLING = f"{ONE}/subscription/billing"
STEPS = [
    Step(
        "PUT",
        "tenants/acme",
        {"adminRoles": ["ada"], "allowedClusters": ["us"]},
        "tenants/acme",
        lambda said: said["adminRoles"] == ["ada"],
    ),
    Step(
        "POST",
        "tenants/acme",
        {"adminRoles": ["bea"], "allowedClusters": ["us"]},
        "tenants/acme",
        lambda said: said["adminRoles"] == ["bea"],
    ),
    Step("PUT", "namespaces/acme/orders", None, "namespaces/acme", same(["acme/orders"])),
    Step("POST", "namespaces/acme/orders/messageTTL", 60, "namespaces/acme/orders/messageTTL", same(60)),
    Step("DELETE", "namespaces/acme/orders/messageTTL", None, "namespaces/acme/orders/messageTTL", same(204)),
    Step(
        "POST",
        "namespaces/acme/orders/permissions/bea",
        ["produce", "consume"],
        "namespaces/acme/orders/permissions",
        lambda said: sorted(said["bea"]) == ["consume", "produce"],
    ),
    Step("PUT", ONE, None, "persistent/acme/orders", same(["persistent://acme/orders/one"])),
    Step("POST", f"{ONE}/maxConsumers", 3, f"{ONE}/maxConsumers", same(3)),
    Step("DELETE", f"{ONE}/maxConsumers", None, f"{ONE}/maxConsumers", same(204)),
    Step("PUT", f"{ONE}/properties", {"team": "a"}, f"{ONE}/properties", same({"team": "a"})),
    Step("PUT", f"{MANY}/partitions", 2, f"{MANY}/partitions", lambda said: said["partitions"] == 2),
    Step("POST", f"{MANY}/partitions", 5, f"{MANY}/partitions", lambda said: said["partitions"] == 5),
    Step("PUT", BILLING, None, f"{ONE}/subscriptions", same(["billing"])),
    Step(
        "POST", f"{BILLING}/resetcursor", {"ledgerId": -1, "entryId": -1}, STATS, backlog("billing", MESSAGES)
    ),
    Step("POST", f"{BILLING}/skip/1", None, STATS, backlog("billing", MESSAGES - 1)),
    Step("POST", f"{BILLING}/skip_all", None, STATS, backlog("billing", 0)),
    Step("PUT", f"{BILLING}/properties", {"k": "v"}, f"{BILLING}/properties", same({"k": "v"})),
    Step(
        "POST",
        "schemas/acme/orders/one/schema",
        {"type": "AVRO", "schema": AVRO, "properties": {}},
        "schemas/acme/orders/one/schema",
        lambda said: said["version"] == 0 and said["type"] == "AVRO",
    ),
    Step("DELETE", "schemas/acme/orders/one/schema", None, "schemas/acme/orders/one/schema", same(404)),
    Step("DELETE", BILLING, None, f"{ONE}/subscriptions", same([])),
    Step(
        "POST", f"{ONE}/terminate", None, f"{ONE}/internalStats", lambda said: said["state"] == "Terminated"
    ),
    Step("DELETE", f"{MANY}/partitions", None, "persistent/acme/orders/partitioned", same([])),
    Step("DELETE", ONE, None, "persistent/acme/orders", same([])),
    Step(
        "DELETE",
        "namespaces/acme/orders/permissions/bea",
        None,
        "namespaces/acme/orders/permissions",
        same({}),
    ),
    Step(
        "POST",
        "brokers/configuration/brokerDeduplicationEnabled/true",
        None,
        "brokers/configuration/values",
        same({"brokerDeduplicationEnabled": "true"}),
    ),
    Step("DELETE", "namespaces/acme/orders", None, "namespaces/acme", same([])),
    Step("DELETE", "tenants/acme", None, "tenants/acme", same(404)),
]


def run_one_region(folder: Path, scenario: Callable[[ProcessRuntime, RegionStatus], Awaitable[None]]) -> None:
    (folder / "clusters").mkdir()
    (folder / "clusters" / "one.yaml").write_text("regions: {us: {}}\n")
    path = folder / "topology.yaml"
    path.write_text(
        "name: one\nclusters: [one]\ntenants: [public]\nnamespaces: {public/default: {regions: all}}\n"
    )
    runtime = ProcessRuntime.create(load_topology(path), folder / "run", detached=False)

    async def whole() -> None:
        await runtime.up()
        await scenario(runtime, (await runtime.status()).regions[0])
        await runtime.down()

    asyncio.run(asyncio.wait_for(whole(), 180))


def test_nothing_that_was_answered_is_lost_by_a_kill_right_behind_the_answer(tmp_path: Path) -> None:
    async def scenario(runtime: ProcessRuntime, us: RegionStatus) -> None:
        for step in STEPS:
            if step.path == BILLING and step.method == "PUT":
                await _choose_published_ports(us)
            answer = await call_url(us.admin_url, step.method, f"{V2}/{step.path}", step.body)
            assert answer.status // 100 == 2, (step, answer)
            await runtime.kill("us")
            await runtime.start("us")
            said = await admin_request(us, "GET", f"{V2}/{step.look}")
            assert step.is_so(said), (step, said)

    run_one_region(tmp_path, scenario)


async def _choose_published_ports(us: RegionStatus) -> None:
    async with Client([us.service_url]) as client:
        producer = await client.producer("persistent://acme/orders/one")
        for number in range(MESSAGES):
            await producer.send(str(number).encode())


def test_a_region_that_was_shut_down_by_a_call_is_stopped_and_can_be_started(tmp_path: Path) -> None:
    async def scenario(runtime: ProcessRuntime, us: RegionStatus) -> None:
        shutdown = f"{V2}/brokers/shutdown?maxConcurrentUnloadPerSec=0&forcedTerminateTopic=true"
        assert await admin_request(us, "POST", shutdown) == 204
        async with asyncio.timeout(20):
            while (await runtime.status()).regions[0].state not in ("stopped", "killed"):
                await asyncio.sleep(0.05)
        assert (await runtime.status()).regions[0].state == "stopped"
        await runtime.start("us")
        assert (await runtime.status()).regions[0].state == "running"
        await runtime.kill("us")
        assert (await runtime.status()).regions[0].state == "killed"

    run_one_region(tmp_path, scenario)
