"""Topics with partitions in a scenario: who may use them.

Each partition is a topic of its own to the history and to the verdict. Actors that use all of them number their
messages in each, and write down which one a message went to or came from. Programs are their own masters: on the wire
their partitions are seen (`tap: true`), otherwise `geoemu.recorded` refuses the topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from emulator.config.yaml_source import YamlFile
from emulator.model.values import TopicName
from emulator.scenarios.actor_models.specs import (
    ActorSpec,
    ConsumerSpec,
    HostSpec,
    ProducerSpec,
    ProgramSpec,
    TaskSpec,
)
from emulator.scenarios.format.scenario_file import ScenarioFile


def with_partitions(
    file: YamlFile, written: ScenarioFile, parts: tuple[ActorSpec, ...]
) -> tuple[ActorSpec, ...]:
    """Return the actors with the number of partitions of their topics. Contradictions are reported."""
    for topic in written.partitions:
        if TopicName.parse(topic).partition_index >= 0:
            file.report(("partitions", topic), "a partition cannot have partitions", about_key=True)
        if not any(topic in part.topics for part in parts):
            file.report(("partitions", topic), "no actor uses this topic", about_key=True)
        for problem in _misuses(topic, written, parts):
            file.report(("partitions", topic), problem, about_key=True)
    return tuple(_told(part, written.partitions.get(part.topic, 0)) for part in parts)


def _misuses(topic: str, written: ScenarioFile, parts: tuple[ActorSpec, ...]) -> Iterator[str]:
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


def _told(part: ActorSpec, partitions: int) -> ActorSpec:
    if isinstance(part, ProducerSpec | ConsumerSpec | ProgramSpec) and partitions:
        return replace(part, partitions=partitions)
    return part
