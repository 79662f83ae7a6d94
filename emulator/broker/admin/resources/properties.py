"""Properties of a namespace, free for people and tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Body, Resource, changes, reads
from emulator.broker.admin.resources.policies import parser
from emulator.broker.authorization import ResourceScope
from emulator.core.policies.stored_only import PROPERTIES
from emulator.model.stored_keys import NamespacePath

PROPERTIES_MAX = 1_000


def _place(call: AdminRequest) -> NamespacePath:
    return NamespacePath(call.context.namespace(call.names["tenant"], call.names["namespace"]))


def _present(call: AdminRequest) -> Mapping[str, str]:
    found: Mapping[str, str] = call.context.region.policies.set_at(_place(call)).get(PROPERTIES.name, {})
    return found


async def _change(call: AdminRequest, changed: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
    """Change properties atomically. HttpError 412 for too many."""

    def bounded(present: Mapping[str, str] | None) -> Mapping[str, str] | None:
        new = changed(present or {})
        if len(new) > PROPERTIES_MAX:
            raise HttpError(412, f"a namespace may have {PROPERTIES_MAX} properties at most")
        return new or None

    await call.context.region.policies.change(_place(call), PROPERTIES, bounded)


async def get_all(call: AdminRequest) -> Response:
    return Response(_present(call))


async def put_all(call: AdminRequest) -> Response:
    await _change(call, lambda present: {**present, **(call.body or {})})
    return Response(status=204)


async def delete_all(call: AdminRequest) -> Response:
    await _change(call, lambda present: {})
    return Response(status=204)


async def get_one(call: AdminRequest) -> Response:
    value = _present(call).get(call.names["key"])
    return Response(status=204) if value is None else Response(value, text=True)


async def put_one(call: AdminRequest) -> Response:
    await _change(call, lambda present: {**present, call.names["key"]: call.names["value"]})
    return Response(status=204)


async def delete_one(call: AdminRequest) -> Response:
    key = call.names["key"]
    before = _present(call).get(key)
    await _change(call, lambda present: {name: one for name, one in present.items() if name != key})
    return Response(status=204) if before is None else Response(before, text=True)


_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"

RESOURCES = (
    Resource(
        f"{_NAMESPACE}/properties",
        ResourceScope.NAMESPACE,
        get=reads(get_all, "All properties."),
        put=changes(
            put_all,
            "Add these properties.",
            body=Body(parser(PROPERTIES), PROPERTIES.codec.schema),
        ),
        delete=changes(delete_all, "Remove all properties."),
        kept=PROPERTIES.kept,
    ),
    Resource(
        f"{_NAMESPACE}/property/{{key}}",
        ResourceScope.NAMESPACE,
        get=reads(get_one, "One property; 204 if it does not exist.", text=True),
        delete=changes(delete_one, "Remove one property and return its value."),
        kept=PROPERTIES.kept,
    ),
    Resource(
        f"{_NAMESPACE}/property/{{key}}/{{value}}",
        ResourceScope.NAMESPACE,
        put=changes(put_one, "Set one note."),
        kept=PROPERTIES.kept,
    ),
)
