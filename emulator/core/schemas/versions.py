"""The versions of one topic's schema.

    0 ──── 1 ──── 2 ──── deleted 3 ──── 4        a new schema is compared with versions after the last deletion only;
    └── found by their number only ───┘          earlier versions remain for existing messages

A number identifies one schema for ever and is never reused, not even after a deletion (INV-41).
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
    """Encode a version in the form of the protocol, for responses and messages."""
    return _NUMBER.pack(number)


def version_number(version: bytes) -> int:
    """Decode the result of `version_bytes`; -1 for bytes of another length."""
    return int(_NUMBER.unpack(version)[0]) if len(version) == _NUMBER.size else -1


@dataclass(frozen=True)
class Version:
    """A registered schema, or the deletion of all earlier versions."""

    number: int
    schema: Schema | None
    """The schema; None: a deletion."""
    at_ms: int
    """Time of registration by the wall clock of the region that registered it; for information only."""

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
        """Decode the result of `encode`. Raises ValueError for anything else."""
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
    """Return a digest that is equal for equivalent schemas: those that differ only in spaces, the order of keys and
    documentation."""
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
    """The versions of one topic. Stored versions may be put in any order and more than once."""

    def __init__(self) -> None:
        self._by_number: dict[int, Version] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def put(self, version: Version) -> None:
        self._by_number[version.number] = version

    def remove(self, number: int) -> None:
        """Remove a version, if it exists."""
        self._by_number.pop(number, None)

    def get(self, number: int) -> Version | None:
        return self._by_number.get(number)

    @property
    def next_number(self) -> int:
        return max(self._by_number, default=-1) + 1

    @property
    def newest(self) -> Version | None:
        """The version with the topic's present schema. None: it has none, or it was deleted."""
        last = self._by_number.get(self.next_number - 1)
        return None if last is None or last.schema is None else last

    def present(self) -> list[Version]:
        """Return the versions since the last deletion, the oldest first."""
        return list(self._since_deletion())[::-1]

    def _since_deletion(self) -> Iterator[Version]:
        for number in sorted(self._by_number, reverse=True):
            version = self._by_number[number]
            if version.schema is None:
                return
            yield version

    def find(self, schema: Schema) -> Version | None:
        """Return the version since the last deletion with an equivalent schema; None: there is none."""
        wanted = identity_of(schema)
        return next((one for one in self._since_deletion() if one.identity == wanted), None)

    def numbers(self) -> list[int]:
        return sorted(self._by_number)
