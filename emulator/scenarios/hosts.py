"""What a scenario file may say of hosts: programs that own topics, and wait for those of others (PIP-68, PIP-440)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from emulator.scenarios.model_base import Deadline, Written
from emulator.scenarios.topic_assignment import hosts_named, own_topics, priorities, topics_named
from emulator.scenarios.types import HostName, NewActorName, Region, Topic
from emulator.scenarios.workload import HostPart

Priority = Annotated[int, Field(ge=-(2**31), lt=2**31)]


class HostEntry(Written):
    """Hosts that own topics: each topic has one owner, and all other hosts wait for it."""

    name: NewActorName
    """Name of the host, of its history file and of its Pulsar producers; with `count`: `<name>-1`, `<name>-2`, …"""
    count: Annotated[int, Field(gt=1)] | None = None
    """Number of hosts; default: one, whose name has no number."""
    region: Region
    """Their region."""
    topic: Topic | None = None
    """Topic; default: the scenario's topic."""
    topics: Annotated[int, Field(gt=0)] | None = None
    """Number of topics: `<topic>-1`, `<topic>-2`, …; default: the topic alone."""
    priority: Priority | Literal["balanced", "random"] = 0
    """A number for all topics. `balanced`: the topics of a host go to each of the others in turn. `random`: a
    reproducible random number per host and topic."""
    standby: bool = False
    """Whether they own no topic at the start and only wait."""
    heartbeats_per_second: Annotated[float, Field(gt=0, strict=False)] = 2.0
    """Heartbeats per second of an owner on each of its topics."""
    rebuilds: bool = False
    """Whether a new owner first reads the topic from its beginning and continues from that state."""
    reports_to: Topic | None = None
    """A topic to which an owner publishes a report with each heartbeat, both in one transaction."""

    @property
    def names(self) -> tuple[str, ...]:
        return hosts_named(self.name, self.count)

    def parts(self, default_topic: str) -> tuple[HostPart, ...]:
        topics = topics_named(self.topic or default_topic, self.topics)
        count = self.count or 1
        return tuple(
            HostPart(
                name=name,
                region=self.region,
                group=self.name,
                topics=topics,
                own=() if self.standby else own_topics(topics, index, count),
                priorities=priorities(self.priority, name, index, count, topics),
                heartbeats_per_second=self.heartbeats_per_second,
                rebuilds=self.rebuilds,
                reports_to=self.reports_to,
            )
            for index, name in enumerate(self.names)
        )


class HostDid(Deadline):
    """A host owns this number of topics."""

    host: HostName
    owns: Annotated[int, Field(ge=0)]
    """Exact number of topics."""


class TopicsOwned(Deadline):
    """Every topic of the hosts has a running owner that has published its introduction."""

    topics: Literal["owned"]
