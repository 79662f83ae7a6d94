"""The steps of a scenario, and a check that each step is possible after the steps before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from emulator.config.topology import Topology
from emulator.config.yaml_errors import KeyPath
from emulator.config.yaml_source import YamlFile
from emulator.model.values import TopicName
from emulator.scenarios.actors.specs import (
    ActorSpec,
    ConsumerSpec,
    HostSpec,
    ProducerSpec,
    ProgramSpec,
    TaskSpec,
)
from emulator.scenarios.format.conditions import (
    Barrier,
    HostCondition,
    ProgramCondition,
    PublishedCondition,
    ReceivedCondition,
    TaskCondition,
    TopicsOwnedCondition,
)
from emulator.scenarios.format.machine_steps import PowerLoss
from emulator.scenarios.format.steps import Action, Begin, Chaos, Drain, Finish, Move, OnRegion
from emulator.scenarios.format.types import GROUPS

_KINDS: dict[str, type] = dict(
    zip(GROUPS, (ProducerSpec, ConsumerSpec, ProgramSpec, HostSpec, TaskSpec, object), strict=True)
)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a scenario."""

    number: int
    """Number of the step, from 1."""
    verb: str
    action: Action
    text: str
    """The step as written in the file, on one line."""
    actors: tuple[str, ...] = ()
    """Names of the actors of `begin` and `finish`, with groups resolved; empty for other verbs."""
    when: Barrier | None = None
    """The state that the step waits for before it begins."""

    def __str__(self) -> str:
        return f"step {self.number} ({self.text})"


class Rehearsal:
    """Tracks, step by step, which actors have begun and finished, and reports steps that are impossible."""

    def __init__(self, file: YamlFile, topology: Topology, parts: tuple[ActorSpec, ...]) -> None:
        self._file = file
        self._barriers = _Barriers(file, topology)
        self._parts = {part.name: part for part in parts}
        self._begun: list[str] = []
        self._finished: set[str] = set()

    def step(self, index: int, verb: str, action: Action, when: Barrier | None = None) -> Step:
        path: KeyPath = ("steps", index, verb)
        actors: tuple[str, ...] = ()
        if when is not None:
            self._barriers.check(("steps", index, "when"), when)
        self._barriers.note(index + 1, verb, action)
        match action:
            case Begin():
                actors = self._begin(path, action.actors)
            case Finish():
                actors = self._finish(path, action.actors)
            case Move():
                self._check_running(path, action.actor)
                self._check_can_move(path, action.actor)
            case PublishedCondition():
                self._check_begun(path, action.producer)
            case ReceivedCondition():
                self._check_begun(path, action.consumer)
            case ProgramCondition():
                self._check_begun(path, action.program)
            case OnRegion(program=str(program)):
                self._check_running(path, program)
                if verb == "lose":
                    self._file.report(path, "a program cannot be lost: use kill, or lose its region")
            case OnRegion(host=tuple(hosts)):
                self._check_verb_applies(path, verb, "a host", hosts)
            case OnRegion(task=tuple(tasks)):
                self._check_verb_applies(path, verb, "a task", tasks)
            case HostCondition():
                self._check_begun(path, action.host)
            case TaskCondition():
                self._check_begun(path, action.task)
            case TopicsOwnedCondition():
                if not any(isinstance(self._parts[name], HostSpec) for name in self._begun):
                    self._file.report(path, "no host has begun here")
            case Drain():
                self._check_no_endless_publisher(path)
        return Step(index + 1, verb, action, step_text(self._file.values["steps"][index]), actors, when)

    def _begin(self, path: KeyPath, names: tuple[str, ...]) -> tuple[str, ...]:
        waiting = [name for name in self._parts if name not in self._begun]
        resolved = self._resolve(path, names, waiting, "has begun already")
        self._begun += resolved
        return resolved

    def _finish(self, path: KeyPath, names: tuple[str, ...]) -> tuple[str, ...]:
        running = [name for name in self._begun if name not in self._finished]
        resolved = self._resolve(path, names, running, "is not running here")
        self._finished.update(resolved)
        return resolved

    def _resolve(
        self, path: KeyPath, names: tuple[str, ...], possible: list[str], otherwise: str
    ) -> tuple[str, ...]:
        resolved: list[str] = []
        for name in names:
            members = [member for member in possible if self._is_in(member, name)]
            if not members:
                self._file.report(
                    path, f"{name}: no actor is left" if name in GROUPS else f"{name} {otherwise}"
                )
            resolved += [member for member in members if member not in resolved]
        return tuple(resolved)

    def _is_in(self, actor: str, name_or_group: str) -> bool:
        kind = _KINDS.get(name_or_group)
        return actor == name_or_group if kind is None else isinstance(self._parts[actor], kind)

    def _check_can_move(self, path: KeyPath, actor: str) -> None:
        part = self._parts.get(actor)
        if isinstance(part, ProducerSpec) and part.access == "wait":
            self._file.report(path, f"{actor} waits for exclusive access in its region and cannot move")

    def _check_verb_applies(self, path: KeyPath, verb: str, noun: str, actors: tuple[str, ...]) -> None:
        for actor in actors:
            self._check_running(path, actor)
        if verb in ("lose", "restart"):
            self._file.report(
                path, f"{noun} can be killed, stopped, started, paused and resumed; {verb} is for regions"
            )

    def _check_begun(self, path: KeyPath, actor: str) -> None:
        if actor not in self._begun:
            self._file.report(path, f"{actor} has not begun here; put `begin: {actor}` before")

    def _check_running(self, path: KeyPath, actor: str) -> None:
        self._check_begun(path, actor)
        if actor in self._finished:
            self._file.report(path, f"{actor} has finished before this step")

    def _check_no_endless_publisher(self, path: KeyPath) -> None:
        for name in self._begun:
            part = self._parts[name]
            endless = isinstance(part, HostSpec) or (isinstance(part, ProducerSpec) and part.messages is None)
            if endless and name not in self._finished:
                self._file.report(path, f"{name} publishes without end; put `finish: {name}` before")


