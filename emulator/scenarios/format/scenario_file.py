"""The format of a scenario file. `scenario.py` reads it, `runner.py` runs it.

A scenario has actors (producers, consumers and others) and steps, run in order. A step is one verb:

    of actors     begin  finish  move
    of regions    kill  lose  stop  start  restart  pause  resume   the same words as on the command line
    of hosts      kill  stop  start  pause  resume
    of links      cut  hold  latency  heal
    of time       wait  wait_until  drain
    of the scenario  phase  chaos

A step completes when its condition holds, or fails at its deadline (`within`); then the run ends.

The classes here and in `scenarios/format/entries.py`, `steps.py` and `conditions.py` define the format: its reader, its
checks and its JSON Schema are derived from them (`python -m emulator.scenarios.format.scenario_file`
prints the schema). Names of regions and actors are checked against the `KnownNames` in the validation context.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator

from emulator.config.compatibility import SWITCHES
from emulator.config.models import (
    DurationOrEmpty,
    SnapshotCacheSize,
    SnapshotInterval,
    SnapshotTimeout,
    SnapshotTimeoutGrowth,
)
from emulator.config.topology import Topology
from emulator.config.yaml_errors import rule
from emulator.run.limits import Limit
from emulator.run.service_contract import Contract
from emulator.scenarios.format.entries import Actors
from emulator.scenarios.format.steps import (
    StepEntry,
)
from emulator.scenarios.format.types import (
    LIST,
    NOT_EMPTY,
    FormatModel,
    NewActorName,
    Seconds,
    Topic,
)

Choice = Literal["proposal", "upstream"]


class SettingsOverride(FormatModel):
    """Broker settings that override the `settings` of the topology."""

    metadata_sync_hybrid_clocks: bool | None = None
    """Order metadata events by hybrid logical clocks instead of wall clocks."""
    metadata_sync_requires_event_topic: bool | None = None
    """Reject metadata changes while the event topic accepts no messages."""
    metadata_sync_clock_ahead_ms_max: Annotated[int, Field(ge=0)] | None = None
    """How far ahead of the local clock the time of a metadata event may be."""
    replicate_subscription_state: bool | None = None
    """Replicate every durable subscription, also if its consumers do not request it."""
    snapshot_interval_ms: SnapshotInterval | None = None
    """Interval of snapshots of replicated subscriptions while there is traffic."""
    snapshot_timeout_ms: SnapshotTimeout | None = None
    """Time after which a snapshot that lacks a response is dropped."""
    snapshot_timeout_growth_max: SnapshotTimeoutGrowth | None = None
    """Maximum factor by which the timeout grows."""
    snapshot_cache_size: SnapshotCacheSize | None = None
    """Number of snapshots that each replicated subscription remembers."""
    snapshot_schedule: Literal["periodic", "adaptive"] | None = None
    """When snapshots are taken."""
    replicate_individual_acks: bool | None = None
    """Replicate individual acknowledgements, too."""
    partial_snapshots_after: DurationOrEmpty | None = None
    """Absence of a region after which snapshots continue without it."""
    compatibility: dict[str, Choice] = {}  # noqa: RUF012 (pydantic copies it)
    """Switches to upstream's behaviour, besides those of the topology; see docs/PROTOCOL.md."""

    @field_validator("compatibility")
    @classmethod
    def _are_switches(cls, chosen: dict[str, str]) -> dict[str, str]:
        for name in chosen:
            if name not in SWITCHES:
                raise rule(f"{name!r} is no switch; there are {', '.join(SWITCHES)}")
        return chosen

    def obeyed_by(self, topology: Topology) -> Topology:
        """Return the topology with these settings of its regions, and these switches."""
        overrides = self.model_dump(exclude_none=True, exclude={"compatibility"})
        topology = replace(topology, compatibility={**topology.compatibility, **self.compatibility})
        return topology.with_regions(
            lambda region: replace(region, settings=replace(region.settings, **overrides))
        )


