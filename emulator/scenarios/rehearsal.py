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
        path: KeyPath = ("steps", index, verb)
        actors: tuple[str, ...] = ()
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
        return Step(index + 1, verb, action, step_text(self._file.values["steps"][index]), actors)

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


def step_text(step: Any) -> str:
    """Return a step in the syntax of a scenario file, without the outermost braces."""
    text = yaml.safe_dump(step, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000)
    return text.strip()[1:-1]
