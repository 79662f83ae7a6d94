"""What may be written in a scenario file. `scenario.py` reads it, `runner.py` plays it.

A scenario is a cast (producers and consumers) and steps, done one after the other. A step is one verb:

    of actors     begin  finish  move
    of regions    kill  lose  stop  start  restart  pause  resume   the same words as on the command line
    of hosts      kill  stop  start  pause  resume
    of links      cut  hold  latency  heal
    of time       wait  wait_until  drain
    of the story  phase

Each step ends when what it says is true, or fails at its deadline (`within`); then the play is over.

The classes here, in `cast.py`, `steps.py` and `conditions.py` are the definition of the language: reading, checking,
the JSON Schema and its explanations all come from them (`python -m emulator.scenarios.language` prints the schema).
Names of regions and actors are checked against the `Names` in the validation context.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import (
    Field,
)

from emulator.answers import Contract
from emulator.limits import Limit
from emulator.scenarios.cast import Cast
from emulator.scenarios.steps import (
    StepEntry,
)
from emulator.scenarios.wanted import AS_DECLARED, WantedSettings
from emulator.scenarios.words import (
    LIST,
    NOT_EMPTY,
    NewActorName,
    Seconds,
    Topic,
)
from emulator.scenarios.written import Written

Partitions = Annotated[int, Field(ge=1, le=64)]
"""Each is a log in every region, and a producer and a consumer more of every actor that uses it."""


class Expected(Written):
    """At most so much of what the report measures, for every actor."""

    unrecovered: Annotated[int, Field(ge=0)] | None = None
    """Acknowledged messages that went with a lost region."""
    redelivered: Annotated[int, Field(ge=0)] | None = None
    """Deliveries of messages that a subscription had received before."""
    gap: Seconds | None = None
    """From the loss of a subscription's region to its next message."""
    stall: Seconds | None = None
    """The longest time in which a message waited for a subscription and it received nothing."""
    outage: Seconds | None = None
    """The longest time in which a producer asked and nothing of its was acknowledged."""
    latency_p50: Seconds | None = Field(default=None, alias="latency.p50")
    """From asking to publish a message to its first delivery: half of them are faster."""
    latency_p99: Seconds | None = Field(default=None, alias="latency.p99")
    """The same: 99 of 100 are faster."""
    latency_max: Seconds | None = Field(default=None, alias="latency.max")
    """The same: all are faster."""
    lag: Seconds | None = None
    """The longest time from an acknowledgement in one region to the first delivery in another one."""

    @property
    def limits(self) -> tuple[Limit, ...]:
        names = {name: field.alias or name for name, field in type(self).model_fields.items()}
        return tuple(
            Limit(names[name], None, "<=", float(value))
            for name in names
            if (value := getattr(self, name)) is not None
        )


class ContractEntry(Written):
    """A subscription acknowledges a message only when one with the same key is on another topic."""

    subscription: Annotated[str, Field(min_length=1)]
    """Who promises it."""
    of: Topic | None = None
    """The topic that is answered; the scenario's when left out."""
    on: Topic
    """The topic of the answers."""

    def promised(self, default_topic: str) -> Contract:
        return Contract(self.subscription, self.of or default_topic, self.on)


class ScenarioFile(Written):
    """A story that is played on a topology: who publishes and receives, and what happens to the regions."""

    name: NewActorName
    """Short name, for progress and report."""
    description: str = ""
    """What the story shows, for people."""
    topic: Topic
    """Topic of all actors that name no other."""
    partitions: Annotated[dict[Topic, Partitions], Field(default_factory=dict)]
    """Topics that have partitions, and how many. They are created before the first step."""
    actors: Cast
    """Who takes part."""
    contract: Annotated[tuple[ContractEntry, ...], LIST] = ()
    """What services promise beside what Pulsar promises; the verdict holds them to it."""
    settings: WantedSettings = AS_DECLARED
    """Knobs of the brokers that the story is about, whatever the topology says."""
    expect: Expected = Expected()
    """Limits for what the report measures; a missed one fails the run, whatever the verdict."""
    steps: Annotated[tuple[StepEntry, ...], LIST, NOT_EMPTY, Field(json_schema_extra={"minItems": 1})]
    """What happens, one step after the other."""


def json_schema() -> dict[str, Any]:
    """JSON Schema of a scenario file, for editors."""
    schema = ScenarioFile.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_untitled(schema)}


def _untitled(part: Any) -> Any:
    """Without pydantic's titles, which only repeat the keys."""
    if isinstance(part, dict):
        return {key: _untitled(value) for key, value in part.items() if key != "title"}
    return [_untitled(value) for value in part] if isinstance(part, list) else part


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2))
