"""Changes of links in a run record: what a changed hop does to the links that are routed over it."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.config.link_shape import LinkShape
from emulator.config.loading import load_topology
from emulator.config.topology import RegionPorts, Topology
from emulator.run.links import change_links
from emulator.run.record import RunRecord, link_statuses, links_of, new_record
from tests.config.topology_files import write_topology

LINK_STATES = st.sampled_from(("up", "held", "cut"))


def load_chain(folder: Path) -> Topology:
    """Return us-east - us-west - eu-central, with 10 ms for each hop."""
    links = "shape: chain\nlinks: {defaults: {latency_ms: 10}}"
    return load_topology(write_topology(folder, f"clusters: [americas, europe]\n{links}\n"))


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Topology:
    return load_chain(tmp_path_factory.mktemp("chain"))


def record_of(topology: Topology) -> RunRecord:
    return new_record("process", topology, dict.fromkeys(topology.region_names, RegionPorts(1, 2)))


def set_link(
    record: RunRecord, topology: Topology, source: str, target: str, **changes: object
) -> set[tuple[str, str]]:
    return change_links(record, topology, [(source, target)], lambda _, shape: replace(shape, **changes))  # type: ignore[arg-type]


def test_a_cut_hop_cuts_what_passes_over_it_until_it_is_healed(chain: Topology) -> None:
    record = record_of(chain)
    changed = set_link(record, chain, "us-west", "eu-central", state="cut")
    assert changed == {("us-west", "eu-central"), ("us-east", "eu-central")}
    assert record.links["us-east", "eu-central"] == LinkShape(20, state="cut")
    assert record.links["eu-central", "us-east"] == LinkShape(20), "the way back is up"
    assert set_link(record, chain, "us-west", "eu-central", state="up") == changed
    assert record.links == links_of(chain)
    assert record.own_links == {}


def test_a_link_that_was_cut_itself_stays_cut_when_its_hop_is_healed(chain: Topology) -> None:
    record = record_of(chain)
    set_link(record, chain, "us-west", "eu-central", state="cut")
    set_link(record, chain, "us-east", "eu-central", state="held")
    assert record.links["us-east", "eu-central"].state == "cut", "the worse of both"
    record = RunRecord.from_json(record.to_json())
    set_link(record, chain, "us-west", "eu-central", state="up")
    assert record.links["us-east", "eu-central"].state == "held"
    set_link(record, chain, "us-east", "eu-central", state="up")
    assert record.links == links_of(chain)


def test_a_link_is_up_again_only_when_all_its_hops_are(chain: Topology) -> None:
    record = record_of(chain)
    set_link(record, chain, "us-east", "us-west", state="cut")
    set_link(record, chain, "us-west", "eu-central", state="cut")
    set_link(record, chain, "us-east", "us-west", state="up")
    assert record.links["us-east", "eu-central"].state == "cut"
    set_link(record, chain, "us-west", "eu-central", state="up")
    assert record.links["us-east", "eu-central"].state == "up"


def test_a_slower_hop_slows_the_route_but_not_a_latency_that_the_link_was_given(chain: Topology) -> None:
    record = record_of(chain)
    set_link(record, chain, "us-east", "us-west", latency_ms=200)
    assert record.links["us-east", "eu-central"].latency_ms == 210
    set_link(record, chain, "us-east", "eu-central", latency_ms=5)
    assert record.links["us-east", "eu-central"].latency_ms == 5
    set_link(record, chain, "us-east", "us-west", latency_ms=300, jitter_ms=7)
    assert record.links["us-east", "eu-central"] == LinkShape(5, 7)


def test_the_status_names_the_regions_that_a_link_passes(chain: Topology) -> None:
    statuses = {(link.source, link.target): link for link in link_statuses(record_of(chain), chain)}
    assert statuses["us-east", "eu-central"].via == ("us-west",)
    assert statuses["us-east", "us-west"].via == ()


def test_a_record_without_routes_is_read(chain: Topology) -> None:
    record = record_of(chain)
    raw = json.loads(record.to_json())
    del raw["own_links"]
    older = RunRecord.from_json(json.dumps(raw))
    assert older.own_links == {}
    assert older.links == record.links


@settings(max_examples=60)
@given(changes=st.lists(st.tuples(st.sampled_from(range(6)), LINK_STATES), max_size=12))
def test_any_order_of_cuts_and_heals_ends_in_the_state_of_the_worst_hop(
    chain: Topology, changes: list[tuple[int, str]]
) -> None:
    record = record_of(chain)
    links = sorted(chain.routes)
    own = dict.fromkeys(links, "up")
    for number, state in changes:
        own[links[number]] = state
        set_link(record, chain, *links[number], state=state)
    for link in links:
        via = chain.routes[link]
        stops = [link[0], *via, link[1]]
        states = {own[link], *(own[hop] for hop in pairwise(stops))}
        assert record.links[link].state == next(one for one in ("cut", "held", "up") if one in states)
