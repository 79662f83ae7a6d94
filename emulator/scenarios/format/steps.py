"""The steps of a scenario file: the models of all verbs and their objects."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    model_validator,
)

from emulator.config.yaml_errors import rule
from emulator.scenarios.chaos.plan import SECONDS_MAX, SECONDS_MIN, ProfileName
from emulator.scenarios.format.conditions import (
    AdminCondition,
    Barrier,
    Condition,
    HostCondition,
    ProgramCondition,
    PublishedCondition,
    ReceivedCondition,
    SubscriptionExists,
    TaskCondition,
    TopicsOwnedCondition,
)
from emulator.scenarios.format.link_steps import (
    BandwidthLimit,
    DelayOfFrames,
    Flap,
    Heal,
    Latency,
    OnFrames,
    OnLink,
    ProfileOfLink,
    Stall,
)
from emulator.scenarios.format.machine_steps import Disk, PowerLoss, Skew
from emulator.scenarios.format.types import (
    LIST,
    NOT_EMPTY,
    ONE_OR_MORE,
    ActorNames,
    AdminPath,
    Cluster,
    ConsumerName,
    Deadline,
    FormatModel,
    HostNames,
    ProducerName,
    ProgramName,
    Region,
    Regions,
    Subscription,
    TaskNames,
    TimeSpan,
    exactly_one,
    lasting,
)


class Phase(FormatModel):
    """A heading for the following steps, in progress and report."""

    shorthand = "text"
    text: Annotated[str, Field(min_length=1)]


class Begin(Deadline):
    """Connect actors and start their work."""

    shorthand = "actors"
    actors: ActorNames
    """A name, several, or `producers`, `consumers`, `programs`, `hosts`, `tasks`, `all`: those that have not begun."""


class Finish(Deadline):
    """Stop producers and wait for every outcome; close consumers; end programs."""

    shorthand = "actors"
    actors: ActorNames
    """A name, several, or `producers`, `consumers`, `programs`, `hosts`, `tasks`, `all`: those that have begun."""


class Move(Deadline):
    """Continue an actor in another region, with its name and subscription."""

    consumer: ConsumerName | None = None
    producer: ProducerName | None = None
    program: ProgramName | None = None
    """A program; it receives SIGTERM and is started again in the other region."""
    to: Region
    """The region where it continues."""

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        return exactly_one(self, "consumer", "producer", "program")

    @property
    def actor(self) -> str:
        return self.consumer or self.producer or self.program or ""


class OnRegion(Deadline):
    """A region, several at once, a cluster, a program, hosts or tasks."""

    shorthand = "region"
    region: Regions | None = None
    """A region, or several."""
    cluster: Cluster | None = None
    """All regions of a cluster."""
    program: ProgramName | None = None
    """A program of this scenario."""
    host: HostNames | None = None
    """A host of this scenario, or several."""
    task: TaskNames | None = None
    """A task of this scenario, or several."""
    within: TimeSpan = lasting("30s")
    """Time after which the step fails."""

    @model_validator(mode="after")
    def _names_one_target(self) -> Self:
        return exactly_one(self, "region", "cluster", "program", "host", "task")


class Lose(OnRegion):
    """Lose regions or a cluster permanently."""

    with_store: bool = False
    """Of a cluster: lose its configuration store, too. If its regions are started again, the store is empty and
    receives the metadata of other clusters."""

    @model_validator(mode="after")
    def _has_a_store(self) -> Self:
        if self.with_store and self.cluster is None:
            raise rule("with_store requires `cluster`, whose regions share the store")
        return self


class AdminCall(Deadline):
    """Call the admin API of a region and compare the status of the response. `admin` may be a list of concurrent
    calls."""

    region: Region
    method: Literal["GET", "PUT", "POST", "DELETE"]
    path: AdminPath
    body: Any = None
    """Request body, as JSON."""
    status: Annotated[tuple[Annotated[int, Field(ge=100, le=599)], ...], ONE_OR_MORE] = ()
    """Expected status of the response, or several that are accepted; default: 200 to 299."""


class AdminCalls(FormatModel):
    """One call of the admin API, or several concurrent ones."""

    shorthand = "calls"
    calls: Annotated[tuple[AdminCall, ...], LIST, NOT_EMPTY]


class Wait(FormatModel):
    """Let time pass."""

    shorthand = "time"
    time: TimeSpan


class Chaos(FormatModel):
    """Inject random faults; afterwards regions run, links and clocks are as declared."""

    duration: Annotated[TimeSpan, Field(alias="for")]
    """Time that the faults take together, from 2 seconds to 7 days."""
    seed: Annotated[int, Field(ge=0)] | None = None
    """Number that decides the faults and their times; default: the seed of `geoemu simulate`, otherwise 1."""
    profile: ProfileName = "mild"
    """`mild`: one fault at a time. `harsh`: several at a time, several regions at once, faults of clocks and disks."""
    lose: bool = False
    """Whether one region is lost for good, with the messages that only it stored."""

    @model_validator(mode="after")
    def _has_time_for_a_fault(self) -> Self:
        if not SECONDS_MIN <= self.duration <= SECONDS_MAX:
            raise rule("`for` must be between 2s and 10080m (7 days)")
        return self


class Drain(Deadline):
    """Wait until replication has caught up and consumers have acknowledged every message."""

    shorthand = "within"


class PlanFailover(Deadline):
    """Plan a fail-over of a subscription, and record the plan: the verdict compares it with what follows."""

    model_config = ConfigDict(populate_by_name=True)

    subscription: Subscription
    source: Region = Field(alias="from")
    """The region in which its consumers work."""
    target: Region = Field(alias="to")
    """The region in which they would continue."""
    quiet: bool = False
    """Whether to wait until nothing is under way that could change the plan: no message, snapshot or update."""

    @model_validator(mode="after")
    def _names_two_regions(self) -> Self:
        if self.source == self.target:
            raise rule("`from` and `to` must be two different regions")
        return self


Action = (
    Phase
    | Begin
    | Finish
    | Move
    | OnRegion
    | OnLink
    | OnFrames
    | Heal
    | Skew
    | Disk
    | PowerLoss
    | AdminCalls
    | PlanFailover
    | Wait
    | PublishedCondition
    | ReceivedCondition
    | ProgramCondition
    | SubscriptionExists
    | HostCondition
    | TaskCondition
    | TopicsOwnedCondition
    | AdminCondition
    | Chaos
    | Drain
)


class StepEntry(FormatModel):
    """One step: exactly one of these verbs, and `when` if it waits for a state of a protocol."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"required": ["when"]},
            "then": {"minProperties": 2, "maxProperties": 2},
            "else": {"minProperties": 1, "maxProperties": 1},
        }
    )

    when: Barrier | None = None
    """Begin the step when a region has reached this state of a protocol."""
    phase: Phase | None = None
    """A heading for the following steps."""
    begin: Begin | None = None
    """Connect actors and start their work."""
    finish: Finish | None = None
    """Stop producers and wait for every outcome; close consumers; end programs."""
    move: Move | None = None
    """Continue an actor in another region."""
    kill: OnRegion | None = None
    """Kill a region, program, host or task with SIGKILL; unflushed state is lost."""
    lose: Lose | None = None
    """Kill a region with SIGKILL permanently: the run no longer waits for it."""
    stop: OnRegion | None = None
    """Stop a region, program, host or task gracefully."""
    start: OnRegion | None = None
    """Start a killed or stopped region with its log, a program, host or task; the step completes when it is ready."""
    restart: OnRegion | None = None
    """Stop and start a region or program."""
    pause: OnRegion | None = None
    """Freeze a region, program, host or task: its connections stay open, and it sends nothing."""
    resume: OnRegion | None = None
    """Resume a paused region, program, host or task."""
    cut: OnLink | None = None
    """Drop all traffic of a link. New connections fail; open ones stall."""
    hold: OnLink | None = None
    """Queue traffic of a link until `heal`, then deliver it in order."""
    latency: Latency | None = None
    """Set the one-way latency of a link."""
    bandwidth: BandwidthLimit | None = None
    """Set the bandwidth of a link."""
    stall: Stall | None = None
    """Stall a link at regular intervals."""
    flap: Flap | None = None
    """Cut a link for a part of each period."""
    profile: ProfileOfLink | None = None
    """Give a link the values of a named profile, such as `satellite`."""
    reset: OnLink | None = None
    """Reset all open connections of a link; new ones work."""
    half_open: OnLink | None = None
    """Let all open connections of a link carry nothing any more, although they stay open; new ones work."""
    drop: OnFrames | None = None
    """Drop single commands, receipts or markers of a link."""
    delay: DelayOfFrames | None = None
    """Delay single commands, receipts or markers of a link."""
    duplicate: OnFrames | None = None
    """Send single commands, receipts or markers of a link twice."""
    reorder: OnFrames | None = None
    """Swap single commands, receipts or markers of a link with the next one."""
    heal: Heal | None = None
    """Undo all faults of links."""
    skew: Skew | None = None
    """Offset a region's wall clock, and let it drift."""
    disk: Disk | None = None
    """Make a region's disk slow, full, failing or healthy."""
    power_loss: PowerLoss | None = None
    """Kill a region as a power loss does: what no completed sync covers is dropped."""
    admin: AdminCalls | None = None
    """Call the admin API of regions."""
    plan: PlanFailover | None = None
    """Plan a fail-over of a subscription, and record the plan."""
    wait: Wait | None = None
    """Let time pass."""
    wait_until: Condition | None = None
    """Wait until a condition holds."""
    chaos: Chaos | None = None
    """Inject random faults for some time."""
    drain: Drain | None = None
    """Wait until replication has caught up and consumers have acknowledged every message."""

    @model_validator(mode="after")
    def _has_one_verb(self) -> Self:
        verbs = self.model_fields_set - {"when"}
        if len(verbs) != 1 or self.action is None:
            raise rule("a step has exactly one verb with its object, like `kill: us-east`")
        if "when" in self.model_fields_set and self.when is None:
            raise rule("`when` names a region and a state, like `{region: us-east, snapshot_round: 2}`")
        return self

    @property
    def verb(self) -> str:
        return next(iter(self.model_fields_set - {"when"}))

    @property
    def action(self) -> Action | None:
        action: Action | None = getattr(self, self.verb)
        return action
