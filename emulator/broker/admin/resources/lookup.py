"""Lookups of clients with an `http://` service URL."""

from __future__ import annotations

from emulator.broker.admin.context import topic_name
from emulator.broker.admin.guard import host_in
from emulator.broker.admin.http import Response
from emulator.broker.admin.resource import AdminRequest, Operation, Resource
from emulator.broker.authorization import Action, ResourceScope
from emulator.model.transaction_names import COORDINATORS


async def lookup(call: AdminRequest) -> Response:
    region = call.context.region
    name = topic_name(call.names)
    if not (name.startswith(COORDINATORS) and region.coordinators.count):
        region.check_topic(name)
    url, http_url = call.service_url, call.url
    # Both sides use the same port; a client inside uses our internal host name.
    inside = region.config.internal_host.lower()
    if inside and host_in(call.host) == inside:
        url, http_url = region.clients.internal_url, f"http://{call.host}"
    # Clients on the C++ library crash (SIGSEGV) if both of the last two are missing.
    return Response(
        {"brokerUrl": url, "nativeUrl": url, "httpUrl": http_url, "brokerUrlTls": "", "brokerUrlSsl": ""}
    )


async def bundle(call: AdminRequest) -> Response:
    call.context.region.check_topic(topic_name(call.names))
    return Response("0x00000000_0xffffffff", text=True)


RESOURCES = (
    Resource(
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle",
        ResourceScope.TOPIC,
        get=Operation(bundle, "The one bundle that all topics are in.", Action.LOOK_UP, text=True),
    ),
    Resource(
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}",
        ResourceScope.TOPIC,
        get=Operation(
            lookup,
            "Addresses for the topic, by the host name of the request. TLS is not supported: "
            "`brokerUrlTls` and `brokerUrlSsl` are empty.",
            Action.LOOK_UP,
        ),
    ),
)
