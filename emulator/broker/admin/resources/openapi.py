"""The rows, described to programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from emulator.broker.admin.http import Response
from emulator.broker.admin.openapi import openapi_document
from emulator.broker.admin.resource import AdminRequest, Resource, reads
from emulator.broker.admin.scope import ResourceScope


def row_about(subjects: Callable[[], Mapping[str, Iterable[Resource]]]) -> Resource:
    """A row that describes all of them, itself included."""

    async def openapi(call: AdminRequest) -> Response:
        return Response(openapi_document(subjects()))

    return Resource(
        "/geoemu/v1/openapi.json",
        ResourceScope.REGION,
        get=reads(openapi, "This list, as an OpenAPI 3.1 document."),
    )
