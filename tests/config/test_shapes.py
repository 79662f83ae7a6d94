"""Shapes of topologies: direct links, routes, and what a changed link does to the links that are routed over it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from emulator.config.json_schema import SCHEMAS_DIR
from emulator.config.link_shape import LinkShape
from emulator.config.loading import load_topology
from emulator.config.shapes import SHAPES, Link, ShapeName, hops, joined, routes, with_routes
from emulator.config.topology import Topology
from tests.config.topology_files import write_topology

NAMES = st.sampled_from(get_args(ShapeName))
LINK_SHAPES = st.builds(
    LinkShape,
    latency_ms=st.integers(0, 1000),
    jitter_ms=st.integers(0, 100),
    bandwidth_bytes_per_second=st.none() | st.integers(1, 10**9),
)
EXAMPLES = Path(__file__).parents[2] / "examples" / "shapes"
REGIONS = [f"r{number}" for number in range(10)]


def load(folder: Path, shape: str, count: int, rest: str = "") -> Topology:
    regions = "regions: {" + ", ".join(f"{name}: " for name in REGIONS[:count]) + "}"
    return load_topology(write_topology(folder, f"clusters: [all]\nshape: {shape}\n{rest}", all=regions))


def vias(topology: Topology) -> dict[Link, tuple[str, ...]]:
    return {(link.source, link.target): link.via for link in topology.links}


def test_every_name_has_a_shape() -> None:
    assert tuple(SHAPES) == get_args(ShapeName)


@given(name=NAMES, count=st.integers(0, 10))
def test_a_route_is_made_of_direct_links_and_passes_no_region_twice(name: ShapeName, count: int) -> None:
    regions = REGIONS[:count]
    found = routes(name, regions)
    assert set(found) == {(a, b) for a in regions for b in regions if a != b}
    for (source, target), via in found.items():
        passed = [source, *via, target]
        assert len(set(passed)) == len(passed)
        assert all(found[hop] == () for hop in hops((source, target), via))
        assert found[target, source] == via[::-1]


@given(count=st.integers(2, 10))
def test_the_longest_route_of_a_ring_is_half_of_it(count: int) -> None:
    found = routes("ring", REGIONS[:count])
    assert max(len(via) + 1 for via in found.values()) == count // 2
    assert sum(not via for via in found.values()) == (2 if count == 2 else 2 * count)


def test_two_regions_have_direct_links_in_every_shape() -> None:
    for name in SHAPES:
        assert set(routes(name, ["a", "b"]).values()) == {()}


def test_routes_of_ten_regions(tmp_path: Path) -> None:
    ring = vias(load(tmp_path, "ring", 10))
    assert ring["r0", "r9"] == ()
    assert ring["r0", "r3"] == ("r1", "r2")
    assert ring["r1", "r8"] == ("r0", "r9")
    assert ring["r0", "r5"] == ("r1", "r2", "r3", "r4"), "as long as the other way: in the order of the files"
    assert ring["r5", "r0"] == ("r4", "r3", "r2", "r1")
    hub = vias(load(tmp_path, "hub", 10))
    assert {link for link, via in hub.items() if not via} == {link for link in hub if "r0" in link}
    assert set(hub.values()) == {(), ("r0",)}
    chain = vias(load(tmp_path, "chain", 10))
    assert chain["r9", "r0"] == tuple(f"r{number}" for number in range(8, 0, -1))
    assert set(vias(load(tmp_path, "mesh", 10)).values()) == {()}


@pytest.mark.parametrize(("shape", "farthest_ms"), [("mesh", 44), ("hub", 88), ("ring", 220), ("chain", 396)])
def test_latencies_of_ten_regions_add_up(tmp_path: Path, shape: str, farthest_ms: int) -> None:
    topology = load(tmp_path, shape, 10, "links: {profile: transatlantic}")
    assert max(link.shape.latency_ms for link in topology.links) == farthest_ms
    assert topology.link("r0", "r1").latency_ms == 44
    assert len(topology.links) == 90
    assert Topology.from_json(topology.to_json()) == topology


def test_an_exception_for_a_link_makes_it_direct(tmp_path: Path) -> None:
    links = "links: {defaults: {latency_ms: 10}, exceptions: [{from: r0, to: r2, jitter_ms: 5}]}"
    topology = load(tmp_path, "chain", 4, links)
    assert vias(topology)["r0", "r2"] == ()
    assert topology.link("r0", "r2") == LinkShape(10, 5)
    assert topology.link("r2", "r0") == LinkShape(20), "still routed"
    assert vias(topology)["r0", "r3"] == ("r1", "r2"), "routes follow the shape"


def test_clients_of_an_active_standby_topology_publish_in_the_first_region(tmp_path: Path) -> None:
    topology = load_topology(
        write_topology(
            tmp_path,
            """
            clusters: [americas, europe]
            shape: active-standby
            namespaces:
              public/default:
              public/pair: {regions: [us-west, us-east]}
              public/west: {regions: [us-west, eu-central]}
              public/own: {exclusive_home: eu-central}
            """,
        )
    )
    homes = {namespace.name: namespace.exclusive_home for namespace in topology.namespaces}
    assert homes == {
        "public/default": "us-east",
        "public/pair": "us-east",
        "public/west": "",
        "public/own": "eu-central",
    }
    assert set(vias(topology).values()) == {()}


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_has_an_example(name: ShapeName) -> None:
    topology = load_topology(EXAMPLES / f"{name}.yaml")
    assert (topology.name, topology.shape) == (name, name)
    assert vias(topology) == routes(name, topology.region_names)
    schema = Draft202012Validator(json.loads((SCHEMAS_DIR / "topology.schema.json").read_text()))
    assert list(schema.iter_errors(yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text()))) == []


# ---- links that change during a run ----------------------------------------------------------------------------


def declared_of(
    name: ShapeName, direct: Mapping[Link, LinkShape]
) -> tuple[dict[Link, tuple[str, ...]], dict[Link, LinkShape]]:
    via = routes(name, REGIONS[:5])
    return via, {link: joined([direct[hop] for hop in hops(link, via[link])]) for link in via}


@st.composite
def networks(draw: st.DrawFn) -> tuple[dict[Link, tuple[str, ...]], dict[Link, LinkShape]]:
    direct = {(a, b): draw(LINK_SHAPES) for a in REGIONS[:5] for b in REGIONS[:5] if a != b}
    return declared_of(draw(NAMES), direct)


@settings(max_examples=50)
@given(network=networks(), data=st.data())
def test_a_cut_affects_exactly_the_links_that_are_routed_over_it(
    network: tuple[dict[Link, tuple[str, ...]], dict[Link, LinkShape]], data: st.DataObject
) -> None:
    via, declared = network
    cut = data.draw(st.sampled_from(sorted(via)))
    state = data.draw(st.sampled_from(("cut", "held")))
    changed = with_routes({**declared, cut: replace(declared[cut], state=state)}, declared, via)
    for link, shape in changed.items():
        affected = link == cut or cut in hops(link, via[link])
        assert shape == replace(declared[link], state=state if affected else "up")


@settings(max_examples=50)
@given(network=networks())
def test_unchanged_links_are_as_declared(
    network: tuple[dict[Link, tuple[str, ...]], dict[Link, LinkShape]],
) -> None:
    via, declared = network
    assert with_routes(declared, declared, via) == declared


@settings(max_examples=50)
@given(network=networks(), latency_ms=st.integers(0, 5000), data=st.data())
def test_a_slower_hop_slows_the_links_that_are_routed_over_it(
    network: tuple[dict[Link, tuple[str, ...]], dict[Link, LinkShape]], latency_ms: int, data: st.DataObject
) -> None:
    via, declared = network
    hop = data.draw(st.sampled_from(sorted(link for link in via if not via[link])))
    more = latency_ms - declared[hop].latency_ms
    changed = with_routes({**declared, hop: replace(declared[hop], latency_ms=latency_ms)}, declared, via)
    for link, shape in changed.items():
        over = more if hop in hops(link, via[link]) else 0
        assert shape == replace(declared[link], latency_ms=declared[link].latency_ms + over)


def test_a_routed_link_keeps_its_own_latency_and_is_as_bad_as_its_worst_hop() -> None:
    direct = {(a, b): LinkShape(10) for a in REGIONS[:5] for b in REGIONS[:5] if a != b}
    via, declared = declared_of("chain", direct)
    own = {**declared, ("r0", "r2"): replace(declared["r0", "r2"], latency_ms=500, state="held")}
    assert with_routes(own, declared, via)["r0", "r2"] == LinkShape(500, state="held")
    slow = {**own, ("r0", "r1"): LinkShape(200, 7, 1000)}
    assert with_routes(slow, declared, via)["r0", "r2"] == LinkShape(500, 7, 1000, state="held")
    cut = {**slow, ("r1", "r2"): LinkShape(10, state="cut")}
    assert with_routes(cut, declared, via)["r0", "r2"].state == "cut"
    assert with_routes(cut, declared, via)["r0", "r1"].state == "up"
