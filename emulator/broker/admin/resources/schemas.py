"""Schemas of topics, in Pulsar's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Body, Query, Resource, changes, reads
from emulator.core.authorization.rule import Permission
from emulator.core.schemas.json_text import BadSchema
from emulator.core.schemas.key_value import data_as_text, data_from_text
from emulator.core.schemas.versions import Version
from emulator.model.values import Schema, SchemaType
from emulator.net.http_server import HttpError, Response

_NEVER_REGISTERED: Final = frozenset({SchemaType.NONE, SchemaType.AUTO_CONSUME})


def _to_json(version: Version | None) -> dict[str, Any]:
    """Return a schema version in Pulsar's JSON. HttpError 404 for a missing version, and for a deletion."""
    if version is None:
        raise HttpError(404, "Schema not found")
    if version.schema is None:
        raise HttpError(404, "Schema is deleted")
    schema = version.schema
    is_pair = schema.type is SchemaType.KEY_VALUE
    return {
        "version": version.number,
        "type": schema.type.name,
        "timestamp": version.at_ms,
        "data": data_as_text(schema.data) if is_pair else schema.data.decode(errors="replace"),
        "properties": dict(schema.properties),
    }


async def newest(call: AdminRequest) -> Content:
    return _to_json(call.region.schemas.newest(call.topic_name()))


async def by_version(call: AdminRequest) -> Content:
    text = call.names["version"]
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise HttpError(404, f"{text!r} is not a schema version")
    return _to_json(await call.region.schemas.at(call.topic_name(), int(text)))


async def all_versions(call: AdminRequest) -> Content:
    present = call.region.schemas.of(call.topic_name()).present()
    return {"getSchemaResponses": [_to_json(version) for version in present]}


async def metadata(call: AdminRequest) -> Content:
    """Return the location of each version since the last deletion. In Pulsar this is a BookKeeper entry; here the
    configuration store has the versions, so the ids are -1. HttpError 404 for a topic without a schema."""
    present = call.region.schemas.of(call.topic_name()).present()
    newest = _to_json(call.region.schemas.newest(call.topic_name()))["version"]
    return {"info": _entry(newest), "index": [_entry(version.number) for version in present]}


def _entry(number: int) -> dict[str, int]:
    return {"ledgerId": -1, "entryId": -1, "version": number}


async def register(call: AdminRequest) -> Content:
    """Register a schema, even if a policy does not allow clients to register schemas of the topic."""
    number = await call.region.schemas.register(call.topic_name(), _required_schema(call))
    return {"version": {"version": number}}


async def delete(call: AdminRequest) -> Content:
    number = await call.region.schemas.delete(call.topic_name(), force=call.flag("force"))
    return {"version": number}


async def compare(call: AdminRequest) -> Content:
    schemas, topic = call.region.schemas, call.topic_name()
    problem = await schemas.why_incompatible(topic, _required_schema(call))
    return Response(
        {"compatibility": not problem, "schemaCompatibilityStrategy": schemas.strategy(topic).name},
        status=202,
    )


async def find_version(call: AdminRequest) -> Content:
    schemas, schema = call.region.schemas, _required_schema(call)
    schemas.check_form(schema)
    found = schemas.of(call.topic_name()).find(schema)
    return {"version": -1 if found is None else found.number}


def _required_schema(call: AdminRequest) -> Schema:
    if call.body is None:
        raise HttpError(400, "the body must be a schema")
    schema: Schema = call.body
    return schema


def _parse(raw: Any) -> Schema | None:
    """Return the schema of a request body. HttpError 400 for JSON that is not a schema, 422 for text that cannot be
    encoded."""
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        raise HttpError(400, "a schema is an object with type, schema and properties")
    type_ = SchemaType.__members__.get(str(raw.get("type")))
    if type_ is None or type_ in _NEVER_REGISTERED:
        raise HttpError(400, f"type: {raw.get('type')!r} is not a schema type that can be registered")
    text, properties = raw.get("schema"), raw.get("properties")
    if not isinstance(text, str | None):
        raise HttpError(400, "schema: must be a string")
    if not _is_string_map(properties):
        raise HttpError(400, "properties: must be an object of strings")
    return Schema(type_, _data(type_, text or ""), dict(properties or {}))


def _is_string_map(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and all(isinstance(one, str) for one in value.values()))


def _data(type_: SchemaType, text: str) -> bytes:
    try:
        return data_from_text(text) if type_ is SchemaType.KEY_VALUE else text.encode()
    except (BadSchema, UnicodeEncodeError) as problem:
        raise HttpError(422, f"schema: {problem}") from None


_BODY: Final = Body(
    _parse,
    {
        "type": "object",
        "properties": {
            "type": {"enum": [one.name for one in SchemaType if one not in _NEVER_REGISTERED]},
            "schema": {"type": "string"},
            "properties": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
        },
        "required": ["type"],
    },
)
_PATH: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_FORCE = Query("force", "Delete older versions too: messages written with them can no longer be decoded.")


RESOURCES = (
    Resource(
        f"{_PATH}/schema",
        get=reads(newest, "The schema of the topic. 404: it has none.", permission=Permission.LOOKUP),
        post=changes(
            register,
            "Register a schema and return its version. 409: it is invalid or incompatible.",
            body=_BODY,
            empty=False,
            permission=Permission.PRODUCE,
        ),
        delete=changes(
            delete, "Delete the topic's schema. Its version numbers are not reused.", _FORCE, empty=False
        ),
    ),
    Resource(
        f"{_PATH}/schema/{{version}}",
        get=reads(
            by_version, "One version. 404: it does not exist, or is a deletion.", permission=Permission.LOOKUP
        ),
    ),
    Resource(
        f"{_PATH}/schemas",
        get=reads(
            all_versions, "All versions since the last deletion, oldest first.", permission=Permission.LOOKUP
        ),
    ),
    Resource(
        f"{_PATH}/metadata",
        get=reads(
            metadata,
            "Numbers of the newest version and of all versions since the last deletion. 404: it has none.",
            permission=Permission.LOOKUP,
        ),
    ),
    Resource(
        f"{_PATH}/compatibility",
        post=changes(
            compare,
            "Whether a schema is compatible with the topic's schemas.",
            body=_BODY,
            empty=False,
            permission=Permission.LOOKUP,
        ),
    ),
    Resource(
        f"{_PATH}/version",
        post=changes(
            find_version,
            "The version of a schema; -1: none.",
            body=_BODY,
            empty=False,
            permission=Permission.LOOKUP,
        ),
    ),
)
