"""Resources that only an emulated region has: readiness, a summary of topics, the log output, clusters declared lost,
explanations; and the metrics in Prometheus' format."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from emulator.broker import log_output
from emulator.broker.admin import stats
from emulator.broker.admin.exposition import OPENMETRICS, PROMETHEUS, text_of, wants_openmetrics
from emulator.broker.admin.openapi import openapi_document
from emulator.broker.admin.parsing import fields_body
from emulator.broker.admin.region_metrics import families_of
from emulator.broker.admin.request import AdminContext, AdminRequest, Content
from emulator.broker.admin.resource import Query, Resource, changes, reads
from emulator.broker.admin.resources.links import LINKS
from emulator.broker.explain import topics as explanations
from emulator.broker.metadata_sync.settings import LostClusters
from emulator.core.authorization.rule import Permission
from emulator.model.explanations import KINDS
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


_LOGGING_CHOICES = {"level": log_output.LEVELS, "format": log_output.FORMATS}
_LOGGING = fields_body(
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
    *LINKS,
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
