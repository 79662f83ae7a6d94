"""What may be written in a scenario file. `scenario.py` reads it, `runner.py` plays it.

A scenario is a cast (producers and consumers) and steps, done one after the other. A step is one verb:

    of actors     begin  finish  move
    of regions    kill  lose  stop  start  restart  pause  resume   the same words as on the command line
    of hosts      kill  stop  start  pause  resume
    of links      cut  hold  latency  heal
    of time       wait  wait_until  drain
    of the story  phase

Each step ends when what it says is true, or fails at its deadline (`within`); then the play is over.

The classes below are the definition of the language: reading, checking, the JSON Schema and its explanations
all come from them (`python -m emulator.scenarios.language` prints the schema). Names of regions and actors
are checked against the `Names` in the validation context.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from emulator.answers import Answers
from emulator.limits import Limit
from emulator.scenarios.hosts import HostDid, HostEntry, TopicsOwned
from emulator.scenarios.words import (
    LIST,
    NOT_EMPTY,
    ActorNames,
    Cluster,
    ConsumerName,
    HostNames,
    NewActorName,
    ProducerName,
    ProgramName,
    Rate,
    Region,
    RegionPair,
    RegionPairOrEverything,
    Regions,
    Seconds,
    Subscription,
    TimeSpan,
    Topic,
    lasting,
    pair,
    rule,
)
from emulator.scenarios.workload import (
    AccessWord,
    AcknowledgeMode,
    ConsumerPart,
    ConsumerType,
    ProducerPart,
    ProgramPart,
)
from emulator.scenarios.written import Deadline, Written, exactly_one

# --- the cast -----------------------------------------------------------------------------------------------


class ProducerEntry(Written):
    """Somebody who publishes."""

    name: NewActorName
    """Name of the actor, of its history file and of the Pulsar producer."""
    region: Region
    """Region that it publishes in."""
    topic: Topic | None = None
    """Topic that it publishes to; the scenario's when left out."""
    rate_per_second: Rate = 100.0
    """Messages per second; `unlimited`: as fast as the region takes them."""
    messages: Annotated[int, Field(gt=0)] | None = None
    """It stops by itself after this many; when left out, it goes on until `finish`."""
    message_bytes: Annotated[int, Field(ge=0)] = 200
    """Size of a message. It is never smaller than what says whose message it is (about 100 bytes)."""
    batching: bool = True
    """Whether the client puts messages together into batches."""
    batching_delay: Seconds = lasting("10ms")
    """How long the client waits to fill a batch."""
    send_timeout: Seconds = lasting("30s")
    """After this the client gives a publish up, and its outcome is unknown. `0s`: never."""
    max_pending: Annotated[int, Field(gt=0)] = 10_000
    """Publishes without an outcome after which the producer waits before it publishes more."""
    keyed: bool = False
    """Whether each message has a key of its own: `<name>-<number>`."""
    access: AccessWord = "shared"
    """How it shares its topic (PIP-68): `exclusive` is refused while there is another producer, `wait` waits until
    there is none, `fencing` throws out who is there."""
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0
    """Its priority in the line of those who wait, highest first (PIP-440)."""

    @model_validator(mode="after")
    def _priority_counts(self) -> Self:
        if self.priority and self.access != "wait":
            raise rule("a priority counts for `access: wait` only")
        return self

    def part(self, default_topic: str) -> ProducerPart:
        return ProducerPart(
            name=self.name,
            region=self.region,
            topic=self.topic or default_topic,
            rate_per_second=None if math.isinf(self.rate_per_second) else self.rate_per_second,
            messages=self.messages,
            message_bytes=self.message_bytes,
            batching=self.batching,
            batching_delay_ms=round(self.batching_delay * 1000),
            send_timeout_ms=round(self.send_timeout * 1000),
            max_pending=self.max_pending,
            keyed=self.keyed,
            access=self.access,
            priority=self.priority,
        )


