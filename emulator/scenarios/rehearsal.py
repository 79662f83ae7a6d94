"""The steps of a scenario, and a check that each step is possible after the steps before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from emulator.config.yaml_errors import KeyPath
from emulator.config.yaml_source import YamlFile
from emulator.scenarios.actors.specs import (
    ActorSpec,
    ConsumerSpec,
    HostSpec,
    ProducerSpec,
    ProgramSpec,
    TaskSpec,
)
from emulator.scenarios.format.conditions import (
    HostCondition,
    ProgramCondition,
    PublishedCondition,
    ReceivedCondition,
    TaskCondition,
    TopicsOwnedCondition,
)
from emulator.scenarios.format.steps import Action, Begin, Drain, Finish, Move, OnRegion
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

    def __str__(self) -> str:
        return f"step {self.number} ({self.text})"


class Rehearsal:
    """Tracks, step by step, which actors have begun and finished, and reports steps that are impossible."""

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
        kind = _KINDS.get(name_or_group)
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
