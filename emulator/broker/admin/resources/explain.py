"""Explanations of why something waits or has its state."""

from __future__ import annotations

from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Resource, reads
from emulator.broker.authorization import ResourceScope
from emulator.broker.explain.topics import NotKnown
from emulator.broker.explain.topics import explain as explained
from emulator.broker.explain.topics import names as names_of
from emulator.model.explanations import KINDS


async def kinds(call: AdminRequest) -> Response:
    return Response({name: {"words": list(kind.words), "doc": kind.doc} for name, kind in KINDS.items()})


async def names(call: AdminRequest) -> Response:
    try:
        return Response(names_of(call.context.region, call.names["kind"]))
    except NotKnown as problem:
        raise HttpError(404, str(problem)) from None


async def explain(call: AdminRequest) -> Response:
    try:
        answer = explained(call.context.region, call.names["kind"], call.names["name"])
    except NotKnown as problem:
        raise HttpError(404, str(problem)) from None
    return Response(answer.to_json())


RESOURCES = (
    Resource(
        "/geoemu/v1/explain",
        ResourceScope.REGION,
        get=reads(kinds, "Kinds of objects that can be explained."),
    ),
    Resource(
        "/geoemu/v1/explain/{kind}", ResourceScope.REGION, get=reads(names, "Names of all objects of a kind.")
    ),
    Resource(
        "/geoemu/v1/explain/{kind}/{name}",
        ResourceScope.REGION,
        get=reads(
            explain,
            "The object's state, since when, why, and what it waits for. The words of a name are "
            "separated by spaces (`orders%20billing`).",
        ),
    ),
)
