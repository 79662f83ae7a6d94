"""The documentation of the rows: the OpenAPI document and the tables of docs/ADMIN.md.

python -m emulator.broker.admin.resources docs/ADMIN.md      # rewrites its tables
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from emulator.broker.admin.resource import Operation, Resource

OPENAPI_VERSION = "3.1.0"
BEGIN, END = "<!-- rows: begin -->", "<!-- rows: end -->"
KEPT_BEGIN, KEPT_END = "<!-- kept: begin -->", "<!-- kept: end -->"
_REASON = {"type": "object", "properties": {"reason": {"type": "string"}}, "required": ["reason"]}
_REFUSALS = {
    "default": {
        "description": "Refused, with the reason.",
        "content": {"application/json": {"schema": _REASON}},
    }
}


def openapi_document(subjects: Mapping[str, Iterable[Resource]]) -> dict[str, Any]:
    """All rows as an OpenAPI document."""
    from emulator import __version__

    return {
        "openapi": OPENAPI_VERSION,
        "info": {"title": "The HTTP port of an emulated Pulsar region", "version": __version__},
        "paths": {
            resource.path: _path(resource, subject)
            for subject, resources in subjects.items()
            for resource in resources
        },
    }


def _path(resource: Resource, subject: str) -> dict[str, Any]:
    names = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in resource.names
    ]
    operations = {
        method.lower(): _operation(operation, subject) for method, operation in resource.operations.items()
    }
    return {"parameters": names, **operations} if names else operations


def _operation(operation: Operation, subject: str) -> dict[str, Any]:
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
        "responses": {**success, **_REFUSALS},
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


def tables(subjects: Mapping[str, Iterable[Resource]]) -> str:
    """All rows as Markdown, a table per subject."""
    parts = []
    for subject, resources in subjects.items():
        rows = [
            f"| {method} | `{resource.path}` | {_in_words(operation)} |"
            for resource in resources
            for method, operation in resource.operations.items()
        ]
        parts.append(
            "\n".join([f"## {subject}", "", "| method | path | what it does |", "|---|---|---|", *rows])
        )
    return "\n\n".join(parts)


def _in_words(operation: Operation) -> str:
    parameters = "".join(f" `?{parameter.name}`: {parameter.doc}" for parameter in operation.query)
    fields = operation.body.schema.get("properties", {}) if operation.body is not None else {}
    body = f" Body: JSON with {', '.join(f'`{name}`' for name in fields)}." if fields else ""
    return operation.doc + parameters + body


def kept_table(subjects: Mapping[str, Iterable[Resource]]) -> str:
    """The table of what is stored and returned without any effect, and why."""
    paths = {resource.path: resource.kept for resources in subjects.values() for resource in resources}
    rows = [f"| `{path}` | {why} |" for path, why in paths.items() if why]
    return "\n".join(["| path | why it has no effect |", "|---|---|", *rows])


def with_tables(text: str, subjects: Mapping[str, Iterable[Resource]]) -> str:
    """Return a page with the tables of the rows. ValueError when it has no place for them."""
    page = _between(text, BEGIN, END, tables(subjects))
    return _between(page, KEPT_BEGIN, KEPT_END, kept_table(subjects))


def _between(text: str, first: str, last: str, table: str) -> str:
    head, begin, rest = text.partition(first)
    _, end, tail = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"the page must have a line {first} and a line {last}")
    return f"{head}{first}\n\n{table}\n\n{last}{tail}"