class ConsumerEntry(Written):
    """Somebody who receives and acknowledges, from the earliest message on."""

    name: NewActorName
    """Name of the actor, of its history file and of the Pulsar consumer."""
    region: Region
    """Region that it begins in."""
    topic: Topic | None = None
    """Topic that it receives from; the scenario's when left out."""
    subscription: Annotated[str, Field(min_length=1)]
    """Subscription that it belongs to."""
    type: ConsumerType = "exclusive"
    """How the subscription shares messages among its consumers."""
    replicated: bool = False
    """Whether the subscription's position follows to the other regions (PIP-33)."""
    acknowledge: AcknowledgeMode = "individual"
    """Each message by itself, or all up to it."""
    receiver_queue: Annotated[int, Field(gt=0)] = 1000
    """Messages that the client fetches ahead."""

    @model_validator(mode="after")
    def _acknowledgement_fits_type(self) -> Self:
        if self.acknowledge == "cumulative" and self.type in ("shared", "key_shared"):
            raise rule(f"a {self.type} subscription is acknowledged one by one, not cumulatively")
        return self

    def part(self, default_topic: str) -> ConsumerPart:
        return ConsumerPart(
            name=self.name,
            region=self.region,
            topic=self.topic or default_topic,
            subscription=self.subscription,
            type=self.type,
            replicated=self.replicated,
            acknowledge=self.acknowledge,
            receiver_queue=self.receiver_queue,
        )


class ProgramEntry(Written):
    """A program of your own, which is told by its environment where it is (docs/OWN_SERVICE.md)."""

    name: NewActorName
    """Name of the actor and of its history file."""
    region: Region
    """Region that it begins in."""
    command: Annotated[tuple[str, ...], LIST, NOT_EMPTY, Field(json_schema_extra={"minItems": 1})]
    """What to start, in the folder that geoemu was started in: a program and its arguments, without a shell. `python`:
    the one that geoemu runs with."""
    environment: dict[str, str] = {}  # noqa: RUF012 (pydantic copies it)
    """Further variables."""
    topic: Topic | None = None
    """Topic of its subscriptions; the scenario's when left out."""
    subscriptions: Annotated[tuple[str, ...], LIST] = ()
    """Subscriptions of its that a step may wait for."""
    tap: bool = False
    """Whether it is recorded on the wire, for it does not record itself: it is told other service URLs."""
    restarts: bool = False
    """Whether it is started again when it ends by itself with an exit code other than 0, as a supervisor would."""
    stop_within: Seconds = lasting("5s")
    """How long it may take to end when it is told to (SIGTERM); then it is killed."""

    def part(self, default_topic: str) -> ProgramPart:
        return ProgramPart(
            name=self.name,
            region=self.region,
            topic=self.topic or default_topic,
            command=self.command,
            environment=tuple(self.environment.items()),
            subscriptions=self.subscriptions,
            restarts=self.restarts,
            stop_seconds=self.stop_within,
            tapped=self.tap,
        )


# --- the steps ----------------------------------------------------------------------------------------------


class Phase(Written):
    """Give what follows a name: a heading in progress and report."""

    shorthand = "text"
    text: Annotated[str, Field(min_length=1)]


class Begin(Deadline):
    """Actors connect and begin to work."""

    shorthand = "actors"
    actors: ActorNames
    """A name, several, or `producers`, `consumers`, `everyone` for all that have not begun."""


class Finish(Deadline):
    """Producers publish no more and wait until every publish has its outcome; consumers close."""

    shorthand = "actors"
    actors: ActorNames
    """A name, several, or `producers`, `consumers`, `everyone` for all that are at work."""


class Move(Deadline):
    """An actor goes on in another region, under its name or subscription."""

    consumer: ConsumerName | None = None
    producer: ProducerName | None = None
    program: ProgramName | None = None
    """It is told to end where it is, and started anew there."""
    to: Region
    """The region that it goes to."""

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        return exactly_one(self, "consumer", "producer", "program")

    @property
    def actor(self) -> str:
        return self.consumer or self.producer or self.program or ""


class OnRegion(Deadline):
    """Something is done to a region, to several at once, to a whole cluster, to a program of your own, or to hosts."""

    shorthand = "region"
    region: Regions | None = None
    """A region, or several."""
    cluster: Cluster | None = None
    """All regions of a cluster."""
    program: ProgramName | None = None
    """A program of your own."""
    host: HostNames | None = None
    """A host of this scenario, or several."""
    within: TimeSpan = lasting("30s")
    """How long the step may take before it counts as failed."""

    @model_validator(mode="after")
    def _says_where(self) -> Self:
        return exactly_one(self, "region", "cluster", "program", "host")


