"""Each old name that users may still write causes one error with the new name."""

from __future__ import annotations

from pathlib import Path

import pytest

import geoemu
from emulator.config import renamed
from emulator.config.loading import load_topology
from emulator.config.topology import Topology
from emulator.errors import ConfigurationError
from emulator.run.limits import RENAMED, Limit, parse_limit, read_limits
from emulator.scenarios.scenario import parse_scenario

NEW = """\
name: renamed
topic: orders
contract: [{subscription: s, on: invoices}]
expect: {redelivered: 5}
actors:
  consumers: [{name: c, region: us-east, subscription: s}]
  hosts: [{name: h, region: us-east, topic: owned, standby: false}]
steps:
  - begin: all
  - wait_until: {host: h, owns: 1}
  - heal: all
  - finish: all
"""
VARIANTS = {
    ("steps", "*", "begin"): ("begin: all", "begin: everyone"),
    ("steps", "*", "begin", "*"): ("begin: all", "begin: [everyone]"),
    ("steps", "*", "begin", "actors"): ("begin: all", "begin: {actors: everyone}"),
    ("steps", "*", "begin", "actors", "*"): ("begin: all", "begin: {actors: [everyone]}"),
    ("steps", "*", "finish"): ("finish: all", "finish: everyone"),
    ("steps", "*", "finish", "*"): ("finish: all", "finish: [everyone]"),
    ("steps", "*", "finish", "actors"): ("finish: all", "finish: {actors: everyone}"),
    ("steps", "*", "finish", "actors", "*"): ("finish: all", "finish: {actors: [everyone]}"),
    ("steps", "*", "heal"): ("heal: all", "heal: everything"),
    ("steps", "*", "heal", "between"): ("heal: all", "heal: {between: everything}"),
}


@pytest.fixture(scope="module")
def topology() -> Topology:
    return load_topology(Path(__file__).parents[2] / "topology.yaml")


def problems(text: str, topology: Topology) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        parse_scenario(text, topology, "scenario.yaml")
    return [str(problem) for problem in refused.value.problems]


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


def test_the_new_names_are_accepted(topology: Topology) -> None:
    scenario = parse_scenario(NEW, topology)
    assert [limit.text for limit in scenario.limits] == ["redelivered<=5"]
    assert [str(one) for one in scenario.contract] == ["s: orders -> invoices"]


@pytest.mark.parametrize("place", renamed.KEYS, ids=".".join)
def test_an_old_key_is_one_error_with_its_line_that_names_the_new_key(
    place: tuple[str, ...], topology: Topology
) -> None:
    old, new = place[-1], renamed.KEYS[place]
    text = NEW.replace(f"{new}:", f"{old}:")
    (problem,) = problems(text, topology)
    assert problem.startswith(f"scenario.yaml:{line_of(text, f'{old}:')}: ")
    assert problem.endswith(f": {old} was renamed to {new}")


def test_every_renamed_value_has_a_variant_here() -> None:
    assert VARIANTS.keys() == renamed.VALUES.keys()


@pytest.mark.parametrize("place", VARIANTS, ids=".".join)
def test_an_old_value_is_one_error_with_its_line_that_names_the_new_value(
    place: tuple[str, ...], topology: Topology
) -> None:
    new_text, old_text = VARIANTS[place]
    text = NEW.replace(new_text, old_text)
    for old, new in renamed.VALUES[place].items():
        (problem,) = problems(text, topology)
        assert problem.startswith(f"scenario.yaml:{line_of(text, old_text)}: ")
        assert problem.endswith(f": {old} was renamed to {new}")


def test_an_old_key_beside_the_new_one_is_one_error(topology: Topology) -> None:
    text = NEW.replace("expect: {", "expect: {repeated: 7, ")
    (problem,) = problems(text, topology)
    assert "repeated was renamed to redelivered" in problem


@pytest.mark.parametrize("name", ["everyone", "everything"])
def test_an_old_name_of_a_group_names_no_actor(name: str, topology: Topology) -> None:
    text = NEW.replace("name: c,", f"name: {name},")
    (problem,) = problems(text, topology)
    assert "is reserved" in problem


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_measure_of_a_limit_is_an_error_that_names_the_new_one(old: str, new: str) -> None:
    with pytest.raises(ValueError, match=f"^{old} was renamed to {new}$"):
        parse_limit(f"{old}<=5")


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_the_limits_of_an_earlier_run_are_read(old: str, new: str) -> None:
    """Its directory has the old name."""
    assert read_limits(f"{old}[s]<=5,gap<1s\n") == (Limit(new, "s", "<=", 5), Limit("gap", None, "<", 1))
    assert read_limits(f"{new}<=5\n") == (Limit(new, None, "<=", 5),)


@pytest.mark.parametrize(("old", "new"), renamed.PYTHON.items())
def test_an_old_name_of_the_package_is_an_error_that_names_the_new_one(old: str, new: str) -> None:
    with pytest.raises(AttributeError, match=f"^geoemu.{old} was renamed to {new}$"):
        getattr(geoemu, old)
    assert getattr(geoemu, new)


@pytest.mark.parametrize(("old", "new"), renamed.ARGUMENTS.items())
def test_an_old_argument_is_an_error_that_names_the_new_one(old: str, new: str) -> None:
    run = object.__new__(geoemu.Geo)
    with pytest.raises(TypeError, match=f"{old} was renamed to {new}"):
        run.verify(**{old: ()})
