"""Resources that only an emulated region has: readiness, a summary of topics, emulated links, the log
output, clusters declared lost, explanations; and the metrics in Prometheus' format."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from emulator.broker import log_output
from emulator.broker.admin import stats
from emulator.broker.admin.exposition import OPENMETRICS, PROMETHEUS, text_of, wants_openmetrics
from emulator.broker.admin.openapi import openapi_document
from emulator.broker.admin.region_metrics import families_of
from emulator.broker.admin.request import AdminContext, AdminRequest, Content
from emulator.broker.admin.resource import Body, Query, Resource, changes, reads
from emulator.broker.explain import topics as explanations
from emulator.broker.links.emulation import EmulatedLink
from emulator.broker.metadata_sync.settings import LostClusters
from emulator.core.authorization.rule import Permission
from emulator.model.explanations import KINDS
from emulator.model.frame_faults import (
    COMMANDS,
    DELAY_MS_MAX,
    MARKERS,
    FrameAction,
    FrameFault,
    check_link_of,
)
from emulator.model.frame_faults import COUNT_MAX as FRAME_COUNT_MAX
from emulator.model.values import CLIENTS, TopicName
from emulator.net.http_server import HttpError, Response


async def status(call: AdminRequest) -> Content:
    context, region = call.context, call.region
    expect = call.query.get("expect")
    expected = set(region.peers) if expect is None else set(filter(None, expect.split(",")))
    waiting_for = region.waiting_for(expected)
    return {
        "region": region.config.region,
        "cluster": region.config.cluster,
        "ready": not waiting_for,
        "waiting_for": waiting_for,
        "pid": os.getpid(),
        "service_url": call.service_url,
        "links": [
            link
            for name in sorted(context.links)
            if name != CLIENTS or not context.links[CLIENTS].is_transparent
            for link in _link_rows(context, name)
        ],
    }


def _link_rows(context: AdminContext, peer: str) -> list[dict[str, Any]]:
    here, link = context.region.config.region, context.links[peer]
    return [
        {
            "from": source,
            "to": target,
            "state": shape.state,
            "latency_ms": shape.latency_ms,
            "frame_faults": [asdict(armed) for armed in faults.armed.values()],
        }
        for source, target, shape, faults in (
            (here, peer, link.outbound, link.outbound_faults),
            (peer, here, link.inbound, link.inbound_faults),
        )
    ]


async def topics(call: AdminRequest) -> Content:
    """Load all topics, and return their backlogs and why they do not shrink: users and scenarios wait until they are
    0. Of a topic in the query, only what is loaded is returned."""
    text = call.query.get("topic")
    if text is None:
        return [stats.topic_row(topic) for topic in await call.region.every_topic()]
    try:
        name = TopicName.parse(text)
    except ValueError as problem:
        raise HttpError(400, str(problem)) from None
    return [
        stats.topic_row(topic)
        for topic in call.region.directory.serving.values()
        if name in (topic.name, topic.name.partitioned)
    ]


def _link(call: AdminRequest) -> tuple[EmulatedLink, bool]:
    """Return the link of a request, and whether the named direction is outbound."""
    context, here = call.context, call.region.config.region
    source, target = call.names["source"], call.names["target"]
    if here not in (source, target):
        raise HttpError(404, f"{source} -> {target} does not end at {here}")
    link = context.links.get(target if source == here else source)
    if link is None:
        raise HttpError(404, f"no link {source} -> {target}; peers are: {', '.join(sorted(context.links))}")
    return link, source == here


async def set_link(call: AdminRequest) -> None:
    link, outbound = _link(call)
    changes = dict(call.body)
    try:
        if "frame_faults" in changes:
            changes["frame_faults"] = tuple(map(FrameFault.from_json, changes["frame_faults"]))
        shape = replace(link.outbound if outbound else link.inbound, **changes)
        shape.check()
        for fault in shape.frame_faults:
            check_link_of(fault, clients=CLIENTS in call.names.values())
    except ValueError as problem:
        raise HttpError(400, str(problem)) from None
    link.set_shape(shape, outbound=outbound)


async def break_connections(call: AdminRequest) -> None:
    link, _ = _link(call)
    match call.body["connections"]:
        case "reset":
            link.reset()
        case "half-open":
            link.make_half_open()
        case "normal":
            link.end_half_open()


# The log output of the region's program.


async def get_logging(call: AdminRequest) -> Content:
    return {"level": log_output.get_level()}


async def set_logging(call: AdminRequest) -> None:
    """Change the log's level and format. The parser of the body checks both before either is changed."""
    if "level" in call.body:
        log_output.set_level(call.body["level"])
    if "format" in call.body:
        log_output.set_format(call.body["format"])


