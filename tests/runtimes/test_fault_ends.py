"""How the ends of a link fault are read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from emulator.config.link_profiles import PROFILES, LinkProfileName
from emulator.config.link_shape import LinkShape
from emulator.errors import Refused
from emulator.run.history_events import latency_in
from emulator.runtimes.fault_table import FAULTS, RUNTIME_NAMES
from emulator.runtimes.faults import (
    LINK_CHANGES,
    FaultFact,
    LinkFault,
    link_fault,
    link_pairs,
)

ROOT = Path(__file__).parents[2]
REGIONS = ("us-east", "us-west", "eu-central", "eu-north")


def test_ends_are_regions_lists_patterns_or_clients() -> None:
    assert link_pairs(REGIONS, "us-east", "us-west") == (("us-east", "us-west"),)
    assert link_pairs(REGIONS, "us-east,us-west", "eu-*") == (
        ("us-east", "eu-central"),
        ("us-east", "eu-north"),
        ("us-west", "eu-central"),
        ("us-west", "eu-north"),
    )
    assert link_pairs(REGIONS, ["us-east"], "us-*") == (("us-east", "us-west"),)
    assert len(link_pairs(REGIONS, "*", "*")) == 6, "each pair once"
    assert link_pairs(REGIONS, "clients", "us-*") == (("clients", "us-east"), ("clients", "us-west"))


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("us-esat", "us-west", "no region 'us-esat' in this run: did you mean us-east"),
        ("us-east", "asia-*", "no region 'asia-\\*' in this run"),
        ("us-east", "us-east", "no link us-east -> us-east: name two different regions"),
        ("clients", "clients", "no link clients -> clients"),
        ("", "us-east", "no region ''"),
    ],
)
def test_ends_without_a_link_are_refused(source: str, target: str, message: str) -> None:
    with pytest.raises(Refused, match=message):
        link_pairs(REGIONS, source, target)


def test_a_fault_is_recorded_for_each_pair_with_its_value_and_direction() -> None:
    both = link_fault("latency", REGIONS, "us-east", "eu-*", latency_ms=200)
    assert list(both.facts()) == [
        FaultFact("latency", "us-east", "eu-central", "200 ms both ways"),
        FaultFact("latency", "us-east", "eu-north", "200 ms both ways"),
    ]
    assert len(both.links) == 4
    assert list(link_fault("cut", REGIONS, "clients", "us-east", one_way=True).facts()) == [
        FaultFact("cut", "us-east", "clients", "one way back")
    ]
    assert list(LinkFault("heal", (("us-east", "us-west"),)).facts()) == [
        FaultFact("heal", "us-east", "us-west")
    ]


def test_values_without_a_meaning_are_refused() -> None:
    with pytest.raises(Refused, match="leaves no time"):
        link_fault("stall", REGIONS, "us-east", "us-west", every_ms=100, stall_ms=100)
    with pytest.raises(Refused, match="a link that stalls every 1 ms: the least period is 10 ms"):
        link_fault("stall", REGIONS, "us-east", "us-west", every_ms=1, stall_ms=0.5)
    with pytest.raises(Refused, match=r"a link that flaps every 0\.001 ms: the least period is 10 ms"):
        link_fault("flap", REGIONS, "us-east", "us-west", period_ms=0.001, up=0.5)
    for up in (0, 1, float("nan")):
        with pytest.raises(Refused, match="more than 0 % and less than 100 %"):
            link_fault("flap", REGIONS, "us-east", "us-west", period_ms=100, up=up)


def test_an_unknown_profile_gets_the_nearest_one_suggested() -> None:
    with pytest.raises(Refused, match="no link profile 'satelite': did you mean satellite"):
        link_fault("profile", REGIONS, "us-east", "us-west", profile="satelite")
    with pytest.raises(Refused, match="no link profile '': profiles are same-continent"):
        link_fault("profile", REGIONS, "us-east", "us-west", profile="")


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_ends_all_other_values_but_not_a_cut(name: LinkProfileName) -> None:
    fault = link_fault("profile", REGIONS, "us-east", "us-west", profile=name)
    before = LinkShape(1, 2, 3, "cut", 4, 2, 5, 0.5)
    assert replace(before, **fault.changes) == replace(PROFILES[name].shape, state="cut")
    (fact,) = fault.facts()
    assert latency_in(fact.detail or "") == PROFILES[name].shape.latency_ms


def test_each_fault_has_a_row_with_a_test_or_a_reason_for_each_runtime() -> None:
    assert set(FAULTS) >= set(LINK_CHANGES) - {"heal"}
    for verb, row in FAULTS.items():
        assert set(row.cells) == set(RUNTIME_NAMES), verb
        for cell in row.cells.values():
            path, _, name = cell.partition("::")
            if name:
                assert re.search(rf"def {name}\b", (ROOT / path).read_text()), f"{verb}: no test {cell}"
            else:
                assert " " in cell, f"{verb}: {cell!r} is neither a test nor a reason"