class _Barriers:
    """Reports states that no region can reach: it is down at that step, or the topology has no such events."""

    def __init__(self, file: YamlFile, topology: Topology) -> None:
        self._file = file
        self._topology = topology
        self._down: dict[str, str] = {}
        """Region that an earlier step ended or paused -> that step."""

    def note(self, number: int, verb: str, action: Action) -> None:
        """Note which regions a step ends, pauses, starts or resumes."""
        if isinstance(action, Chaos):
            self._down.clear()
        if isinstance(action, PowerLoss):
            self._down.update(dict.fromkeys(action.region, f"`{verb}` in step {number}"))
        if not isinstance(action, OnRegion):
            return
        for region in action.region or self._regions_of(action.cluster):
            if verb in ("start", "restart", "resume"):
                self._down.pop(region, None)
            else:
                self._down[region] = f"`{verb}` in step {number}"

    def _regions_of(self, cluster: str | None) -> tuple[str, ...]:
        return tuple(region.name for region in self._topology.regions if region.cluster == cluster)

    def check(self, path: KeyPath, barrier: Barrier) -> None:
        region, event = self._topology.region(barrier.region), barrier.state.event
        if region.name in self._down:
            sentence = f"{region.name} reaches no state after {self._down[region.name]}"
            self._file.report((*path, "region"), f"{sentence}: start or resume it before")
        if event.startswith("transaction_") and not region.settings.transaction_coordinators:
            self._file.report((*path, "region"), f"{region.name} has no transaction coordinators")
        synchronises = (
            region.settings.configuration_metadata_sync_event_topic and len(self._topology.clusters) > 1
        )
        if event.startswith("metadata_") and not synchronises:
            self._file.report(
                (*path, "region"), f"{region.name} does not synchronise metadata with other clusters"
            )
        if barrier.topic is not None:
            self._check_topic(path, barrier.region, TopicName.parse(barrier.topic).full_namespace)
        if event.startswith(("snapshot_", "update_")) and not self._replicates(barrier):
            self._file.report((*path, "region"), f"{region.name} replicates to no other region")

    def _check_topic(self, path: KeyPath, region: str, namespace: str) -> None:
        regions_of = {one.name: one.regions for one in self._topology.namespaces}
        if namespace not in regions_of:
            self._file.report(
                (*path, "topic"), f"the topology has no namespace {namespace}", known=regions_of
            )
        elif region not in regions_of[namespace]:
            regions = ", ".join(regions_of[namespace])
            self._file.report((*path, "region"), f"must be one of namespace {namespace}'s: {regions}")

    def _replicates(self, barrier: Barrier) -> bool:
        """Whether the region shares the namespace of the topic, or any namespace, with another region. An unknown
        namespace is reported otherwise."""
        topic = barrier.topic
        namespace = None if topic is None else TopicName.parse(topic).full_namespace
        found = [one.regions for one in self._topology.namespaces if namespace in (None, one.name)]
        return not found or any(set(regions) > {barrier.region} for regions in found)


def step_text(step: Any) -> str:
    """Return a step in the syntax of a scenario file, without the outermost braces."""
    text = yaml.safe_dump(step, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000)
    return text.strip()[1:-1]
