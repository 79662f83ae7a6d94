"""Real regions as processes: those of one cluster share one configuration store, and it outlives each of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from emulator.errors import RuntimeFailure
from emulator.runtimes.process import ProcessRuntime

from .fixtures import DEADLINE_SECONDS, small_topology


def delivered(run_dir: Path, region: str) -> list[tuple[Any, ...]]:
    lines = (run_dir / "regions" / region / "metadata.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert {event["region"] for event in events} == {region}
    return [(event["revision"], event["path"], event["version"], event["value"]) for event in events]


@pytest.mark.within(DEADLINE_SECONDS)
async def test_the_regions_of_a_cluster_share_one_configuration(tmp_path: Path) -> None:
    runtime = ProcessRuntime.create(small_topology(tmp_path), tmp_path / "run")
    await runtime.up()
    run_dir = runtime.run_dir
    assert [path.name for path in sorted((run_dir / "configuration").iterdir())] == ["americas", "europe"]
    east = delivered(run_dir, "us-east")
    # Each region received every change; only the first region to start wrote the topology.
    assert sorted(set(east)) == sorted(set(delivered(run_dir, "us-west")))
    assert [(revision, version) for revision, _, version, _ in sorted(set(east))] == [
        (revision, 0) for revision in range(1, len(set(east)) + 1)
    ]
    assert "namespace/public%2Fdefault" in {path for _, path, _, _ in east}
    await runtime.kill("us-east")
    await runtime.start("us-east")
    assert delivered(run_dir, "us-east")[len(east) :] == sorted(set(east))
    await runtime.down()


@pytest.mark.within(DEADLINE_SECONDS)
async def test_a_region_rejects_changes_after_its_store_was_moved_and_creates_no_new_one(
    tmp_path: Path,
) -> None:
    """No acknowledged change is lost: changes are rejected meanwhile, and a restart needs the store."""
    runtime = ProcessRuntime.create(small_topology(tmp_path), tmp_path / "run")
    await runtime.up()
    folder = runtime.run_dir / "configuration" / "americas"
    folder.rename(folder.with_suffix(".away"))
    status = {region.name: region for region in (await runtime.status()).regions}
    with pytest.raises(HTTPError) as refused:
        set_deduplication(status["us-west"].admin_url)
    assert refused.value.code == 503
    await runtime.kill("us-east")
    with pytest.raises(RuntimeFailure, match="is missing: this region used it before"):
        await runtime.start("us-east")
    folder.with_suffix(".away").rename(folder)
    await runtime.start("us-east")
    set_deduplication(status["us-west"].admin_url)
    await runtime.down()


def set_deduplication(admin_url: str) -> None:
    request = Request(
        f"{admin_url}/admin/v2/namespaces/public/default/deduplication",
        b"false",
        {"Content-Type": "application/json"},
        method="POST",
    )
    urlopen(request, timeout=DEADLINE_SECONDS).close()


ANSWERED = (
    ("PUT", "tenants/acme", {"allowedClusters": ["us-east", "us-west"]}),
    ("PUT", "namespaces/acme/orders", {"replication_clusters": ["us-east"]}),
    ("POST", "namespaces/acme/orders/deduplication", True),
    ("PUT", "namespaces/acme/orders/property/owner/ada", None),
    ("PUT", "persistent/acme/orders/invoices", {"colour": "blue"}),
    ("PUT", "persistent/acme/orders/invoices/subscription/billing", {"ledgerId": -1, "entryId": -1}),
    ("PUT", "persistent/acme/orders/parts/partitions", 3),
    ("POST", "persistent/acme/orders/invoices/deduplicationEnabled", False),
)
TOLD = (
    ("namespaces/acme", ["acme/orders"]),
    ("namespaces/acme/orders/deduplication", True),
    ("namespaces/acme/orders/properties", {"owner": "ada"}),
    ("persistent/acme/orders/invoices/properties", {"colour": "blue"}),
    ("persistent/acme/orders/invoices/subscriptions", ["billing"]),
    ("persistent/acme/orders/partitioned", ["persistent://acme/orders/parts"]),
    ("persistent/acme/orders/invoices/deduplicationEnabled", False),
)


@pytest.mark.within(DEADLINE_SECONDS)
async def test_what_the_admin_api_answered_survives_kill_9(tmp_path: Path) -> None:
    runtime = ProcessRuntime.create(small_topology(tmp_path), tmp_path / "run")
    await runtime.up()
    for method, path, body in ANSWERED:
        ask(await admin_url(runtime), method, path, body)
    await runtime.kill("us-east")
    await runtime.start("us-east")
    url = await admin_url(runtime)
    assert [(path, ask(url, "GET", path)) for path, _ in TOLD] == list(TOLD)
    await runtime.down()


async def admin_url(runtime: ProcessRuntime) -> str:
    return next(one.admin_url for one in (await runtime.status()).regions if one.name == "us-east")


def ask(url: str, method: str, path: str, body: object = None) -> Any:
    content = None if method == "GET" else json.dumps(body).encode()
    request = Request(f"{url}/admin/v2/{path}", content, {"Content-Type": "application/json"}, method=method)
    with urlopen(request, timeout=DEADLINE_SECONDS) as answer:
        text = answer.read()
    return json.loads(text) if text else None
