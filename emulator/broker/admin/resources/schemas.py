"""Schemas of topics, in Pulsar's JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from emulator.broker.admin.context import topic_name
from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Body, Operation, Query, Resource, reads
from emulator.broker.authorization import Action, ResourceScope
from emulator.core.schemas.key_value import data_as_text, data_from_text
from emulator.core.schemas.problems import BadSchema
from emulator.core.schemas.versions import Version
from emulator.model.values import Schema, SchemaType, TopicName

_NEVER_REGISTERED: Final = frozenset({SchemaType.NONE, SchemaType.AUTO_CONSUME})


def _topic(call: AdminRequest) -> TopicName:
    return call.context.region.check_topic(topic_name(call.names))


def _shown(version: Version | None) -> dict[str, Any]:
    """HttpError 404 without a version."""
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


async def newest(call: AdminRequest) -> Response:
    return Response(_shown(call.context.region.schemas.newest(_topic(call))))


async def one(call: AdminRequest) -> Response:
    text = call.names["version"]
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise HttpError(404, f"{text!r} is not a schema version")
    return Response(_shown(await call.context.region.schemas.at(_topic(call), int(text))))


async def every_one(call: AdminRequest) -> Response:
    present = call.context.region.schemas.of(_topic(call)).present()
    return Response({"getSchemaResponses": [_shown(version) for version in present]})


async def where(call: AdminRequest) -> Response:
    """Pulsar returns BookKeeper ledgers. Here versions are stored in the configuration store, not in a ledger."""
    present = call.context.region.schemas.of(_topic(call)).present()
    newest = _shown(call.context.region.schemas.newest(_topic(call)))["version"]
    return Response({"info": _entry(newest), "index": [_entry(version.number) for version in present]})


def _entry(number: int) -> dict[str, int]:
    return {"ledgerId": -1, "entryId": -1, "version": number}


async def register(call: AdminRequest) -> Response:
    """Register a schema, also where clients may not: the policy leaves that to administrators."""
    number = await call.context.region.schemas.register(_topic(call), _brought(call))
    return Response({"version": {"version": number}})


async def delete(call: AdminRequest) -> Response:
    number = await call.context.region.schemas.delete(_topic(call), force=call.query.get("force", False))
    return Response({"version": number})


async def try_out(call: AdminRequest) -> Response:
    schemas, topic = call.context.region.schemas, _topic(call)
    why_not = await schemas.why_incompatible(topic, _brought(call))
    return Response(
        {"compatibility": not why_not, "schemaCompatibilityStrategy": schemas.strategy(topic).name},
        status=202,
    )


async def number_of(call: AdminRequest) -> Response:
    schemas, schema = call.context.region.schemas, _brought(call)
    schemas.check_form(schema)
    found = schemas.of(_topic(call)).find(schema)
    return Response({"version": -1 if found is None else found.number})


def _brought(call: AdminRequest) -> Schema:
    if call.body is None:
        raise HttpError(400, "a schema is needed")
    schema: Schema = call.body
    return schema


def _parse(raw: Any) -> Schema | None:
    """HttpError 400 for JSON that is not a schema."""
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        raise HttpError(400, "a schema is an object with type, schema and properties")
    type_ = SchemaType.__members__.get(str(raw.get("type")))
    if type_ is None or type_ in _NEVER_REGISTERED:
        raise HttpError(400, f"type: {raw.get('type')!r} is not a schema type that can be registered")
    text, properties = raw.get("schema"), raw.get("properties")
    if not isinstance(text, str | None):
        raise HttpError(400, "schema: must be a text")
    if not _is_text_to_text(properties):
        raise HttpError(400, "properties: must be texts by their names")
    return Schema(type_, _data(type_, text or ""), dict(properties or {}))


def _is_text_to_text(value: Any) -> bool:
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


def _tells(
    run: Callable[[AdminRequest], Awaitable[Response]], doc: str, *query: Query, body: Body | None = None
) -> Operation:
    """Return an operation that may change something and has a response body."""
    return Operation(run, doc, Action.CHANGE, query, body)


RESOURCES = (
    Resource(
        f"{_PATH}/schema",
        ResourceScope.TOPIC,
        get=reads(newest, "The schema of the topic. 404: it has none."),
        post=_tells(
            register,
            "Register a schema and return its version. 409: it is incompatible.",
            body=_BODY,
        ),
        delete=_tells(delete, "Delete the topic's schema. Its version numbers are not reused.", _FORCE),
    ),
    Resource(f"{_PATH}/schema/{{version}}", ResourceScope.TOPIC, get=reads(one, "One version.")),
    Resource(
        f"{_PATH}/schemas",
        ResourceScope.TOPIC,
        get=reads(every_one, "All versions since the last deletion, oldest first."),
    ),
    Resource(
        f"{_PATH}/metadata",
        ResourceScope.TOPIC,
        get=reads(
            where, "Numbers of the newest and of all versions, each without a ledger. 404: it has none."
        ),
    ),
    Resource(
        f"{_PATH}/compatibility",
        ResourceScope.TOPIC,
        post=_tells(try_out, "Whether a schema is compatible.", body=_BODY),
    ),
    Resource(
        f"{_PATH}/version",
        ResourceScope.TOPIC,
        post=_tells(number_of, "The version of a schema; -1: none.", body=_BODY),
    ),
)