AS_DECLARED: Final = SettingsOverride()
"""The settings of a scenario that overrides none."""

Partitions = Annotated[int, Field(ge=1, le=64)]
"""Number of partitions of a topic. Each partition adds a log in every region, and a producer or consumer to every actor
that uses the topic."""


class Expected(FormatModel):
    """Limits for figures of the report, for every actor."""

    unrecovered: Annotated[int, Field(ge=0)] | None = None
    """Maximum number of acknowledged messages that were lost with a region."""
    redelivered: Annotated[int, Field(ge=0)] | None = None
    """Maximum number of redeliveries of a subscription: messages that it had received before."""
    gap: Seconds | None = None
    """Maximum time from the failure of a subscription's region to its next message."""
    stall: Seconds | None = None
    """Maximum time in which an acknowledged message waited for a subscription and it received nothing."""
    outage: Seconds | None = None
    """Maximum time in which a producer had pending publishes and received no receipt."""
    latency_p50: Seconds | None = Field(default=None, alias="latency.p50")
    """Maximum of the median latency from the publish call to the first delivery."""
    latency_p99: Seconds | None = Field(default=None, alias="latency.p99")
    """The same for the 99th percentile."""
    latency_max: Seconds | None = Field(default=None, alias="latency.max")
    """The same for the slowest message."""
    lag: Seconds | None = None
    """Maximum time from the acknowledgement of a message in one region to its first delivery in another one."""
    replication_lag: Seconds | None = None
    """Maximum time from the acknowledgement of a message in one region until another one stored it."""
    replication_lag_p50: Seconds | None = Field(default=None, alias="replication_lag.p50")
    """The same for the median of a link and topic."""
    replication_lag_p99: Seconds | None = Field(default=None, alias="replication_lag.p99")
    """The same for the 99th percentile."""

    @property
    def limits(self) -> tuple[Limit, ...]:
        names = {name: field.alias or name for name, field in type(self).model_fields.items()}
        return tuple(
            Limit(names[name], None, "<=", float(value))
            for name in names
            if (value := getattr(self, name)) is not None
        )


class ContractEntry(FormatModel):
    """A contract of a service: for every message that it acknowledges, another topic has one with the same key."""

    subscription: Annotated[str, Field(min_length=1)]
    """Subscription of the service."""
    of: Topic | None = None
    """Input topic; default: the scenario's topic."""
    on: Topic
    """Output topic."""

    def promised(self, default_topic: str) -> Contract:
        return Contract(self.subscription, self.of or default_topic, self.on)


class ScenarioFile(FormatModel):
    """A scenario: actors that publish and consume, and steps that control them, the regions and the links."""

    name: NewActorName
    """Short name, shown in progress and report."""
    description: str = ""
    """What happens."""
    proves: str = ""
    """What a valid run proves."""
    topic: Topic
    """Default topic of all actors."""
    partitions: Annotated[dict[Topic, Partitions], Field(default_factory=dict)]
    """Number of partitions of each partitioned topic. They are created before the first step."""
    actors: Actors
    """Producers, consumers, programs, hosts and tasks."""
    contract: Annotated[tuple[ContractEntry, ...], LIST] = ()
    """Contracts of services (INV-20), which the verdict checks."""
    settings: SettingsOverride = AS_DECLARED
    """Broker settings that override those of the topology."""
    expect: Expected = Expected()
    """Limits for figures of the report; a missed one fails the run, whatever the verdict."""
    steps: Annotated[tuple[StepEntry, ...], LIST, NOT_EMPTY, Field(json_schema_extra={"minItems": 1})]
    """Steps, run in order."""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario file, for editors."""
    schema = ScenarioFile.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_untitled(schema)}


def _untitled(part: Any) -> Any:
    """Return the schema without pydantic's titles, which only repeat the keys."""
    if isinstance(part, dict):
        return {key: _untitled(value) for key, value in part.items() if key != "title"}
    return [_untitled(value) for value in part] if isinstance(part, list) else part


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2))
