"""The steps of a scenario file: one class a verb."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    model_validator,
)

from emulator.scenarios.conditions import (
    Condition,
    ProgramDid,
    Published,
    Received,
    RegionSays,
    SubscriptionExists,
)
from emulator.scenarios.hosts import HostDid, TopicsOwned
from emulator.scenarios.tasks import TaskDid
from emulator.scenarios.words import (
    LIST,
    NOT_EMPTY,
    ONE_OR_MORE,
    ActorNames,
    AdminPath,
    Cluster,
    ConsumerName,
    HostNames,
    Milliseconds,
    ProducerName,
    ProgramName,
    Region,
    RegionPair,
    RegionPairOrEverything,
    Regions,
    Seconds,
    TaskNames,
    TimeSpan,
    lasting,
    pair,
    rule,
)
from emulator.scenarios.written import Deadline, Written, exactly_one


class Phase(Written):
    """Give what follows a name: a heading in progress and report."""

    shorthand = "text"
    text: Annotated[str, Field(min_length=1)]


class Begin(Deadline):
    """Actors connect and begin to work."""

    shorthand = "actors"
    actors: ActorNames
    """A name, several, or `producers`, `consumers`, `all` for all that have not begun."""


class Finish(Deadline):
    """Producers publish no more and wait until every publish has its outcome; consumers close."""

    shorthand = "actors"
    actors: ActorNames
    """A name, several, or `producers`, `consumers`, `all` for all that are at work."""


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
    """Something is done to a region, to several at once, to a whole cluster, to a program of your own, or to hosts or
    tasks."""

    shorthand = "region"
    region: Regions | None = None
    """A region, or several."""
    cluster: Cluster | None = None
    """All regions of a cluster."""
    program: ProgramName | None = None
    """A program of your own."""
    host: HostNames | None = None
    """A host of this scenario, or several."""
    task: TaskNames | None = None
    """A task of this scenario, or several."""
    within: TimeSpan = lasting("30s")
    """How long the step may take before it counts as failed."""

    @model_validator(mode="after")
    def _says_where(self) -> Self:
        return exactly_one(self, "region", "cluster", "program", "host", "task")


class Lose(OnRegion):
    """A region never comes back, or a whole cluster."""

    with_store: bool = False
    """Of a cluster: its configuration store is lost, too. Its regions, if they are started again, begin with an empty
    one, and have what other clusters tell them."""

    @model_validator(mode="after")
    def _has_a_store(self) -> Self:
        if self.with_store and self.cluster is None:
            raise rule("with_store is for a whole cluster, whose regions share the store")
        return self


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


class Skew(Deadline):
    """A region's wall clock is set wrong by so much; `0ms` sets it right."""

    region: Region
    by: Milliseconds
    """Ahead, or behind (-250ms)."""


class AdminCall(Deadline):
    """Somebody asks a region's admin port for something, and is answered so. `admin` may be several such calls, made at
    the same time."""

    region: Region
    method: Literal["GET", "PUT", "POST", "DELETE"]
    path: AdminPath
    body: Any = None
    """JSON."""
    status: Annotated[tuple[Annotated[int, Field(ge=100, le=599)], ...], ONE_OR_MORE] = ()
    """Of the answer, or several that are as welcome; 200 to 299 when left out."""


class AdminCalls(Written):
    """One call, or several at the same time."""

    shorthand = "calls"
    calls: Annotated[tuple[AdminCall, ...], LIST, NOT_EMPTY]


class Wait(Written):
    """Let time pass."""

    shorthand = "time"
    time: TimeSpan


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
    | Skew
    | AdminCalls
    | Wait
    | Published
    | Received
    | ProgramDid
    | SubscriptionExists
    | HostDid
    | TaskDid
    | TopicsOwned
    | RegionSays
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
    lose: Lose | None = None
    """Kill a region with SIGKILL, for good: the run no longer waits for it."""
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
    skew: Skew | None = None
    """Set a region's wall clock wrong."""
    admin: AdminCalls | None = None
    """Call the admin API of regions."""
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
