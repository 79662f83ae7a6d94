"""Stats of the region's one broker in Pulsar's JSON; `/metrics` has more."""

from __future__ import annotations

from typing import Any

from emulator.broker.admin import stats
from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Resource, reads
from emulator.broker.admin.resources.unsupported import WHOLE_BUNDLE
from emulator.broker.authorization import ResourceScope
from emulator.broker.topic.topic import Topic


async def topics(call: AdminRequest) -> Response:
    """By namespace, bundle and domain."""
    found: dict[str, Any] = {}
    for topic in await call.context.region.every_topic():
        bundle = found.setdefault(topic.name.full_namespace, {}).setdefault(WHOLE_BUNDLE, {})
        bundle.setdefault(topic.name.domain, {})[topic.full_name] = stats.topic_stats(topic)
    return Response(found)


async def nothing(call: AdminRequest) -> Response:
    return Response([])


async def no_bookies(call: AdminRequest) -> Response:
    return Response({})


async def allocator(call: AdminRequest) -> Response:
    raise HttpError(
        404, f"allocator {call.names['allocator']} does not exist: a region does not run on a JVM"
    )


async def load_report(call: AdminRequest) -> Response:
    present = await call.context.region.every_topic()
    unlimited = {"usage": 0.0, "limit": 0.0}
    return Response(
        {
            "loadReportType": "LocalBrokerData",
            "webServiceUrl": call.url,
            "pulsarServiceUrl": call.service_url,
            "persistentTopicsEnabled": True,
            "nonPersistentTopicsEnabled": True,
            **dict.fromkeys(("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut"), unlimited),
            "lastUpdate": call.context.region.environment.wall_clock_ms(),
            "lastStats": {},
            "bundles": [],
            "bundleStats": {},
            **_counts(present),
        }
    )


def _counts(present: list[Topic]) -> dict[str, Any]:
    each = [stats.topic_stats(topic) for topic in present]
    return {
        "numTopics": len(present),
        "numBundles": len({topic.name.full_namespace for topic in present}),
        "numProducers": sum(len(topic.producers) for topic in present),
        "numConsumers": sum(len(one.consumers) for topic in present for one in topic.subscriptions.values()),
        **{name: sum(one[name] for one in each) for name in _SUMS},
    }


_SUMS = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
_STATS = "/admin/v2/broker-stats"

RESOURCES = (
    Resource(
        f"{_STATS}/topics", ResourceScope.REGION, get=reads(topics, "Figures of all topics, by namespace.")
    ),
    Resource(f"{_STATS}/metrics", ResourceScope.REGION, get=reads(nothing, "None: `/metrics` has them.")),
    Resource(
        f"{_STATS}/mbeans", ResourceScope.REGION, get=reads(nothing, "None: a region does not run on a JVM.")
    ),
    Resource(
        f"{_STATS}/bookieops", ResourceScope.REGION, get=reads(no_bookies, "None: there are no bookies.")
    ),
    Resource(
        f"{_STATS}/allocator-stats/{{allocator}}",
        ResourceScope.REGION,
        get=reads(allocator, "404: a region does not run on a JVM."),
    ),
    Resource(
        f"{_STATS}/load-report",
        ResourceScope.REGION,
        get=reads(load_report, "Counts and rates of the region; no resource usage."),
    ),
)
