"""The field types of the scenario format: names, durations, rates and regions.

pydantic validates each type. Names of regions and actors are checked against the `KnownNames` in the validation
context.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from emulator.config.renamed import VALUES
from emulator.config.yaml_errors import rule
from emulator.model.frame_faults import COMMANDS, COUNT_MAX, MARKERS, FrameAction, FrameFault
from emulator.model.units import UNLIMITED, bytes_per_second_in, fraction_in, seconds_in
from emulator.model.values import CLIENTS, TopicName

GROUPS = ("producers", "consumers", "programs", "hosts", "tasks", "all")
"""Names of groups of actors; no actor may have one of these names."""
EVERYTHING = "all"
FORMER_NAMES = {old for names in VALUES.values() for old in names}
"""Former names of `GROUPS` and `EVERYTHING`."""
SKEW_MS_MAX = 86_400_000

_ACTOR_NAME = re.compile(r"^[a-z0-9][a-z0-9_.-]*$")


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names that a scenario may refer to; used as the validation context."""

    regions: Collection[str]
    clusters: Collection[str] = ()
    producers: Collection[str] = ()
    consumers: Collection[str] = ()
    subscriptions: Collection[str] = ()
    programs: Collection[str] = ()
    hosts: Collection[str] = ()
    tasks: Collection[str] = ()

    @property
    def actors(self) -> list[str]:
        return [*self.producers, *self.consumers, *self.programs, *self.hosts, *self.tasks]


def _known(
    kind: str, article_and_noun: str, also: tuple[str, ...] = ()
) -> Callable[[str, ValidationInfo], str]:
    """Return a validator that accepts the names of `KnownNames.<kind>` and those in `also`."""

    def check(name: str, info: ValidationInfo) -> str:
        known = [*getattr(info.context, kind), *also]
        if name not in known:
            raise rule(f"must be {article_and_noun}: {', '.join(known) or 'none is declared'}", known=known)
        return name

    return check


def _duration(text: Any) -> float:
    try:
        return seconds_in(text if isinstance(text, str) else "")
    except ValueError as problem:
        raise rule(str(problem)) from None


def _signed_milliseconds(written: Any) -> int:
    text = written.strip() if isinstance(written, str) else ""
    milliseconds = round(_duration(text.lstrip("+-")) * 1000)
    if not text or text[:2] in ("++", "--", "+-", "-+") or milliseconds > SKEW_MS_MAX:
        raise rule("must be a duration of at most a day, with or without a sign, like +250ms")
    return -milliseconds if text.startswith("-") else milliseconds


def _rate(written: Any) -> float:
    if written == UNLIMITED:
        return math.inf
    if isinstance(written, bool) or not isinstance(written, int | float) or not 0 < written < math.inf:
        raise rule(f"must be a number greater than 0, or `{UNLIMITED}`")
    return float(written)


def _positive(seconds: float) -> float:
    if seconds <= 0:
        raise rule("must be greater than 0")
    return seconds


def _whole_topic(text: str) -> str:
    try:
        topic = TopicName.parse(text)
    except ValueError as problem:
        raise rule(str(problem)) from None
    if not topic.is_persistent:
        raise rule("is non-persistent, so its messages cannot be verified: use a persistent topic")
    return str(topic)


def _actor_name(name: str) -> str:
    if not _ACTOR_NAME.match(name):
        raise rule("must be lower-case letters, digits, '-', '_' and '.', as it names files too")
    if name in GROUPS or name in FORMER_NAMES or name == "scenario":
        raise rule(f"{name!r} is reserved; choose another name")
    return name


LIST = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
"""Converts a list of the YAML file to the tuple that a frozen model requires."""


def _not_empty(value: Any) -> Any:
    if value in ([], ()):
        raise rule("must not be empty")
    return value


ONE_OR_MORE = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else (value,))
"""Converts a list or a single value to a tuple."""
NOT_EMPTY = BeforeValidator(_not_empty)
"""Rejects an empty list before its elements are validated; pydantic's `min_length` would not count invalid elements."""


