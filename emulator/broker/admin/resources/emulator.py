"""Resources that only an emulator's region has: readiness, a summary of topics, emulated links."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from emulator.broker.admin import stats
from emulator.broker.admin.context import AdminContext
from emulator.broker.admin.exposition import OPENMETRICS, PROMETHEUS, text_of, wants_openmetrics
from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.metrics import families_of
from emulator.broker.admin.openapi import openapi_document
from emulator.broker.admin.resource import AdminRequest, Body, Query, Resource, changes, reads
from emulator.broker.authorization import ResourceScope

_LINK_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "state": {"enum": ["up", "held", "cut"]},
        "latency_ms": {"type": "number", "minimum": 0},
        "jitter_ms": {"type": "number", "minimum": 0},
        "bandwidth_bytes_per_second": {"type": ["integer", "null"], "minimum": 1},
    },
}
_MILLISECONDS_MAX = 3_600_000


def _is_duration(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _MILLISECONDS_MAX


def _is_bandwidth(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**63)


_DURATION = (_is_duration, f"must be a number, 0 to {_MILLISECONDS_MAX}")
_LINK_RULES: dict[str, tuple[Callable[[object], bool], str]] = {
    "state": (lambda value: value in ("up", "held", "cut"), "must be up, held or cut"),
    "latency_ms": _DURATION,
    "jitter_ms": _DURATION,
    "bandwidth_bytes_per_second": (_is_bandwidth, "must be a whole number, 1 or more, or null for no limit"),
}


async def status(call: AdminRequest) -> Response:
    context, region = call.context, call.context.region
    expect = call.query.get("expect")
    expected = set(region.peers) if expect is None else set(filter(None, expect.split(",")))
    waiting_for = region.waiting_for(expected)
    return Response(
        {
            "region": region.config.region,
            "cluster": region.config.cluster,
            "ready": not waiting_for,
            "waiting_for": waiting_for,
            "pid": os.getpid(),
            "service_url": call.service_url,
            "links": [link for name in sorted(context.links) for link in _link_rows(context, name)],
        }
    )


def _link_rows(context: AdminContext, peer: str) -> list[dict[str, Any]]:
    here, link = context.region.config.region, context.links[peer]
    return [
        {"from": here, "to": peer, "state": link.outbound.state, "latency_ms": link.outbound.latency_ms},
        {"from": peer, "to": here, "state": link.inbound.state, "latency_ms": link.inbound.latency_ms},
    ]


async def topics(call: AdminRequest) -> Response:
    """Return what a person or a scenario needs to see that everything has drained, and why it has not."""
    return Response([stats.topic_row(topic) for topic in await call.context.region.every_topic()])


async def conflicts(call: AdminRequest) -> Response:
    """Covers only loaded topics: positions are received in no others."""
    region = call.context.region
    return Response(
        [
            {"topic": topic.full_name, "subscription": name, "source": source, "region": region.config.region}
            for topic in region.directory.serving.values()
            if topic.subscriptions.replicated is not None
            for name, source in topic.subscriptions.replicated.refused()
        ]
    )


async def set_link(call: AdminRequest) -> Response:
    context, here = call.context, call.context.region.config.region
    source, target = call.names["source"], call.names["target"]
    if here not in (source, target):
        raise HttpError(404, f"{source} -> {target} does not end at {here}")
    link = context.links.get(target if source == here else source)
    if link is None:
        raise HttpError(404, f"no link {source} -> {target}; peers are: {', '.join(sorted(context.links))}")
    link.set(outbound=source == here, **call.body)
    return Response(status=204)


def _link_changes(body: Any) -> dict[str, Any]:
    """Check the new settings of a link."""
    if not isinstance(body, dict):
        raise HttpError(400, "the body must be a JSON object")
    for name, value in body.items():
        if name not in _LINK_RULES:
            raise HttpError(400, f"{name!r} is none of {', '.join(_LINK_RULES)}")
        is_right, rule = _LINK_RULES[name]
        if not is_right(value):
            raise HttpError(400, f"{name}: {value!r} {rule}")
    return body


async def metrics(call: AdminRequest) -> Response:
    openmetrics = wants_openmetrics(call.accept)
    text = text_of(await families_of(call.context.region), openmetrics=openmetrics)
    kind = OPENMETRICS if openmetrics else PROMETHEUS
    return Response(text, text=True, headers=(("content-type", kind),))


def row_about(subjects: Callable[[], Mapping[str, Iterable[Resource]]]) -> Resource:
    """Return a row that describes all rows, itself included."""

    async def openapi(call: AdminRequest) -> Response:
        return Response(openapi_document(subjects()))

    return Resource(
        "/geoemu/v1/openapi.json",
        ResourceScope.REGION,
        get=reads(openapi, "This list, as an OpenAPI 3.1 document."),
    )


METRICS = (
    Resource(
        "/metrics",
        ResourceScope.REGION,
        get=reads(
            metrics,
            "Metrics with the names of Pulsar's dashboards, and `geoemu_…`; in Prometheus' format, or "
            "OpenMetrics' if `Accept` requests it.",
            text=True,
        ),
    ),
)

RESOURCES = (
    Resource(
        "/geoemu/v1/status",
        ResourceScope.REGION,
        get=reads(
            status,
            "Whether the region is ready for clients, what it waits for, and its links.",
            Query("expect", "Peers whose links must be established, separated by commas. Default: all.", str),
        ),
    ),
    Resource(
        "/geoemu/v1/topics",
        ResourceScope.REGION,
        get=reads(topics, "All topics: backlogs, and why replication waits."),
    ),
    Resource(
        "/geoemu/v1/replication-conflicts",
        ResourceScope.REGION,
        get=reads(
            conflicts,
            "Subscriptions whose position another region sent, and that are not replicated here: it is not applied.",
        ),
    ),
    Resource(
        "/geoemu/v1/links/{source}/{target}",
        ResourceScope.REGION,
        put=changes(
            set_link,
            "Change one direction of a link that ends here. Omitted fields keep their values.",
            body=Body(_link_changes, _LINK_SCHEMA),
        ),
    ),
)
