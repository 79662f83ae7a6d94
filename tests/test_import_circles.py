"""Imports make no circle, those for types included.

The contracts of `lint-imports` do not see imports under `if TYPE_CHECKING:`, and a circle of types is also a circle of
dependencies: neither side can be read, tested or replaced alone.
"""

from __future__ import annotations

from functools import cache

import grimp
import pytest

TOPIC = ("emulator.broker.topic", "emulator.broker.subscription", "emulator.broker.replication")
"""The parts of a topic."""
ACYCLIC = (
    "emulator.broker",
    "emulator.cli",
    "emulator.client",
    "emulator.config",
    "emulator.core",
    "emulator.dashboard",
    "emulator.model",
    "emulator.net",
    "emulator.recording",
    "emulator.run",
    "emulator.runtimes",
    "emulator.scenarios",
    "emulator.simulation",
    "emulator.storage",
    "emulator.wire",
    "geoemu",
    "spark_jobs",
)
"""Packages none of whose modules is part of a circle."""


@cache
def imports() -> dict[str, set[str]]:
    """Return module -> its imports, including those for types."""
    graph = grimp.build_graph(
        "emulator", "geoemu", "spark_jobs", exclude_type_checking_imports=False, cache_dir=None
    )
    return {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def way_back(module: str) -> list[str]:
    """Return a path of imports from a module to itself; empty when there is none."""
    ways, seen = [[module]], {module}
    while ways:
        way = ways.pop()
        for imported in imports()[way[-1]]:
            if imported == module:
                return [*way, module]
            if imported not in seen:
                seen.add(imported)
                ways.append([*way, imported])
    return []


@pytest.mark.parametrize("package", ACYCLIC)
def test_no_module_reaches_itself(package):
    modules = [one for one in imports() if one == package or one.startswith(package + ".")]
    assert modules, f"there is no package {package}"
    circles = [" -> ".join(way) for one in sorted(modules) if (way := way_back(one))]
    assert not circles, "\n".join(circles)


NON_PERSISTENT_TOPIC = "emulator.broker.topic.non_persistent.topic"
"""A topic itself."""


def test_what_a_topic_is_made_of_does_not_know_it():
    above = {"emulator.broker.topic.topic", "emulator.broker.topic_assembly", "emulator.broker.region"}
    for module, imported in imports().items():
        if module.startswith(tuple(f"{one}." for one in TOPIC)) and module not in (
            *above,
            NON_PERSISTENT_TOPIC,
        ):
            assert not imported & above, f"{module} depends on more than a view of its topic"