# Clusters declared lost: no tombstones are kept for them (docs/components/metadata-sync.md).


def _lost_clusters(call: AdminRequest) -> LostClusters:
    synchronizer, cluster = call.region.synchronizer, call.names["cluster"]
    if synchronizer is None:
        raise HttpError(412, "clusters of this run do not synchronise metadata, so none can be declared lost")
    known = sorted(synchronizer.settings.clusters)
    if cluster not in known:
        raise HttpError(404, f"there is no other cluster {cluster}; there are {', '.join(known)}")
    return synchronizer.losses


async def get_loss(call: AdminRequest) -> Content:
    declared = _lost_clusters(call).of(call.names["cluster"])
    return {"lost": declared.is_lost, "by": declared.by, "times": declared.times}


async def declare_lost(call: AdminRequest) -> None:
    await _lost_clusters(call).declare(call.names["cluster"], lost=True)


async def declare_available(call: AdminRequest) -> None:
    await _lost_clusters(call).declare(call.names["cluster"], lost=False)


# Explanations and metrics.


async def kinds(call: AdminRequest) -> Content:
    return {name: {"words": list(kind.words), "doc": kind.doc} for name, kind in KINDS.items()}


async def names(call: AdminRequest) -> Content:
    return explanations.names(call.region, call.names["kind"])


async def explain(call: AdminRequest) -> Content:
    return explanations.explain(call.region, call.names["kind"], call.names["name"]).to_json()


async def metrics(call: AdminRequest) -> Content:
    openmetrics = wants_openmetrics(call.accept)
    text = text_of(await families_of(call.region), openmetrics=openmetrics)
    kind = OPENMETRICS if openmetrics else PROMETHEUS
    return Response(text, text=True, headers=(("content-type", kind),))


# Bodies.

_MILLISECONDS_MAX = 3_600_000
Rules = Mapping[str, tuple[Callable[[object], bool], str]]
"""Field of a body -> (predicate for valid values, the end of the error message for others)."""


def _fields(rules: Rules, expected: str, schema: Mapping[str, Any]) -> Body:
    """Return the body of a JSON object whose fields are optional and named in the rules."""

    def parse(raw: Any) -> dict[str, Any]:
        if not isinstance(raw, dict):
            raise HttpError(400, f"the body must be a JSON object{expected}")
        for name, value in raw.items():
            if name not in rules:
                raise HttpError(400, f"{name!r} is none of {', '.join(rules)}")
            is_valid, rule = rules[name]
            if not is_valid(value):
                raise HttpError(400, f"{name}: {repr(value)[:100]} {rule}")
        return raw

    return Body(parse, {"type": "object", "additionalProperties": False, "properties": schema})


def _is_number(value: object, kinds: type | tuple[type, ...], least: int, most: int) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool) and least <= value <= most  # type: ignore[operator]


def _is_duration(value: object) -> bool:
    return _is_number(value, (int, float), 0, _MILLISECONDS_MAX)


FRAME_FAULTS_MAX = 100
"""Maximum number of armed faults on one direction of a link."""
CONNECTION_CHANGES = ("reset", "half-open", "normal")


def _connections_change(body: Any) -> dict[str, str]:
    if (
        not isinstance(body, dict)
        or set(body) != {"connections"}
        or body["connections"] not in CONNECTION_CHANGES
    ):
        raise HttpError(400, f"the body must be an object with connections: {', '.join(CONNECTION_CHANGES)}")
    return body


