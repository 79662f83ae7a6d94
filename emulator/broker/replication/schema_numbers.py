"""The versions of a topic's schemas in one other region (docs/components/schemas.md).

Regions of one cluster share their schema versions, those of different clusters do not. A replicator first requests the
version of an entry's schema in the other region, which registers an unknown schema. It sends the entry with that
version. So a region has the schema of an entry before it has the entry (INV-42).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from emulator.broker.metadata.schemas import Schemas
from emulator.core.schemas.versions import version_number
from emulator.errors import ProtocolError, ServerError
from emulator.model.values import Schema, TopicName

NO_SCHEMA = b""
"""Replaces a version that was never assigned here: it could be a valid version of the other region."""
KNOWN_MAX = 1_024
"""Number of cached versions. A topic has fewer, but the version in a message is set by its client."""


class SchemaPeer(Protocol):
    """The link to the other region."""

    def ask_schema_version(self, topic: str, schema: Schema) -> asyncio.Future[bytes]:
        """Request the version of a schema there. ProtocolError when it is rejected, or there is no link."""
        ...


class RemoteSchemaVersions:
    """The schema versions of one topic in one other region."""

    def __init__(self, schemas: Schemas, topic: TopicName, peer: SchemaPeer) -> None:
        self._schemas = schemas
        self._topic = topic
        self._peer = peer
        self._there: dict[bytes, bytes] = {}

    def there(self, version: bytes) -> bytes | None:
        """Return the remote version of a local one. None: `learn` has to request it."""
        if version_number(version) < 0:
            return NO_SCHEMA
        return self._there.get(version)

    async def learn(self, version: bytes) -> None:
        """Request the remote version. ProtocolError, StorageError: retry later."""
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
        """Drop all versions: the link broke, and the other region may have changed meanwhile."""
        self._there.clear()
