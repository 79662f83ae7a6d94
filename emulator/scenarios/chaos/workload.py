"""Scenarios that contain random faults: a built-in workload, the workload of another scenario, and a plan as steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from emulator.config.region import NamespaceConfig
from emulator.config.topology import Topology
from emulator.config.yaml_source import read_yaml
from emulator.errors import Refused
from emulator.scenarios.chaos.plan import ChaosPlan, ProfileName
from emulator.scenarios.rehearsal import step_text
from emulator.scenarios.scenario import Scenario, find_scenario, load_scenario, parse_scenario

BUILT_IN: Final = "built-in"
"""Name of the generated workload."""
RATE_PER_SECOND: Final = 50
"""Messages per second of each producer of the built-in workload."""
ABOUT_STEPS: Final = ("proves", "description", "expect", "steps")
"""Keys of a scenario file that do not apply when its steps are replaced."""
REGIONS_MAX: Final = 5
"""Maximum number of regions that the built-in workload publishes in and consumes in."""
FINISH_SECONDS: Final = 90
"""Time after the faults for clients to connect again and receive every outcome: released clients wait up to 60 s before
an attempt."""
DRAIN_SECONDS: Final = 60
"""Time after the faults for replication to catch up and for consumers to acknowledge every message."""


def built_in_workload(topology: Topology, rate_per_second: int = RATE_PER_SECOND) -> dict[str, Any]:
    """Return a scenario file without steps: in each region of a namespace a producer and a consumer, and one replicated
    subscription. Raises Refused if the topology has no namespace with regions."""
    namespace = _namespace(topology)
    regions = namespace.regions[:REGIONS_MAX]
    return {
        "name": "chaos",
        "topic": f"persistent://{namespace.name}/chaos",
        "actors": {
            "producers": [
                {"name": f"publish-{region}", "region": region, "rate_per_second": rate_per_second}
                for region in regions
            ],
            "consumers": [
                *(
                    {"name": f"consume-{region}", "region": region, "subscription": f"all-{region}"}
                    for region in regions
                ),
                {
                    "name": "consume-replicated",
                    "region": regions[0],
                    "subscription": "replicated",
                    "replicated": True,
                },
            ],
        },
    }


def _namespace(topology: Topology) -> NamespaceConfig:
    """Return the namespace with the most regions; one with deduplication, if there is any, because producers send again
    what a region did not acknowledge."""
    usable = [one for one in topology.namespaces if one.regions and one.name.partition("/")[0] != "pulsar"]
    if not usable:
        raise Refused(f"{topology.path} declares no namespace with regions, which the workload needs")
    return max(usable, key=lambda one: (one.deduplication, len(one.regions)))


def find_workload(name: str, topology: Topology) -> dict[str, Any]:
    """Return a scenario file without steps: the built-in workload, or that of a scenario's file or name."""
    return (
        built_in_workload(topology) if name == BUILT_IN else workload_of(find_scenario(Path(name)), topology)
    )


def workload_of(path: Path, topology: Topology) -> dict[str, Any]:
    """Return the content of a scenario file, whose steps the caller replaces. Raises ConfigurationError for an invalid
    file."""
    load_scenario(path, topology)
    values = read_yaml(path).values
    return {key: value for key, value in values.items() if key not in ABOUT_STEPS}


def under_chaos(workload: Mapping[str, Any], topology: Topology, chaos: Mapping[str, Any]) -> Scenario:
    """Return the scenario that runs all actors of a workload around one `chaos` step."""
    return parse_scenario(_text(workload, [{"chaos": dict(chaos)}]), topology, "workload")


def plan_as_scenario(workload: Mapping[str, Any], plan: ChaosPlan, command: str) -> str:
    """Return a scenario file with every fault of a plan as steps, for `geoemu run`."""
    steps: list[Mapping[str, Any]] = []
    now = 0.0
    for at, step in (*plan.events(), (plan.seconds, None)):
        if at > now:
            steps.append({"wait": f"{round((at - now) * 1000)}ms"})
            now = at
        if step is not None:
            steps.append(step)
    heading = f"# The faults of `{command}` as steps, for `geoemu run`."
    return f"{heading}\n{_text(workload, steps)}"


def chaos_object(seed: int | None, profile: ProfileName, seconds: float, *, lose: bool) -> dict[str, Any]:
    """Return the object of a `chaos` step."""
    written: dict[str, Any] = {"for": f"{seconds:g}s", "profile": profile}
    written |= {} if seed is None else {"seed": seed}
    return written | ({"lose": True} if lose else {})


def _text(workload: Mapping[str, Any], faults: Sequence[Mapping[str, Any]]) -> str:
    """Return a scenario file: all actors begin, the faults follow, those that publish finish, and regions drain."""
    finish = (
        {"finish": {"actors": name, "within": f"{FINISH_SECONDS}s"}}
        for name in _publishers(workload["actors"])
    )
    steps = [{"begin": "all"}, *faults, *finish]
    lines = "".join(f"- {step_text(step)}\n" for step in (*steps, {"drain": f"{DRAIN_SECONDS}s"}))
    head = yaml.safe_dump(dict(workload), sort_keys=False, allow_unicode=True, width=120)
    return f"{head}steps:\n{lines}"


def _publishers(actors: Mapping[str, Any]) -> list[str]:
    """Return the groups and names of actors that publish without consuming, and so would never let regions drain."""
    groups = [group for group in ("producers", "hosts") if actors.get(group)]
    return groups + [one["name"] for one in actors.get("programs") or () if not one.get("subscriptions")]