class OnLink(Deadline):
    """Something is done to the link between two regions."""

    shorthand: ClassVar[str | None] = "between"
    between: RegionPair | None = None
    """Two regions: both directions."""
    source: Region | None = Field(default=None, alias="from")
    """With `to`: this direction only."""
    target: Region | None = Field(default=None, alias="to")

    @model_validator(mode="after")
    def _names_two(self) -> Self:
        if (self.between is None) == (self.source is None or self.target is None):
            raise rule("must say either [A, B] (both directions) or {from: A, to: B} (one)")
        pair(self.ends)
        return self

    @property
    def ends(self) -> tuple[str, ...]:
        """Source and target; either order when both directions are meant."""
        return self.between or (self.source or "", self.target or "")

    @property
    def one_way(self) -> bool:
        return self.between is None


class Latency(OnLink):
    """What is sent between two regions takes longer, or less long."""

    shorthand = None
    time: Seconds = Field(alias="is")
    """How long it takes, one way."""
    jitter: Seconds | None = None
    """It takes up to so much longer, by chance; as it was when left out."""


class Heal(Deadline):
    """Links are as the topology declares them; what was held is delivered."""

    shorthand = "between"
    between: RegionPairOrEverything
    """Two regions (both directions), or `everything`, which is read as none."""


class Wait(Written):
    """Let time pass."""

    shorthand = "time"
    time: TimeSpan


class Published(Deadline):
    """A producer has been told that so many messages are stored."""

    producer: ProducerName
    published: Annotated[int, Field(gt=0)] | None = None
    """In all."""
    published_more: Annotated[int, Field(gt=0)] | None = None
    """Since this step began."""

    @model_validator(mode="after")
    def _says_how_many(self) -> Self:
        return exactly_one(self, "published", "published_more")

    @property
    def goal(self) -> int:
        return self.published or self.published_more or 0

    @property
    def counts_from_now(self) -> bool:
        return self.published_more is not None


class Received(Deadline):
    """A consumer has received so many different messages."""

    consumer: ConsumerName
    received: Annotated[int, Field(gt=0)] | None = None
    """In all."""
    received_more: Annotated[int, Field(gt=0)] | None = None
    """Since this step began."""

    @model_validator(mode="after")
    def _says_how_many(self) -> Self:
        return exactly_one(self, "received", "received_more")

    @property
    def goal(self) -> int:
        return self.received or self.received_more or 0

    @property
    def counts_from_now(self) -> bool:
        return self.received_more is not None


class ProgramDid(Deadline):
    """A program of your own has written down so much, or has ended by itself."""

    program: ProgramName
    published: Annotated[int, Field(gt=0)] | None = None
    """So many messages that it was told are stored, in all."""
    published_more: Annotated[int, Field(gt=0)] | None = None
    """Since this step began."""
    received: Annotated[int, Field(gt=0)] | None = None
    """Deliveries from so many different places, in all."""
    received_more: Annotated[int, Field(gt=0)] | None = None
    """Since this step began."""
    region: Region | None = Field(default=None, alias="in")
    """Only what it did in this region, for a program that changes regions by itself."""
    exit_code: int | None = None
    """It has ended with this."""

    @model_validator(mode="after")
    def _says_what(self) -> Self:
        if self.exit_code is not None and self.region is not None:
            raise ValueError("a program does not end in a region: leave out `in`")
        return exactly_one(self, "published", "published_more", "received", "received_more", "exit_code")

    @property
    def counts_publishes(self) -> bool:
        return self.published is not None or self.published_more is not None

    @property
    def goal(self) -> int:
        return self.published or self.published_more or self.received or self.received_more or 0

    @property
    def counts_from_now(self) -> bool:
        return self.published_more is not None or self.received_more is not None


class SubscriptionExists(Deadline):
    """A region knows a subscription: the position of a replicated one has arrived there."""

    subscription: Subscription
    exists_in: Region


_CONDITIONS = ("producer", "consumer", "program", "subscription", "host", "topics")


def _condition_kind(written: Any) -> str | None:
    keys = written if isinstance(written, dict) else type(written).model_fields
    return next((f"<{kind}>" for kind in _CONDITIONS if kind in keys), None)