def _listed(value: Any) -> Any:
    """Convert a list or a single name to a tuple."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


def pair(regions: tuple[str, ...]) -> tuple[str, ...]:
    if len(regions) != 2 or regions[0] == regions[1]:
        raise rule("must be two different regions, like [us-east, us-west]")
    return regions


def _link_end(end: Any, info: ValidationInfo) -> Any:
    """Validate one end of a link: a region, several, a pattern, or `clients`."""
    regions = getattr(info.context, "regions", ())
    names = end.split(",") if isinstance(end, str) else end
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise rule("must be a region, several, a pattern like eu-*, or clients")
    for name in names:
        if name != CLIENTS and not any(fnmatchcase(region, name) for region in regions):
            raise rule(
                f"must be a region of the topology: {', '.join(regions)}; or clients", known=[*regions]
            )
    return ",".join(names)


def _link_direction(written: Any, info: ValidationInfo) -> Any:
    """Validate one direction of a link, `us->eu`; return its ends."""
    if isinstance(written, tuple):  # validated before
        return written
    ends = [end.strip() for end in written.split("->")] if isinstance(written, str) else []
    if len(ends) != 2 or ends[0] == ends[1]:
        raise rule("must be one direction of a link, like us->eu or clients->us")
    return tuple(_link_end(end, info) for end in ends)


def _frame_name(what: Any) -> Any:
    try:
        return FrameFault(FrameAction.DROP, what).what
    except ValueError as problem:
        raise rule(str(problem).removeprefix("what: ")) from None


def _pair_or_everything(written: Any) -> Any:
    if written in (EVERYTHING, ()):  # as written in the file, and as validated before
        return ()
    if not isinstance(written, list | tuple) or len(written) != 2 or written[0] == written[1]:
        raise rule(f"must be two different regions, like [us-east, us-west], or `{EVERYTHING}`")
    return tuple(written)


def _bandwidth(text: Any) -> int:
    """0: unlimited."""
    try:
        return bytes_per_second_in(text if isinstance(text, str) else "") or 0
    except ValueError as problem:
        raise rule(str(problem)) from None


def _fraction(text: Any) -> float:
    try:
        fraction = fraction_in(text if isinstance(text, str) else "")
    except ValueError as problem:
        raise rule(str(problem)) from None
    if not 0 < fraction < 1:
        raise rule("must be above 0% and below 100%")
    return fraction


_ONE_OR_SEVERAL = WithJsonSchema(
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
)
Seconds = Annotated[
    float,
    BeforeValidator(_duration),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(\.\d+)?\s*(ms|s|m)$", "examples": ["10s", "500ms"]}),
]
Rate = Annotated[
    float,
    BeforeValidator(_rate),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": UNLIMITED}]}),
]
TimeSpan = Annotated[Seconds, AfterValidator(_positive)]
AdminPath = Annotated[str, Field(pattern=r"^/[!-~]*$", max_length=2000)]
"""Path on a region's admin port, such as `/admin/v2/namespaces/public/default/retention`."""
Milliseconds = Annotated[
    int,
    BeforeValidator(_signed_milliseconds),
    WithJsonSchema({"type": "string", "pattern": r"^[+-]?\d+(\.\d+)?\s*(ms|s|m)$", "examples": ["+250ms"]}),
]
"""A duration with an optional sign, in milliseconds; may be negative."""
Topic = Annotated[str, AfterValidator(_whole_topic)]
NewActorName = Annotated[str, AfterValidator(_actor_name)]
Region = Annotated[str, AfterValidator(_known("regions", "a region of the topology"))]
Cluster = Annotated[str, AfterValidator(_known("clusters", "a cluster of the topology"))]
Regions = Annotated[tuple[Region, ...], BeforeValidator(_listed), NOT_EMPTY, _ONE_OR_SEVERAL]
"""One region or several, as a tuple."""
ProducerName = Annotated[str, AfterValidator(_known("producers", "a producer of this scenario"))]
ConsumerName = Annotated[str, AfterValidator(_known("consumers", "a consumer of this scenario"))]
ProgramName = Annotated[str, AfterValidator(_known("programs", "a program of this scenario"))]
HostName = Annotated[str, AfterValidator(_known("hosts", "a host of this scenario"))]
HostNames = Annotated[tuple[HostName, ...], BeforeValidator(_listed), NOT_EMPTY, _ONE_OR_SEVERAL]
TaskName = Annotated[str, AfterValidator(_known("tasks", "a task of this scenario"))]
TaskNames = Annotated[tuple[TaskName, ...], BeforeValidator(_listed), NOT_EMPTY, _ONE_OR_SEVERAL]
Subscription = Annotated[str, AfterValidator(_known("subscriptions", "a subscription of this scenario"))]
ActorOrGroup = Annotated[str, AfterValidator(_known("actors", "an actor of this scenario", GROUPS))]
ActorNames = Annotated[tuple[ActorOrGroup, ...], BeforeValidator(_listed), NOT_EMPTY, _ONE_OR_SEVERAL]
LinkEnd = Annotated[str, BeforeValidator(_link_end), _ONE_OR_SEVERAL]
"""One end of a link: a region, several (a list, or text with commas), a pattern such as `eu-*`, or `clients`."""
Bandwidth = Annotated[
    int,
    BeforeValidator(_bandwidth),
    WithJsonSchema({"type": "string", "examples": ["500KB/s", "1MB/s", "unlimited"]}),
]
Fraction = Annotated[
    float, BeforeValidator(_fraction), WithJsonSchema({"type": "string", "examples": ["50%"]})
]
LinkDirection = Annotated[
    tuple[str, ...],
    BeforeValidator(_link_direction),
    WithJsonSchema({"type": "string", "examples": ["us->eu", "clients->us"]}),
]
"""One direction of a link: its ends."""
FrameName = Annotated[
    str, BeforeValidator(_frame_name), WithJsonSchema({"enum": sorted((*COMMANDS, *MARKERS))})
]
"""Name of a command or marker."""
FrameCount = Annotated[int, Field(ge=1, le=COUNT_MAX, strict=True)]
_PAIR_SCHEMA: dict[str, Any] = {
    "type": "array",
    "items": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    "minItems": 2,
    "maxItems": 2,
}
LinkEnds = Annotated[
    tuple[LinkEnd, ...], BeforeValidator(_listed), AfterValidator(pair), WithJsonSchema(_PAIR_SCHEMA)
]
LinkEndsOrEverything = Annotated[
    tuple[LinkEnd, ...],
    BeforeValidator(_pair_or_everything),
    WithJsonSchema({"anyOf": [_PAIR_SCHEMA, {"const": EVERYTHING}]}),
]


def lasting(text: str) -> Any:
    """Return a field whose default is this duration; the JSON Schema contains it as text."""
    return Field(default=_duration(text), json_schema_extra={"default": text})


class FormatModel(BaseModel):
    """Base of all models of a scenario file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    shorthand: ClassVar[str | None] = None
    """The field that may be written alone: `kill: us-east` is `kill: {region: us-east}`."""

    @model_validator(mode="before")
    @classmethod
    def _expand_shorthand(cls, value: Any) -> Any:
        if cls.shorthand is not None and value is not None and not isinstance(value, dict):
            return {cls.shorthand: value}
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core))
        if cls.shorthand is not None:
            field = {**schema["properties"][cls.shorthand]}
            whole = {key: schema.pop(key) for key in list(schema) if key not in ("title", "description")}
            schema["anyOf"] = [field, whole]
        return schema


class Deadline(FormatModel):
    within: TimeSpan = lasting("10s")
    """Time after which the step fails."""


_W = TypeVar("_W", bound=FormatModel)


def exactly_one(written: _W, *fields: str) -> _W:
    if sum(getattr(written, field) is not None for field in fields) != 1:
        raise rule(f"must have exactly one of {', '.join(fields)}")
    return written
