"""The OpenAPI document of all resources of the HTTP port."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from emulator.broker.admin.resource import Operation, Resource
from emulator.core.authorization.rule import Permission

OPENAPI_VERSION = "3.1.0"
_ERROR_SCHEMA = {"type": "object", "properties": {"reason": {"type": "string"}}, "required": ["reason"]}
_ERROR_RESPONSES = {
    "default": {
        "description": "Refused, with the reason.",
        "content": {"application/json": {"schema": _ERROR_SCHEMA}},
    }
}


def openapi_document(subjects: Mapping[str, Iterable[Resource]]) -> dict[str, Any]:
    """Return all resources as an OpenAPI document."""
    from emulator import __version__

    return {
        "openapi": OPENAPI_VERSION,
        "info": {"title": "The HTTP port of an emulated Pulsar region", "version": __version__},
        "paths": {
            resource.path: _path_item(resource, subject)
            for subject, resources in subjects.items()
            for resource in resources
        },
    }


def _path_item(resource: Resource, subject: str) -> dict[str, Any]:
    names = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in resource.names
    ]
    operations = {
        method.lower(): _operation(operation, resource.permission_of(operation), subject)
        for method, operation in resource.operations.items()
    }
    return {"parameters": names, **operations} if names else operations


def _operation(operation: Operation, permission: Permission, subject: str) -> dict[str, Any]:
    media = "text/plain" if operation.text else "application/json"
    success: dict[str, Any] = (
        {"204": {"description": "Done."}}
        if operation.empty
        else {"200": {"description": operation.doc, "content": {media: {}}}}
    )
    document: dict[str, Any] = {
        "summary": operation.doc,
        "tags": [subject],
        "x-action": operation.action.name,
        "x-permission": permission.value,
        "responses": {**success, **_ERROR_RESPONSES},
    }
    if operation.query:
        document["parameters"] = [
            {
                "name": parameter.name,
                "in": "query",
                "description": parameter.doc,
                "schema": {"type": {bool: "boolean", str: "string", int: "integer"}[parameter.type]},
            }
            for parameter in operation.query
        ]
    if operation.body is not None:
        content = {"application/json": {"schema": dict(operation.body.schema)}}
        document["requestBody"] = {"required": True, "content": content}
    return document
