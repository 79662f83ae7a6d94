"""Named link profiles: one line of a topology sets all values of a link."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.config.link_profiles import PROFILES, LinkProfileName, profile_of
from emulator.config.link_shape import LinkShape
from emulator.config.loading import load_topology
from emulator.config.topology import Topology
from tests.config.topology_files import write_topology

NAMES = st.sampled_from(get_args(LinkProfileName))


def load(folder: Path, links: str) -> Topology:
    return load_topology(write_topology(folder, f"clusters: [americas, europe]\nlinks: {links}\n"))


def test_every_name_has_a_profile() -> None:
    assert tuple(PROFILES) == get_args(LinkProfileName)


def test_no_two_profiles_are_the_same_link() -> None:
    assert {name: profile_of(profile.shape) for name, profile in PROFILES.items()} == {
        name: name for name in PROFILES
    }


@pytest.mark.parametrize("name", PROFILES)
def test_one_line_gives_all_links_a_profile(tmp_path: Path, name: LinkProfileName) -> None:
    topology = load(tmp_path, f"{{profile: {name}}}")
    assert {link.shape for link in topology.links} == {PROFILES[name].shape}
    assert load(tmp_path, f"{{defaults: {{profile: {name}}}}}") == topology


def test_a_profile_of_one_link_replaces_all_values_of_the_defaults(tmp_path: Path) -> None:
    topology = load(
        tmp_path,
        "{defaults: {latency_ms: 5, jitter_ms: 4, bandwidth_bytes_per_second: 7}, "
        "exceptions: [{between: [us-east, us-west], profile: lossy-wifi}, "
        "{from: us-east, to: eu-central, profile: satellite}]}",
    )
    assert topology.link("us-east", "us-west") == PROFILES["lossy-wifi"].shape
    assert topology.link("us-west", "us-east") == PROFILES["lossy-wifi"].shape
    assert topology.link("us-east", "eu-central") == PROFILES["satellite"].shape
    assert topology.link("eu-central", "us-east") == LinkShape(5, 4, 7)


def test_fields_override_single_values_of_a_profile(tmp_path: Path) -> None:
    topology = load(
        tmp_path,
        "{profile: satellite, defaults: {jitter_ms: 0}, exceptions: ["
        "{between: [us-east, us-west], profile: transatlantic, bandwidth_bytes_per_second: }, "
        "{from: us-west, to: us-east, latency_ms: 60}]}",
    )
    satellite, atlantic = PROFILES["satellite"].shape, PROFILES["transatlantic"].shape
    assert topology.link("us-west", "eu-central") == dataclasses.replace(satellite, jitter_ms=0)
    unlimited = dataclasses.replace(atlantic, bandwidth_bytes_per_second=None)
    assert topology.link("us-east", "us-west") == unlimited
    assert topology.link("us-west", "us-east") == dataclasses.replace(unlimited, latency_ms=60)
    assert profile_of(topology.link("us-west", "us-east")) is None


@given(name=NAMES, state=st.sampled_from(("up", "held", "cut")))
def test_a_link_has_its_profile_in_every_state(name: LinkProfileName, state: str) -> None:
    assert profile_of(dataclasses.replace(PROFILES[name].shape, state=state)) == name


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(default=NAMES, other=NAMES, latency_ms=st.none() | st.integers(0, 3_600_000))
def test_the_innermost_value_wins(
    tmp_path: Path, default: LinkProfileName, other: LinkProfileName, latency_ms: int | None
) -> None:
    field = "" if latency_ms is None else f", latency_ms: {latency_ms}"
    exception = f"{{between: [us-east, us-west], profile: {other}{field}}}"
    topology = load(tmp_path, f"{{profile: {default}, exceptions: [{exception}]}}")
    expected = PROFILES[other].shape
    if latency_ms is not None:
        expected = dataclasses.replace(expected, latency_ms=latency_ms)
    assert topology.link("us-east", "us-west") == topology.link("us-west", "us-east") == expected
    assert topology.link("us-east", "eu-central") == PROFILES[default].shape
