"""What may be lost with a region, composed from what the remaining regions state; and its removal in each cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from emulator.cli.region import removal_as_text
from emulator.errors import Refused, RuntimeFailure
from emulator.runtimes.contract import RegionState, RegionStatus
from emulator.scenarios.region_removal import preview_removal, remove

CLUSTERS = {"us-east": "americas", "us-west": "americas", "eu": "europe", "ap": "asia"}


def regions(**states: RegionState) -> dict[str, RegionStatus]:
    found: dict[str, RegionState] = {
        "us-east": "lost",
        "us-west": "running",
        "eu": "running",
        "ap": "running",
    }
    found |= {name.replace("_", "-"): state for name, state in states.items()}
    return {
        name: RegionStatus(name, CLUSTERS[name], state, f"pulsar://{name}", f"http://{name}", name)
        for name, state in found.items()
    }


def knows(*received: tuple[str, str | None], connected: bool = False) -> dict[str, Any]:
    rows = [{"topic": topic, "received": position} for topic, position in received]
    return {
        "connected": connected,
        "policies": ["namespace/public%2Fdefault"],
        "exclusive_home_of": ["public/home"],
        "topics": rows,
    }


class Peers:
    """Admin ports with fixed responses; a region without one does not respond."""

    def __init__(self, states: Mapping[str, dict[str, Any]], refusing: str = "") -> None:
        self._states = states
        self._refusing = refusing
        self.removed_in: list[str] = []

    async def call(self, region: RegionStatus, method: str, path: str, body: Any) -> tuple[int, bytes]:
        assert path == "/geoemu/v1/removed-regions/us-east"
        if region.name not in self._states:
            raise OSError("timed out")
        if method == "GET":
            return 200, json.dumps(self._states[region.name]).encode()
        if region.name == self._refusing:
            return 409, b'{"reason": "us-east is connected"}'
        self.removed_in.append(region.name)
        return 200, b'{"changed_policies": 1}'


async def test_the_newest_entry_and_the_regions_that_lack_it_are_named() -> None:
    peers = Peers({"us-west": knows(("t", "5:9")), "eu": knows(("t", "5:12")), "ap": knows(("t", None))})
    removal = await preview_removal(regions(), CLUSTERS, "us-east", peers.call)
    [topic] = removal.topics
    assert topic.newest == "5:12", "compared as positions, not as text"
    assert topic.lacking == {"us-west": "5:9", "ap": None}
    text = removal_as_text(removal)
    assert all(len(line) <= 80 for line in text.splitlines())
    words = " ".join(text.split())
    for sentence in (
        "entries of us-east after 5:12 are stored in no region that responds",
        "us-west has its entries up to 5:9, and will not receive the others",
        "ap has none of its entries",
        "public/home may be published to only in us-east",
    ):
        assert sentence in words


async def test_one_region_of_each_cluster_removes_it() -> None:
    peers = Peers({"us-west": knows(), "eu": knows(), "ap": knows()})
    removal = await preview_removal(regions(), CLUSTERS, "us-east", peers.call)
    assert await remove(regions(), removal, peers.call) == {"americas": 1, "asia": 1, "europe": 1}
    assert sorted(peers.removed_in) == ["ap", "eu", "us-west"]


async def test_a_cluster_without_a_responding_region_is_reported() -> None:
    removal = await preview_removal(
        regions(us_west="killed"), CLUSTERS, "us-east", Peers({"eu": knows()}).call
    )
    assert removal.silent == ("ap", "us-west")
    assert removal.missed_clusters == ("americas", "asia")
    assert removal.through == {"europe": "eu"}


async def test_a_connected_region_is_not_removed() -> None:
    peers = Peers({"us-west": knows(), "eu": knows(connected=True), "ap": knows()})
    with pytest.raises(Refused, match="us-east is connected to eu: a region that works is not removed"):
        await preview_removal(regions(), CLUSTERS, "us-east", peers.call)


async def test_without_another_region_nothing_is_removed() -> None:
    with pytest.raises(RuntimeFailure, match="no other region responds: ap, eu, us-west"):
        await preview_removal(regions(), CLUSTERS, "us-east", Peers({}).call)
    with pytest.raises(Refused, match="no region 'nowhere' in this run"):
        await preview_removal(regions(), CLUSTERS, "nowhere", Peers({}).call)


async def test_a_refusal_of_a_cluster_is_reported_with_its_reason() -> None:
    peers = Peers({"us-west": knows(), "eu": knows(), "ap": knows()}, refusing="eu")
    removal = await preview_removal(regions(), CLUSTERS, "us-east", peers.call)
    with pytest.raises(RuntimeFailure, match="eu of cluster europe: us-east is connected"):
        await remove(regions(), removal, peers.call)
