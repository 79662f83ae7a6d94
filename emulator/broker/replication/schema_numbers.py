"""What the versions of a topic's schema are called in one other region (docs/components/schemas.md).

Regions of one cluster share their versions, those of different clusters do not. Whoever sends an entry asks first: the
other region registers the schema if it does not know it, and the entry is sent with the number that it has there. So a
region has the schema of an entry before it has the entry (INV-42).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from emulator.broker.metadata.schemas import Schemas
from emulator.core.schemas.versions import version_number
from emulator.errors import ProtocolError, ServerError
from emulator.model.values import Schema, TopicName

NO_SCHEMA = b""
"""What is sent of a version that nobody gave out: a number that means nothing here must not mean something there."""
KNOWN_MAX = 1_024
"""Numbers that are remembered; a topic has fewer, but what messages say of theirs is what clients say."""


class SchemaPeer(Protocol):
    """The link to the other region."""

    def ask_schema_version(self, topic: str, schema: Schema) -> asyncio.Future[bytes]:
        """Which version a schema has there. ProtocolError when it is refused, or there is no link."""
        ...


class RemoteSchemaVersions:
    """Of one topic, there."""

    def __init__(self, schemas: Schemas, topic: TopicName, peer: SchemaPeer) -> None:
        self._schemas = schemas
        self._topic = topic
        self._peer = peer
        self._there: dict[bytes, bytes] = {}

    def there(self, version: bytes) -> bytes | None:
        """What a version is called there. None: not known before `learn`."""
        if version_number(version) < 0:
            return NO_SCHEMA
        return self._there.get(version)

    async def learn(self, version: bytes) -> None:
        """ProtocolError, StorageError: ask again later."""
        found = await self._schemas.at(self._topic, version_number(version))
        if found is None or found.schema is None:
            there = NO_SCHEMA
        else:
            there = await self._peer.ask_schema_version(str(self._topic), found.schema)
            if len(there) not in (0, len(version)):
                sentence = f"its version there has {len(there):,} bytes instead of {len(version)}"
                raise ProtocolError(ServerError.UnknownError, sentence)
        if len(self._there) >= KNOWN_MAX:
            self._there.clear()
        self._there[version] = there

    def forget(self) -> None:
        """The link is gone: the other side may come back as another one."""
        self._there.clear()
