"""Links that are routed over others, on processes: what a fault of a hop does to them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from emulator.config.link_shape import LinkShape
from emulator.config.region import RegionConfig
from emulator.runtimes.contract import Link
from emulator.runtimes.process import ProcessRuntime

from .fixtures import DEADLINE_SECONDS, fake_program, small_topology

HOP = ("us-west", "eu-central")
ROUTED = ("us-east", "eu-central")


@pytest.fixture
def runtime(tmp_path: Path) -> ProcessRuntime:
    """Create us-east - us-west - eu-central, with 1 ms for each hop."""
    topology = small_topology(tmp_path, more="shape: chain\n")
    return ProcessRuntime.create(topology, tmp_path / "run", program=fake_program())


@pytest.fixture
def runner(runtime: ProcessRuntime) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Bring the run up for a test, and take it down."""

    def run(test: Coroutine[Any, Any, None]) -> None:
        async def steps() -> None:
            await runtime.up()
            await test
            await runtime.down()

        asyncio.run(asyncio.wait_for(steps(), DEADLINE_SECONDS))

    return run


async def shapes(runtime: ProcessRuntime) -> dict[Link, LinkShape]:
    return {
        (link.source, link.target): link.shape
        for link in (await runtime.status()).links
        if link.target != "clients"
    }


def received(runtime: ProcessRuntime, region: str) -> list[list[str]]:
    """Return every link state that a region received, in order."""
    file = runtime.run_dir / "regions" / region / "received.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


async def test_a_cut_hop_is_sent_to_the_ends_of_all_links_over_it(runtime: ProcessRuntime) -> None:
    declared = await shapes(runtime)
    assert declared[ROUTED] == LinkShape(2)
    await runtime.change_links([HOP], {"state": "cut"})
    assert received(runtime, "us-east") == [[*ROUTED, "cut"]]
    assert received(runtime, "us-west") == [[*HOP, "cut"]]
    assert sorted(received(runtime, "eu-central")) == [[*ROUTED, "cut"], [*HOP, "cut"]]
    await runtime.heal([HOP])
    assert received(runtime, "us-east")[-1] == [*ROUTED, "up"]
    assert await shapes(runtime) == declared


async def test_a_region_that_was_down_starts_with_the_cut_of_a_hop_elsewhere(runtime: ProcessRuntime) -> None:
    await runtime.kill("us-east")
    await runtime.change_links([HOP], {"state": "cut"})
    await runtime.start("us-east")
    config = RegionConfig.load(runtime.run_dir / "regions" / "us-east" / "region.json")
    assert {peer.region: peer.outbound.state for peer in config.peers} == {
        "us-west": "up",
        "eu-central": "cut",
    }


async def test_a_killed_region_still_passes_what_is_routed_over_it(runtime: ProcessRuntime) -> None:
    declared = await shapes(runtime)
    await runtime.kill("us-west")
    assert await shapes(runtime) == declared
    assert received(runtime, "us-east") == []


async def test_a_paused_region_receives_the_cut_of_a_hop_elsewhere_when_it_resumes(
    runtime: ProcessRuntime,
) -> None:
    await runtime.pause("us-east")
    await runtime.change_links([HOP], {"state": "held"})
    assert received(runtime, "us-east") == []
    await runtime.resume("us-east")
    assert [*ROUTED, "held"] in received(runtime, "us-east")


async def test_faults_of_a_hop_and_of_the_link_itself_end_one_after_the_other(
    runtime: ProcessRuntime,
) -> None:
    declared = await shapes(runtime)
    for _ in range(2):
        await runtime.change_links([HOP], {"state": "cut", "latency_ms": 100})
    await runtime.change_links([ROUTED], {"state": "held", "jitter_ms": 7})
    assert (await shapes(runtime))[ROUTED] == LinkShape(101, 7, state="cut")
    await runtime.heal([ROUTED])
    assert (await shapes(runtime))[ROUTED] == LinkShape(101, state="cut"), "as its hop"
    await runtime.change_links([ROUTED], {"state": "held"})
    await runtime.heal([HOP])
    assert (await shapes(runtime))[ROUTED] == LinkShape(2, state="held")
    await runtime.heal()
    assert await shapes(runtime) == declared
