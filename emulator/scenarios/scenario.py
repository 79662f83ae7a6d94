"""Read a scenario from its file, and check it against a topology.

    scenario = load_scenario(Path("region-failover.yaml"), topology)

`scenarios/format/` defines the format. This module checks a file as a whole: names are unique, an actor begins before
it moves, no producer publishes without end during a drain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from emulator.config.renamed import report_renamed
from emulator.config.topology import Topology
from emulator.config.yaml_errors import KeyPath, one_of
from emulator.config.yaml_source import YamlFile, parse_yaml, read_yaml
from emulator.errors import ConfigurationError, Problem
from emulator.model.suggestions import nearest
from emulator.model.values import TopicName
from emulator.run.limits import Limit
from emulator.run.service_contract import Contract
from emulator.scenarios.actors.specs import (
    ActorSpec,
    ConsumerSpec,
    HostSpec,
    ProducerSpec,
    ProgramSpec,
    TaskSpec,
)
from emulator.scenarios.format.entries import HOSTS_MAX, ActorEntry, numbered
from emulator.scenarios.format.scenario_file import AS_DECLARED, ScenarioFile, SettingsOverride
from emulator.scenarios.format.types import GROUPS, KnownNames
from emulator.scenarios.rehearsal import Rehearsal, Step

ACTOR_GROUPS = GROUPS[:-1]
"""Groups of actors in a file, in the order of their entries."""
SHIPPED = Path(__file__).parent
"""Folder of the scenarios that geoemu includes; users copy and change them."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A validated scenario. Every region, actor and subscription that it names exists."""

    name: str
    description: str
    topic: str
    parts: tuple[ActorSpec, ...]
    """Specifications of the actors: producers first, tasks last; names are unique."""
    steps: tuple[Step, ...]
    limits: tuple[Limit, ...] = ()
    """Limits of the measured figures."""
    contract: tuple[Contract, ...] = ()
    """Contracts of the services."""
    settings: SettingsOverride = AS_DECLARED
    """Broker settings that the scenario overrides."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """Number of partitions of each partitioned topic."""
    proves: str = ""
    """What a valid run proves; empty: the file does not say."""

    def part(self, name: str) -> ActorSpec:
        return next(part for part in self.parts if part.name == name)

    def topics_of(self, subscription: str) -> set[str]:
        """Return the topics on which consumers, tasks or programs use a subscription of that name."""
        consumers = (part for part in self.parts if isinstance(part, ConsumerSpec | TaskSpec))
        programs = (part for part in self.parts if isinstance(part, ProgramSpec))
        return {
            *(topic for part in consumers if part.subscription == subscription for topic in part.read),
            *(topic for part in programs if subscription in part.subscriptions for topic in part.topics),
        }


def load_scenario(path: Path, topology: Topology) -> Scenario:
    """Read and check a scenario file. Raises ConfigurationError with the problems of its format, or else content."""
    if not path.exists():
        rule = f"no such file; geoemu includes {one_of(shipped_scenarios())} in {SHIPPED}"
        meant = nearest(path.stem, shipped_scenarios())
        raise ConfigurationError([Problem(str(path), None, "", "", rule, meant)])
    return _check(read_yaml(path), topology)


def parse_scenario(text: str, topology: Topology, name: str = "scenario.yaml") -> Scenario:
    """Check a scenario that is given as text, like `load_scenario`; messages contain `name` as the file name."""
    return _check(parse_yaml(text, name), topology)


def shipped_scenarios() -> list[str]:
    """Return the names of the scenarios in `SHIPPED`."""
    return sorted(file.stem for file in SHIPPED.glob("*.yaml"))


def find_scenario(typed: Path) -> Path:
    """Return the file at the given path, or the bundled scenario of that name."""
    shipped = not typed.exists() and str(typed) in shipped_scenarios()
    return SHIPPED / f"{typed}.yaml" if shipped else typed


def _check(file: YamlFile, topology: Topology) -> Scenario:
    report_renamed(file)
    _check_actor_names(file)
    written = file.check(ScenarioFile, _names_written(file.values, topology))
    _refuse_problems(file)
    assert written is not None, "an invalid file has at least one problem"
    parts: tuple[ActorSpec, ...] = tuple(
        part for _, _, entry in _entries(written) for part in entry.parts(written.topic)
    )
    _check_topics(file, written, topology)
    parts = _with_partitions(file, written, parts)
    rehearsal = Rehearsal(file, topology, parts)
    steps = tuple(
        rehearsal.step(index, entry.verb, entry.action, entry.when)
        for index, entry in enumerate(written.steps)
        if entry.action is not None
    )
    _refuse_problems(file)
    contract = tuple(entry.promised(written.topic) for entry in written.contract)
    return Scenario(
        written.name,
        written.description,
        written.topic,
        parts,
        steps,
        written.expect.limits,
        contract,
        written.settings,
        written.partitions,
        written.proves,
    )


def _refuse_problems(file: YamlFile) -> None:
    if file.problems:
        raise ConfigurationError(sorted(file.problems, key=lambda problem: problem.line or 0))


def _names_written(content: Any, topology: Topology) -> KnownNames:
    """Return the names that steps may use, read from the file before it is validated."""
    return KnownNames(
        regions=topology.region_names,
        clusters=[cluster.name for cluster in topology.clusters],
        producers=_values(content, "producers", "name"),
        consumers=_values(content, "consumers", "name"),
        subscriptions=[
            *_values(content, "consumers", "subscription"),
            *_subscriptions_of_programs(content),
            *_values(content, "tasks", "subscription"),
        ],
        programs=_values(content, "programs", "name"),
        hosts=[name for _, name in _indexed_hosts(content)],
        tasks=_values(content, "tasks", "name"),
    )


def _values(content: Any, group: str, key: str) -> list[str]:
    return [value for _, value in _indexed_values(content, group, key)]


def _subscriptions_of_programs(content: Any) -> list[str]:
    match content:
        case {"actors": {"programs": list() as programs}}:
            named = [entry.get("subscriptions") for entry in programs if isinstance(entry, dict)]
            return [
                one for names in named if isinstance(names, list) for one in names if isinstance(one, str)
            ]
        case _:
            return []


def _indexed_values(content: Any, group: str, key: str) -> list[tuple[int, str]]:
    match content:
        case {"actors": dict() as groups} if isinstance(groups.get(group), list):
            entries = [(index, entry) for index, entry in enumerate(groups[group]) if isinstance(entry, dict)]
            return [(index, entry[key]) for index, entry in entries if isinstance(entry.get(key), str)]
        case _:
            return []


def _indexed_hosts(content: Any) -> list[tuple[int, str]]:
    """Return the name of each host, with the index of its entry."""
    found: list[tuple[int, str]] = []
    for index, name in _indexed_values(content, "hosts", "name"):
        count = content["actors"]["hosts"][index].get("count")
        valid = min(count, HOSTS_MAX) if isinstance(count, int) else None
        found += [(index, one) for one in numbered(name, valid)]
    return found


def _check_actor_names(file: YamlFile) -> None:
    seen: set[str] = set()
    for group in ACTOR_GROUPS:
        named = (
            _indexed_hosts(file.values) if group == "hosts" else _indexed_values(file.values, group, "name")
        )
        for index, name in named:
            if name in seen:
                file.report(("actors", group, index, "name"), "another actor has this name")
            seen.add(name)


def _entries(written: ScenarioFile) -> list[tuple[str, int, ActorEntry]]:
    """Return all entries of actors as (group, index in the group, entry)."""
    return [
        (group, index, entry)
        for group in ACTOR_GROUPS
        for index, entry in enumerate(getattr(written.actors, group))
    ]


def _check_topics(file: YamlFile, written: ScenarioFile, topology: Topology) -> None:
    """Check that every actor's topic is in a namespace of the actor's region."""
    regions_of = {namespace.name: namespace.regions for namespace in topology.namespaces}
    named: list[tuple[KeyPath, KeyPath, str, str]] = []
    for group, index, entry in _entries(written):
        path: KeyPath = ("actors", group, index)
        topic_path: KeyPath = (*path, "topic") if entry.topic else ("topic",)
        named.append((topic_path, (*path, "region"), entry.topic or written.topic, entry.region))
        named += [
            ((*path, key), (*path, "region"), other, entry.region)
            for key in ("to", "reports_to")
            if (other := getattr(entry, key, None)) is not None
        ]
    for topic_path, region_path, topic, region in named:
        namespace = TopicName.parse(topic).full_namespace
        if namespace not in regions_of:
            file.report(topic_path, f"the topology has no namespace {namespace}", known=regions_of)
        elif region not in regions_of[namespace]:
            file.report(
                region_path, f"must be one of namespace {namespace}'s: {', '.join(regions_of[namespace])}"
            )


def _with_partitions(
    file: YamlFile, written: ScenarioFile, parts: tuple[ActorSpec, ...]
) -> tuple[ActorSpec, ...]:
    """Return the actors with the number of partitions of their topics. Contradictions are reported.

    In histories and verdicts each partition is a separate topic. Actors number their messages separately in each
    partition, and record the partition of each message. Partitions of a program are recorded by a tap (`tap: true`);
    `geoemu.recorded` rejects partitioned topics.
    """
    for topic in written.partitions:
        if TopicName.parse(topic).partition_index >= 0:
            file.report(("partitions", topic), "a partition cannot have partitions", about_key=True)
        if not any(topic in part.topics for part in parts):
            file.report(("partitions", topic), "no actor uses this topic", about_key=True)
        for problem in _misuses_of_partitions(topic, written, parts):
            file.report(("partitions", topic), problem, about_key=True)
    return tuple(_partitioned(part, written.partitions.get(part.topic, 0)) for part in parts)


def _misuses_of_partitions(topic: str, written: ScenarioFile, parts: tuple[ActorSpec, ...]) -> Iterator[str]:
    for part in parts:
        if topic not in part.topics:
            continue
        if isinstance(part, HostSpec | TaskSpec):
            kind = "host" if isinstance(part, HostSpec) else "task"
            yield f"{part.name} is a {kind}, which does not support partitioned topics"
        elif isinstance(part, ProducerSpec) and part.access == "wait":
            yield f"{part.name} waits for exclusive access, which scenarios do not support on partitioned topics"
    for index, promise in enumerate(written.contract, 1):
        if topic in (promise.of or written.topic, promise.on):
            yield f"a contract does not support partitioned topics, and entry {index} names this one"


def _partitioned(part: ActorSpec, partitions: int) -> ActorSpec:
    if isinstance(part, ProducerSpec | ConsumerSpec | ProgramSpec) and partitions:
        return replace(part, partitions=partitions)
    return part
