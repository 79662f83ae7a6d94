"""The replicated form of entries: with their source position and the remote version of their schema.

Regions of one cluster share their schema versions, those of different clusters do not (docs/components/schemas.md). A
replicator first requests the version of an entry's schema in the other region, which registers an unknown schema. It
sends the entry with that version. So a region receives the schema of an entry before the entry (INV-42).

A form is the end of the SEND frame. It is computed once for all remote regions with the same schema version. The
replicators of a topic mostly send the same entries at about the same time, so a region caches only the newest forms, up
to a bound. The entry cache does not hold forms: they would double its memory long after they were sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

from emulator.broker.memory_budgets import MemoryBudget
from emulator.broker.metadata.schemas import Schemas
from emulator.broker.topic.entry_cache import StoredEntry
from emulator.core.schemas.versions import version_number
from emulator.errors import ProtocolError, ServerError
from emulator.model.values import Position, Schema, TopicName
from emulator.wire.codec_hot.publishing import EndOfSend, end_of_send
from emulator.wire.entry import with_replication

FORMS_BYTES_MAX = 4_194_304
"""Maximum memory of the forms of one region after `trim`: about three windows of 1,000 entries of 1 KiB. Forms of
larger entries are computed again more often, which costs little per byte."""
FORM_OVERHEAD_BYTES = 360
"""Memory of a form besides its bytes: the headers of its objects, the key, the slots in two collections."""

_new_tuple: Final = tuple.__new__
"""Creates a NamedTuple in half the time of its constructor; values in the order of the fields."""


class LogForms:
    """The cached forms of one log's entries with one version of their schema."""

    def __init__(self, cache: ReplicatedEntryCache, ledger_id: int, schema_version: bytes | None) -> None:
        """`schema_version`: the version in the remote region; None: the entries have no schema."""
        self._cache = cache
        self.key = (ledger_id, schema_version)
        self.forms: dict[int, EndOfSend] = {}
        """Entry id -> form."""

    def add(self, entry: StoredEntry, schema_version: bytes | None = None) -> EndOfSend:
        """Return the form of an entry, and cache it until `trim` drops it. `schema_version`: its schema's version in
        the remote region, if different."""
        info = entry.info
        position = _new_tuple(Position, (self.key[0], entry.entry_id))
        data = with_replication(entry.data, self._cache.region, position, schema_version)
        numbers = (info.sequence_id, info.num_messages, info.highest_sequence_id)
        form = end_of_send(*numbers, marker=entry.hidden, data=data)
        self.forms[entry.entry_id] = form
        self._cache.added(self, entry.entry_id, len(form.data) + FORM_OVERHEAD_BYTES)
        return form


class ReplicatedEntryCache:
    """Caches the newest replicated forms of the entries of one region."""

    def __init__(self, region: str, budget: MemoryBudget) -> None:
        self.region = region
        self._charge = budget.charge(0)
        self._logs: dict[tuple[int, bytes | None], LogForms] = {}
        """(ledger id, remote schema version) -> forms. Invariant: none is empty."""
        self._groups: deque[tuple[int, list[tuple[LogForms, int]]]] = deque()
        """(bytes, forms) added between two calls of `trim`, oldest first."""
        self._new: list[tuple[LogForms, int]] = []
        self._new_bytes = self._held_bytes = 0

    def of_log(self, ledger_id: int, schema_version: bytes | None = None) -> LogForms:
        """Return the forms of a log, which is valid until the next call of `trim`."""
        return self._logs.get((ledger_id, schema_version)) or LogForms(self, ledger_id, schema_version)

    def added(self, log: LogForms, entry_id: int, size_bytes: int) -> None:
        self._logs[log.key] = log
        self._new.append((log, entry_id))
        self._new_bytes += size_bytes

    def trim(self) -> None:
        """Drop the oldest forms beyond `FORMS_BYTES_MAX`, and update the memory budget. Called after each batch of
        entries."""
        if not self._new:
            return
        self._groups.append((self._new_bytes, self._new))
        self._held_bytes += self._new_bytes
        self._new, self._new_bytes = [], 0
        while self._held_bytes > FORMS_BYTES_MAX:
            size_bytes, group = self._groups.popleft()
            self._held_bytes -= size_bytes
            for log, entry_id in group:
                del log.forms[entry_id]
                if not log.forms:
                    del self._logs[log.key]
        self._charge.resize(self._held_bytes)


NO_SCHEMA = b""
"""Version that is sent instead of one that has no schema here, which could be a valid version of the other region."""
VERSIONS_MAX = 1_024
"""Maximum number of cached versions. A topic has fewer, but clients set the version in a message."""


class SchemaPeer(Protocol):
    """The link to the other region."""

    def request_schema_version(self, topic: str, schema: Schema) -> asyncio.Future[bytes]:
        """Request the version of a schema in the other region. ProtocolError when it is rejected, or there is no
        link."""
        ...


class RemoteSchemaVersions:
    """The schema versions of one topic in one other region."""

    def __init__(self, schemas: Schemas, topic: TopicName, peer: SchemaPeer) -> None:
        self._schemas = schemas
        self._topic = topic
        self._peer = peer
        self._remote_versions: dict[bytes, bytes] = {}

    def remote_version(self, version: bytes) -> bytes | None:
        """Return the remote version of a local one. None: `learn` has to request it."""
        if version_number(version) < 0:
            return NO_SCHEMA
        return self._remote_versions.get(version)

    async def learn(self, version: bytes) -> None:
        """Cache the remote version of a local one; requests it from the other region if the local one has a schema.
        ProtocolError, StorageError: the caller retries later."""
        found = await self._schemas.at(self._topic, version_number(version))
        if found is None or found.schema is None:
            remote = NO_SCHEMA
        else:
            remote = await self._peer.request_schema_version(str(self._topic), found.schema)
            if len(remote) not in (0, len(version)):
                sentence = f"its version there has {len(remote):,} bytes instead of {len(version)}"
                raise ProtocolError(ServerError.UnknownError, sentence)
        if len(self._remote_versions) >= VERSIONS_MAX:
            self._remote_versions.clear()
        self._remote_versions[version] = remote

    def forget(self) -> None:
        """Drop all versions: the stream ended, and the other region may assign others before the next one."""
        self._remote_versions.clear()
