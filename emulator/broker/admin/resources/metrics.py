"""Figures for Prometheus."""

from __future__ import annotations

from emulator.broker.admin.exposition import OPENMETRICS, PROMETHEUS, text_of, wants_openmetrics
from emulator.broker.admin.http import Response
from emulator.broker.admin.metrics import families_of
from emulator.broker.admin.resource import AdminRequest, Resource, reads
from emulator.broker.admin.scope import ResourceScope


async def metrics(call: AdminRequest) -> Response:
    openmetrics = wants_openmetrics(call.accept)
    text = text_of(await families_of(call.context.region), openmetrics=openmetrics)
    kind = OPENMETRICS if openmetrics else PROMETHEUS
    return Response(text, text=True, headers=(("content-type", kind),))


RESOURCES = (
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
