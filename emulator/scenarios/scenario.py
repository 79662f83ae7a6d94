"""A scenario: read from its file, checked against a topology, ready to be played.

    scenario = load_scenario(Path("region-failover.yaml"), topology)

The format is defined in `scenarios/format/`; this module checks a file as a whole: names are
unique, an actor has begun before it moves, a drain waits for something that can end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from emulator.config.topology import Topology
from emulator.config.yaml_errors import KeyPath, one_of
from emulator.config.yaml_source import YamlFile, parse_yaml, read_yaml
from emulator.errors import ConfigurationError, Problem
from emulator.model.renamed import report_renamed
from emulator.model.suggestions import nearest
from emulator.model.values import TopicName
from emulator.run.limits import Limit
from emulator.run.service_contract import Contract
from emulator.scenarios.actor_models.entries import (
    ConsumerEntry,
    HostCondition,
    HostEntry,
    ProducerEntry,
    ProgramEntry,
    TaskCondition,
    TaskEntry,
    TopicsOwnedCondition,
)
from emulator.scenarios.actor_models.partitions import with_partitions
from emulator.scenarios.actor_models.specs import (
    ActorSpec,
    ConsumerSpec,
    HostSpec,
    ProducerSpec,
    ProgramSpec,
    TaskSpec,
)
from emulator.scenarios.actor_models.topic_assignment import hosts_named
from emulator.scenarios.format.conditions import ProgramCondition, PublishedCondition, ReceivedCondition
from emulator.scenarios.format.requirements import AS_DECLARED, SettingsOverride
from emulator.scenarios.format.scenario_file import ScenarioFile
from emulator.scenarios.format.steps import Action, Begin, Drain, Finish, Move, OnRegion
from emulator.scenarios.types import GROUPS, KnownNames

SHIPPED = Path(__file__).parent
"""Where the scenarios that come with geoemu are; people copy and change them."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a scenario."""

    number: int
    """1-based."""
    verb: str
    action: Action
    text: str
    """As it is written in the file, on one line."""
    actors: tuple[str, ...] = ()
    """begin and finish: the names of the actors, with groups resolved."""

    def __str__(self) -> str:
        return f"step {self.number} ({self.text})"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A validated scenario. Everything that it names exists."""

    name: str
    description: str
    topic: str
    parts: tuple[ActorSpec, ...]
    """Producers first, tasks last; names are unique."""
    steps: tuple[Step, ...]
    limits: tuple[Limit, ...] = ()
    """What is expected of the figures."""
    contract: tuple[Contract, ...] = ()
    """What services promise."""
    settings: SettingsOverride = AS_DECLARED
    """Broker settings that it overrides."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """Of each topic that has some."""

    def part(self, name: str) -> ActorSpec:
        return next(part for part in self.parts if part.name == name)

    def topics_of(self, subscription: str) -> set[str]:
        """Topics on which consumers use a subscription of that name."""
        consumers = (part for part in self.parts if isinstance(part, ConsumerSpec | TaskSpec))
        programs = (part for part in self.parts if isinstance(part, ProgramSpec))
        return {
            *(topic for part in consumers if part.subscription == subscription for topic in part.read),
            *(topic for part in programs if subscription in part.subscriptions for topic in part.topics),
        }


def load_scenario(path: Path, topology: Topology) -> Scenario:
    """Read and check a scenario file. ConfigurationError with every problem found."""
    if not path.exists():
        rule = f"no such file; geoemu includes {one_of(shipped_scenarios())} in {SHIPPED}"
        meant = nearest(path.stem, shipped_scenarios())
        raise ConfigurationError([Problem(str(path), None, "", "", rule, meant)])
    return _check(read_yaml(path), topology)


def parse_scenario(text: str, topology: Topology, name: str = "scenario.yaml") -> Scenario:
    """The same for a text; `name` names the file in messages."""
    return _check(parse_yaml(text, name), topology)


def shipped_scenarios() -> list[str]:
    """Names of the scenarios in `SHIPPED`."""
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
    assert written is not None, "something was noted otherwise"
    parts: tuple[ActorSpec, ...] = (
        *(producer.part(written.topic) for producer in written.actors.producers),
        *(consumer.part(written.topic) for consumer in written.actors.consumers),
        *(program.part(written.topic) for program in written.actors.programs),
        *(part for hosts in written.actors.hosts for part in hosts.parts(written.topic)),
        *(task.part(written.topic) for task in written.actors.tasks),
    )
    _check_topics(file, written, topology)
    parts = with_partitions(file, written, parts)
    rehearsal = _Rehearsal(file, parts)
    steps = tuple(
        rehearsal.step(index, entry.verb, entry.action)
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
    )


def _refuse_problems(file: YamlFile) -> None:
    if file.problems:
        raise ConfigurationError(sorted(file.problems, key=lambda problem: problem.line or 0))


def _names_written(content: Any, topology: Topology) -> KnownNames:
    """The names that steps may use, taken from the file before anything in it is known to be right."""
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
        case {"actors": dict() as cast} if isinstance(cast.get(group), list):
            entries = [(index, entry) for index, entry in enumerate(cast[group]) if isinstance(entry, dict)]
            return [(index, entry[key]) for index, entry in entries if isinstance(entry.get(key), str)]
        case _:
            return []


def _indexed_hosts(content: Any) -> list[tuple[int, str]]:
    """Each host by its own name, with the index of its entry."""
    found: list[tuple[int, str]] = []
    for index, name in _indexed_values(content, "hosts", "name"):
        count = content["actors"]["hosts"][index].get("count")
        found += [(index, one) for one in hosts_named(name, count if isinstance(count, int) else None)]
    return found


def _check_actor_names(file: YamlFile) -> None:
    seen: set[str] = set()
    for group in ("producers", "consumers", "programs", "hosts", "tasks"):
        named = (
            _indexed_hosts(file.values) if group == "hosts" else _indexed_values(file.values, group, "name")
        )
        for index, name in named:
            if name in seen:
                file.report(("actors", group, index, "name"), "another actor has this name")
            seen.add(name)


def _check_topics(file: YamlFile, written: ScenarioFile, topology: Topology) -> None:
    """Check that every actor's topic is in a namespace of the actor's region."""
    regions_of = {namespace.name: namespace.regions for namespace in topology.namespaces}
    cast = written.actors
    entries: list[tuple[str, int, ProducerEntry | ConsumerEntry | ProgramEntry | HostEntry | TaskEntry]] = [
        *(("producers", index, producer) for index, producer in enumerate(cast.producers)),
        *(("consumers", index, consumer) for index, consumer in enumerate(cast.consumers)),
        *(("programs", index, program) for index, program in enumerate(cast.programs)),
        *(("hosts", index, hosts) for index, hosts in enumerate(cast.hosts)),
        *(("tasks", index, task) for index, task in enumerate(cast.tasks)),
    ]
    named: list[tuple[KeyPath, KeyPath, str, str]] = [
        (
            ("actors", group, index, "topic") if entry.topic else ("topic",),
            ("actors", group, index, "region"),
            entry.topic or written.topic,
            entry.region,
        )
        for group, index, entry in entries
    ]
    for index, task in enumerate(cast.tasks):
        of_task: KeyPath = ("actors", "tasks", index)
        named.append(((*of_task, "to"), (*of_task, "region"), task.to, task.region))
    for index, hosts in enumerate(cast.hosts):
        of_hosts: KeyPath = ("actors", "hosts", index)
        if hosts.reports_to is not None:
            named.append(((*of_hosts, "reports_to"), (*of_hosts, "region"), hosts.reports_to, hosts.region))
    for at_topic, at_region, topic, region in named:
        namespace = TopicName.parse(topic).full_namespace
        if namespace not in regions_of:
            file.report(at_topic, f"the topology has no namespace {namespace}", known=regions_of)
        elif region not in regions_of[namespace]:
            file.report(
                at_region, f"must be one of namespace {namespace}'s: {', '.join(regions_of[namespace])}"
            )


class _Rehearsal:
    """Simulate the steps without effect: which actors are running when, and which steps are impossible then."""

    def __init__(self, file: YamlFile, parts: tuple[ActorSpec, ...]) -> None:
        self._file = file
        self._parts = {part.name: part for part in parts}
        self._begun: list[str] = []
        self._finished: set[str] = set()

    def step(self, index: int, verb: str, action: Action) -> Step:
        place: KeyPath = ("steps", index, verb)
        actors: tuple[str, ...] = ()
        match action:
            case Begin():
                actors = self._begin(place, action.actors)
            case Finish():
                actors = self._finish(place, action.actors)
            case Move():
                self._must_be_at_work(place, action.actor)
                self._may_move(place, action.actor)
            case PublishedCondition():
                self._must_have_begun(place, action.producer)
            case ReceivedCondition():
                self._must_have_begun(place, action.consumer)
            case ProgramCondition():
                self._must_have_begun(place, action.program)
            case OnRegion(program=str(program)):
                self._must_be_at_work(place, program)
                if verb == "lose":
                    self._file.report(place, "a program cannot be lost: use kill, or lose its region")
            case OnRegion(host=tuple(hosts)):
                self._may_be_done_to(place, verb, "a host", hosts)
            case OnRegion(task=tuple(tasks)):
                self._may_be_done_to(place, verb, "a task", tasks)
            case HostCondition():
                self._must_have_begun(place, action.host)
            case TaskCondition():
                self._must_have_begun(place, action.task)
            case TopicsOwnedCondition():
                if not any(isinstance(self._parts[name], HostSpec) for name in self._begun):
                    self._file.report(place, "no host has begun here")
            case Drain():
                self._must_not_publish(place)
        return Step(index + 1, verb, action, _on_one_line(self._file.values["steps"][index]), actors)

    def _begin(self, place: KeyPath, names: tuple[str, ...]) -> tuple[str, ...]:
        waiting = [name for name in self._parts if name not in self._begun]
        meant = self._resolve(place, names, waiting, "has begun already")
        self._begun += meant
        return meant

    def _finish(self, place: KeyPath, names: tuple[str, ...]) -> tuple[str, ...]:
        at_work = [name for name in self._begun if name not in self._finished]
        meant = self._resolve(place, names, at_work, "is not running here")
        self._finished.update(meant)
        return meant

    def _resolve(
        self, place: KeyPath, names: tuple[str, ...], possible: list[str], otherwise: str
    ) -> tuple[str, ...]:
        meant: list[str] = []
        for name in names:
            members = [member for member in possible if self._is_in(member, name)]
            if not members:
                self._file.report(
                    place, f"{name}: no actor is left" if name in GROUPS else f"{name} {otherwise}"
                )
            meant += [member for member in members if member not in meant]
        return tuple(meant)

    def _is_in(self, actor: str, name_or_group: str) -> bool:
        kinds = {
            "producers": ProducerSpec,
            "consumers": ConsumerSpec,
            "programs": ProgramSpec,
            "hosts": HostSpec,
            "tasks": TaskSpec,
            "all": object,
        }
        kind = kinds.get(name_or_group)
        return actor == name_or_group if kind is None else isinstance(self._parts[actor], kind)

    def _may_move(self, place: KeyPath, actor: str) -> None:
        part = self._parts.get(actor)
        if isinstance(part, ProducerSpec) and part.access == "wait":
            self._file.report(place, f"{actor} waits for exclusive access in its region and cannot move")

    def _may_be_done_to(self, place: KeyPath, verb: str, noun: str, actors: tuple[str, ...]) -> None:
        for actor in actors:
            self._must_be_at_work(place, actor)
        if verb in ("lose", "restart"):
            self._file.report(
                place, f"{noun} can be killed, stopped, started, paused and resumed; {verb} is for regions"
            )

    def _must_have_begun(self, place: KeyPath, actor: str) -> None:
        if actor not in self._begun:
            self._file.report(place, f"{actor} has not begun here; put `begin: {actor}` before")

    def _must_be_at_work(self, place: KeyPath, actor: str) -> None:
        self._must_have_begun(place, actor)
        if actor in self._finished:
            self._file.report(place, f"{actor} has finished before this step")

    def _must_not_publish(self, place: KeyPath) -> None:
        for name in self._begun:
            part = self._parts[name]
            endless = isinstance(part, HostSpec) or (isinstance(part, ProducerSpec) and part.messages is None)
            if endless and name not in self._finished:
                self._file.report(place, f"{name} publishes without end; put `finish: {name}` before")


def _on_one_line(step: Any) -> str:
    """Return a step in the syntax of a scenario file, without the outermost braces."""
    text = yaml.safe_dump(step, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000)
    return text.strip()[1:-1]