_FRAME_FAULT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["action", "what"],
    "properties": {
        "action": {"enum": [action.value for action in FrameAction]},
        "what": {"enum": sorted((*COMMANDS, *MARKERS))},
        **{name: {"type": "integer", "minimum": 1, "maximum": FRAME_COUNT_MAX} for name in ("count", "nth")},
        "by_ms": {"type": "number", "minimum": 0, "maximum": DELAY_MS_MAX},
        "number": {"type": "integer", "minimum": 0},
    },
}
_DURATION = (_is_duration, f"must be a number, 0 to {_MILLISECONDS_MAX}")
_LINK = _fields(
    {
        "state": (lambda value: value in ("up", "held", "cut"), "must be up, held or cut"),
        "latency_ms": _DURATION,
        "jitter_ms": _DURATION,
        "bandwidth_bytes_per_second": (
            lambda value: value is None or _is_number(value, int, 1, 2**63 - 1),
            "must be a whole number, 1 or more, or null for no limit",
        ),
        "stall_every_ms": _DURATION,
        "stall_ms": _DURATION,
        "flap_period_ms": _DURATION,
        "flap_up": (
            lambda value: _is_number(value, (int, float), 0, 1) and bool(value),
            "must be a number above 0 and up to 1",
        ),
        "frame_faults": (
            lambda value: isinstance(value, list) and len(value) <= FRAME_FAULTS_MAX,
            f"must be a list of up to {FRAME_FAULTS_MAX} faults",
        ),
    },
    "",
    {
        "state": {"enum": ["up", "held", "cut"]},
        "latency_ms": {"type": "number", "minimum": 0},
        "jitter_ms": {"type": "number", "minimum": 0},
        "bandwidth_bytes_per_second": {"type": ["integer", "null"], "minimum": 1},
        "stall_every_ms": {"type": "number", "minimum": 0},
        "stall_ms": {"type": "number", "minimum": 0},
        "flap_period_ms": {"type": "number", "minimum": 0},
        "flap_up": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "frame_faults": {"type": "array", "maxItems": FRAME_FAULTS_MAX, "items": _FRAME_FAULT},
    },
)
_CONNECTIONS = Body(
    _connections_change,
    {
        "type": "object",
        "additionalProperties": False,
        "required": ["connections"],
        "properties": {"connections": {"enum": list(CONNECTION_CHANGES)}},
    },
)
_LOGGING_CHOICES = {"level": log_output.LEVELS, "format": log_output.FORMATS}
_LOGGING = _fields(
    {
        name: (choices.__contains__, f"is none of {', '.join(choices)}")
        for name, choices in _LOGGING_CHOICES.items()
    },
    " with level, format or both",
    {name: {"type": "string", "enum": list(choices)} for name, choices in _LOGGING_CHOICES.items()},
)


def openapi_row(subjects: Callable[[], Mapping[str, Iterable[Resource]]]) -> Resource:
    """Return the row of the OpenAPI document of all rows, including itself."""

    async def openapi(call: AdminRequest) -> Content:
        return openapi_document(subjects())

    return Resource("/geoemu/v1/openapi.json", get=reads(openapi, "This list, as an OpenAPI 3.1 document."))


RESOURCES = (
    Resource(
        "/geoemu/v1/status",
        get=reads(
            status,
            "Whether the region is ready for clients, what it waits for, and its links.",
            Query("expect", "Peers whose links must be established, separated by commas. Default: all.", str),
        ),
    ),
    Resource(
        "/geoemu/v1/topics",
        get=reads(
            topics,
            "All topics: backlogs, and why replication waits.",
            Query("topic", "Only this topic and its partitions, as far as they are loaded.", str),
        ),
    ),
    Resource(
        "/geoemu/v1/links/{source}/{target}",
        put=changes(
            set_link,
            "Change one direction of a link that ends here. Omitted fields keep their values.",
            body=_LINK,
        ),
    ),
    Resource(
        "/geoemu/v1/links/{source}/{target}/connections",
        put=changes(
            break_connections,
            "Reset the open connections of a link that this region emulates, or make them half-open; `normal` resets "
            "half-open ones.",
            body=_CONNECTIONS,
        ),
    ),
    Resource(
        "/geoemu/v1/clusters/{cluster}/lost",
        get=reads(
            get_loss,
            "Whether this cluster declares another one lost, by `operator` or `topology`, and how often it did.",
        ),
        put=changes(declare_lost, "Declare it lost: tombstones are not kept for it."),
        delete=changes(declare_available, "Declare it available again."),
    ),
    Resource(
        "/geoemu/v1/logging",
        get=reads(get_logging, "The log level and format."),
        put=changes(set_logging, "Change the log level, the format, or both.", body=_LOGGING),
    ),
)
EXPLANATIONS = (
    Resource("/geoemu/v1/explain", get=reads(kinds, "Kinds of objects that can be explained.")),
    Resource("/geoemu/v1/explain/{kind}", get=reads(names, "Names of all objects of a kind.")),
    Resource(
        "/geoemu/v1/explain/{kind}/{name}",
        get=reads(
            explain,
            "The object's state, since when, why, and what it waits for. The words of a name are "
            "separated by spaces (`orders%20billing`).",
        ),
    ),
)
METRICS = (
    Resource(
        "/metrics",
        get=reads(
            metrics,
            "Metrics with the names of Pulsar's dashboards, and `geoemu_…`; in Prometheus' format, or "
            "OpenMetrics' if `Accept` requests it.",
            text=True,
            permission=Permission.PUBLIC,
        ),
    ),
)
