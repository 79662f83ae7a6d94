"""The versions of one topic's schema.

    0 ──── 1 ──── 2 ──── deleted 3 ──── 4        versions after the last deletion count for what comes next;
    └── still found by their number ──┘          those before it are found, and are compared with nothing

A number names one schema for ever: it is never given again, not after a deletion either (INV-41).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from struct import Struct
from typing import Any

from emulator.core.schemas.compatibility import AVRO_DESCRIBED
from emulator.core.schemas.json_text import BadSchema, normalized
from emulator.core.schemas.key_value import split_data
from emulator.model.values import Schema, SchemaType

_NUMBER = Struct(">q")
_KEY_VALUE_TYPES = ("key.schema.type", "value.schema.type", "kv.encoding.type")


def version_bytes(number: int) -> bytes:
    """Encode a version as the protocol does, in responses and in messages."""
    return _NUMBER.pack(number)


def version_number(version: bytes) -> int:
    """Inverse of `version_bytes`; negative for what no region gave out."""
    return int(_NUMBER.unpack(version)[0]) if len(version) == _NUMBER.size else -1


@dataclass(frozen=True)
class Version:
    """A schema that was registered, or the note that what came before was deleted."""

    number: int
    schema: Schema | None
    """None: a deletion."""
    at_ms: int
    """By the clock of the region that registered it; for people."""

    @cached_property
    def identity(self) -> bytes:
        return b"" if self.schema is None else identity_of(self.schema)

    def encode(self) -> bytes:
        document: dict[str, Any] = {"at_ms": self.at_ms}
        if self.schema is not None:
            document["type"] = self.schema.type.name
            document["data"] = base64.b64encode(self.schema.data).decode()
            document["properties"] = dict(self.schema.properties)
        return json.dumps(document, sort_keys=True).encode()

    @classmethod
    def decode(cls, number: int, value: bytes) -> Version:
        """ValueError for what is none."""
        try:
            document = json.loads(value)
            schema = None
            if "type" in document:
                data = base64.b64decode(document["data"], validate=True)
                schema = Schema(SchemaType[document["type"]], data, document["properties"])
            return cls(number, schema, int(document["at_ms"]))
        except (KeyError, TypeError) as problem:
            raise ValueError(f"no version of a schema: {problem!r}") from None


def identity_of(schema: Schema) -> bytes:
    """The same for schemas that mean the same: clients differ in spaces and in the order of what they write."""
    parts = [schema.type.name.encode()]
    if schema.type in AVRO_DESCRIBED:
        parts.append(normalized(schema.data))
    elif schema.type is SchemaType.KEY_VALUE:
        parts += [schema.properties.get(name, "").encode() for name in _KEY_VALUE_TYPES]
        try:
            parts += [normalized(half) for half in split_data(schema.data)]
        except BadSchema:
            parts.append(schema.data)
    else:
        parts.append(schema.data)
    return sha256(b"\0".join(parts)).digest()


class Versions:
    """Of one topic. What is stored comes in any order, and again; nothing else is kept."""

    def __init__(self) -> None:
        self._by_number: dict[int, Version] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def put(self, version: Version) -> None:
        self._by_number[version.number] = version

    def remove(self, number: int) -> None:
        """Harmless when there is none."""
        self._by_number.pop(number, None)

    def get(self, number: int) -> Version | None:
        return self._by_number.get(number)

    @property
    def next_number(self) -> int:
        return max(self._by_number, default=-1) + 1

    @property
    def newest(self) -> Version | None:
        """The schema of the topic. None: it has none, or no longer."""
        last = self._by_number.get(self.next_number - 1)
        return None if last is None or last.schema is None else last

    def present(self) -> list[Version]:
        """What a new schema is compared with, the oldest first."""
        return list(self._since_deletion())[::-1]

    def _since_deletion(self) -> Iterator[Version]:
        for number in sorted(self._by_number, reverse=True):
            version = self._by_number[number]
            if version.schema is None:
                return
            yield version

    def find(self, schema: Schema) -> Version | None:
        """The present version that means the same."""
        wanted = identity_of(schema)
        return next((one for one in self._since_deletion() if one.identity == wanted), None)

    def numbers(self) -> list[int]:
        return sorted(self._by_number)
