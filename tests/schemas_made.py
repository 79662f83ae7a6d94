"""Schemas for tests, and the compatibility between them."""

from __future__ import annotations

import base64
import json
from typing import Any

from emulator.core.schemas.key_value import join_data
from emulator.model.values import Schema, SchemaType


def record(*fields: str, name: str = "Order", type_: SchemaType = SchemaType.AVRO) -> Schema:
    """Build a record of string fields, each `name` or `name=default`."""
    described: list[dict[str, Any]] = []
    for field in fields:
        field_name, with_default, default = field.partition("=")
        described.append({"name": field_name, "type": "string"})
        if with_default:
            described[-1]["default"] = default
    data = {"type": "record", "name": name, "fields": described}
    return Schema(type_, json.dumps(data).encode())


FIRST = record("id")
WITH_DEFAULT = record("id", "note=")
"""It can read FIRST, and FIRST can read it."""
WITHOUT_DEFAULT = record("id", "note")
"""FIRST can read it, and it cannot read FIRST."""
RENAMED = record("number")
"""Neither can read the other."""
STRING = Schema(SchemaType.STRING)


def key_value(key: Schema, value: Schema, encoding: str = "INLINE") -> Schema:
    properties = {
        "key.schema.type": key.type.name,
        "value.schema.type": value.type.name,
        "kv.encoding.type": encoding,
    }
    return Schema(SchemaType.KEY_VALUE, join_data(key.data, value.data), properties)


def native(root: str, *messages: str, file: str = "order.proto", package: str = "") -> Schema:
    """A descriptor of a file with these messages, without fields."""
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

    described = FileDescriptorProto(
        name=file, package=package, message_type=[DescriptorProto(name=name) for name in messages]
    )
    files = FileDescriptorSet(file=[described]).SerializeToString()
    said = {
        "fileDescriptorSet": base64.b64encode(files).decode(),
        "rootMessageTypeName": root,
        "rootFileDescriptorName": file,
    }
    return Schema(SchemaType.PROTOBUF_NATIVE, json.dumps(said).encode())
