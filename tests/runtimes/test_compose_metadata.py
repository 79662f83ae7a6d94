"""Two clusters in containers share their metadata: a clock is set wrong, a store is lost and rebuilt, and the verdict
reads their stores."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from emulator.errors import Refused
from emulator.runtimes.compose.runtime import ComposeRuntime
from spark_jobs.checks.check import Circumstances
from spark_jobs.checks.metadata_converged import metadata_converged
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.engines.frames import use_engine
from spark_jobs.frames.metadata import compare_metadata, read_metadata
from spark_jobs.sources.run_folder import open_run_folder

from .containers import need_containers, remove
from .fixtures import admin_request
from .test_metadata_sync import CREATION, OFF, is_off, synchronised_topology, until_said

pytestmark = [pytest.mark.real, pytest.mark.slow]

CLOCK = "/geoemu/v1/clock"


def identity(store: Path) -> str:
    with closing(sqlite3.connect(store)) as connection:
        return str(dict(connection.execute("SELECT key, value FROM meta"))["identity"])


def test_the_verifier_checks_shared_metadata_after_a_clock_skew_and_a_lost_store_in_containers(
    tmp_path: Path,
) -> None:
    need_containers("region")
    run_dir = tmp_path / "run"
    runtime = ComposeRuntime.create(synchronised_topology(tmp_path), run_dir, detached=True)

    async def scenario() -> None:
        await runtime.up()
        east, _, europe = (await runtime.status()).regions
        assert await admin_request(east, "POST", CREATION, OFF) == 204
        await until_said(europe, CREATION, is_off)
        await runtime.skew("eu-central", -60_000)
        assert await admin_request(europe, "DELETE", CREATION) == 409, (
            "older than the stored change, by this clock"
        )
        await runtime.kill("eu-central")
        await runtime.start("eu-central")
        assert (await admin_request(europe, "GET", CLOCK))["ahead_ms"] == -60_000
        await runtime.skew("eu-central", 0)
        assert await admin_request(europe, "DELETE", CREATION) == 204
        await until_said(east, CREATION, lambda said: not is_off(said))
        await runtime.lose("eu-central")
        assert (await admin_request(east, "GET", "/geoemu/v1/clusters/europe/lost"))["lost"] is True
        with pytest.raises(Refused, match="runs: `geoemu lose --cluster americas` first"):
            await runtime.lose_store("americas")
        await runtime.lose_store("europe")
        assert await admin_request(east, "POST", CREATION, OFF) == 204
        await runtime.start("eu-central")
        assert (await admin_request(east, "GET", "/geoemu/v1/clusters/europe/lost"))["lost"] is False
        await until_said(europe, CREATION, is_off)
        await runtime.down()

    try:
        asyncio.run(asyncio.wait_for(scenario(), 120))
    finally:
        asyncio.run(remove(run_dir))
    kept = run_dir / "configuration" / "europe"
    lost, new = (identity(kept / one / "configuration.sqlite") for one in ("lost-1", "."))
    assert lost != new, "it began with a new store, and the lost one is kept"
    folder = open_run_folder(run_dir)
    with use_engine(EmbeddedEngine()):
        compared = compare_metadata(read_metadata(folder), end_ms=1e15)
    found = metadata_converged(compared, Circumstances(namespaces={}), 1e15, folder.clusters)
    assert found is not None
    assert found.verdict == "valid", found.sentence
    assert "americas and europe" in found.sentence