Condition = Annotated[
    Annotated[Published, Tag("<producer>")]
    | Annotated[Received, Tag("<consumer>")]
    | Annotated[ProgramDid, Tag("<program>")]
    | Annotated[SubscriptionExists, Tag("<subscription>")]
    | Annotated[HostDid, Tag("<host>")]
    | Annotated[TopicsOwned, Tag("<topics>")],
    Discriminator(
        _condition_kind,
        custom_error_type="rule",
        custom_error_message="must name what it waits for: a producer, consumer, program, subscription, host or topics",
    ),
]


class Drain(Deadline):
    """Everything has arrived: no region owes another one anything, and consumers have acknowledged all."""

    shorthand = "within"


Action = (
    Phase
    | Begin
    | Finish
    | Move
    | OnRegion
    | OnLink
    | Latency
    | Heal
    | Wait
    | Published
    | Received
    | ProgramDid
    | SubscriptionExists
    | HostDid
    | TopicsOwned
    | Drain
)


class StepEntry(Written):
    """One step: exactly one of these verbs."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    phase: Phase | None = None
    """Give what follows a name."""
    begin: Begin | None = None
    """Actors connect and begin to work."""
    finish: Finish | None = None
    """Producers stop and wait for every outcome; consumers close."""
    move: Move | None = None
    """An actor goes on in another region."""
    kill: OnRegion | None = None
    """kill -9 a region."""
    lose: OnRegion | None = None
    """kill -9 a region that never comes back: from here on nobody waits for it."""
    stop: OnRegion | None = None
    """End a region in an orderly way."""
    start: OnRegion | None = None
    """Start a killed or stopped region on the log it left; ends when the region is ready."""
    restart: OnRegion | None = None
    """Stop and start a region."""
    pause: OnRegion | None = None
    """Freeze a region: it keeps its connections and answers nothing."""
    resume: OnRegion | None = None
    """Thaw a paused region."""
    cut: OnLink | None = None
    """Let nothing pass between two regions."""
    hold: OnLink | None = None
    """Keep what two regions send each other until `heal`."""
    latency: Latency | None = None
    """Let what two regions send each other take so long."""
    heal: Heal | None = None
    """Undo `cut`, `hold` and `latency`."""
    wait: Wait | None = None
    """Let time pass."""
    wait_until: Condition | None = None
    """Wait until a condition holds."""
    drain: Drain | None = None
    """Wait until everything has arrived everywhere and consumers have acknowledged all."""

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if len(self.model_fields_set) != 1 or self.action is None:
            raise rule("a step is exactly one verb with its object, like `kill: us-east`")
        return self

    @property
    def verb(self) -> str:
        return next(iter(self.model_fields_set))

    @property
    def action(self) -> Action | None:
        action: Action | None = getattr(self, self.verb)
        return action


class Cast(Written):
    """Who takes part."""

    producers: Annotated[tuple[ProducerEntry, ...], LIST] = ()
    consumers: Annotated[tuple[ConsumerEntry, ...], LIST] = ()
    programs: Annotated[tuple[ProgramEntry, ...], LIST] = ()
    hosts: Annotated[tuple[HostEntry, ...], LIST] = ()


class Expected(Written):
    """At most so much of what the report measures, for every actor."""

    unrecovered: Annotated[int, Field(ge=0)] | None = None
    """Acknowledged messages that went with a lost region."""
    repeated: Annotated[int, Field(ge=0)] | None = None
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


class AnswersEntry(Written):
    """A subscription acknowledges a message only when one with the same key is on another topic."""

    subscription: Annotated[str, Field(min_length=1)]
    """Who promises it."""
    of: Topic | None = None
    """The topic that is answered; the scenario's when left out."""
    on: Topic
    """The topic of the answers."""

    def promised(self, default_topic: str) -> Answers:
        return Answers(self.subscription, self.of or default_topic, self.on)


class ScenarioFile(Written):
    """A story that is played on a topology: who publishes and receives, and what happens to the regions."""

    name: NewActorName
    """Short name, for progress and report."""
    description: str = ""
    """What the story shows, for people."""
    topic: Topic
    """Topic of all actors that name no other."""
    actors: Cast
    """Who takes part."""
    answers: Annotated[tuple[AnswersEntry, ...], LIST] = ()
    """What services promise beside what Pulsar promises; the verdict holds them to it."""
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
