"""The replicated form of entries: with their source position and the remote version of their schema.

Regions of one cluster share their schema versions, those of different clusters do not (docs/components/schemas.md). A
replicator first requests the version of an entry's schema in the other region, which registers an unknown schema. It
sends the entry with that version. So a region receives the schema of an entry before the entry (INV-42).

A form is the end of the SEND frame. It is computed once for all remote regions with the same schema version, for runs
of plain messages in columns (`wire.codec_hot.send_runs`). The replicators of a topic mostly send the same entries at
about the same time, so a region caches only the newest forms, up to a bound. The entry cache does not hold forms: they
would double its memory long after they were sent.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from emulator.broker.memory_budgets import MemoryBudget
from emulator.broker.metadata.schemas import Schemas
from emulator.broker.topic.new_entries import GroupSlice, id_at
from emulator.broker.topic.stored_entry import PlainReplica, StoredEntry
from emulator.core.schemas.versions import version_number
from emulator.errors import ProtocolError, ServerError
from emulator.model.values import Position, Schema, TopicName
from emulator.wire.codec_hot.message_runs import RUN_MESSAGES_MIN, MessageRun
from emulator.wire.codec_hot.publishing import end_of_send
from emulator.wire.codec_hot.send_runs import PlainForms, Run, SendRun
from emulator.wire.entry import with_replication

FORMS_BYTES_MAX = 4_194_304
"""Maximum memory of the forms of one region after `trim`: about a window of entries of 1 KiB. Forms of larger
entries are computed again more often, which costs little per byte."""
RUN_OVERHEAD_BYTES = 900
"""Memory of a run besides its forms: its object, lists and dictionary, the slots in two collections."""
FORM_OVERHEAD_BYTES = 110
"""Memory of a form besides its bytes: the headers of its objects, the slots in four lists."""

_new_tuple: Final = tuple.__new__
"""Creates a NamedTuple in half the time of its constructor; values in the order of the fields."""


class LogForms:
    """The cached forms of one log's entries with one version of their schema."""

    def __init__(
        self, cache: ReplicatedEntryCache, ledger_id: int, schema_version: bytes | None, in_runs: bool
    ) -> None:
        """`schema_version`: the version in the remote region; None: the entries have no schema. `in_runs`: whether the
        remote region accepts runs of messages (`wire.codec_hot.message_runs`)."""
        self._cache = cache
        self.key = (ledger_id, schema_version, in_runs)
        self._in_runs = in_runs
        self._firsts: list[int] = []
        """Id of the first entry of each run, ascending. Invariant: runs do not overlap."""
        self._runs: list[Run] = []

    def __len__(self) -> int:
        """Number of runs."""
        return len(self._runs)

    @property
    def entry_ids(self) -> list[int]:
        """The ids of all entries with a form."""
        return [
            entry_id
            for run in self._runs
            for entry_id in range(run.first_entry_id, run.first_entry_id + len(run))
        ]

    def find(self, entry_id: int) -> Run | None:
        """Return the run that contains the form of an entry."""
        at = bisect_right(self._firsts, entry_id) - 1
        return self._runs[at] if at >= 0 and entry_id < self._firsts[at] + len(self._runs[at]) else None

    def plain_run(self, entries: Sequence[StoredEntry], index: int) -> Run | None:
        """Return a run of plain messages that contains the entry of this index; build and cache it, with those after
        it, if there is none. None: the entry is another one."""
        if not _may_be_plain(entries, index):
            return None
        entry_id = id_at(entries, index)
        found = self.find(entry_id)
        if found is not None or _is_decoded(entries, index):  # a decoded one is rarely plain
            return found if found is not None and found.is_plain else None
        after = bisect_right(self._firsts, entry_id)
        end_id = self._firsts[after] if after < len(self._firsts) else -1
        run: Run | None = self._similar_run(entries, index, end_id) if self._in_runs else None
        if run is None:
            forms, ledger_id = self._cache.plain_forms, self.key[0]
            run = forms.take(entries, index, ledger_id, end_id, until_similar=self._in_runs)
        return None if run is None else self._add(run)

    def _similar_run(self, entries: Sequence[StoredEntry], index: int, end_id: int) -> MessageRun | None:
        """Return a run of similar messages that begins with the entry of this index; None: there is none."""
        if len(entries) - index < RUN_MESSAGES_MIN:
            return None
        first_id = id_at(entries, index)
        datas = partial(_datas, entries, index, first_id)
        return self._cache.plain_forms.take_similar(first_id, datas, self.key[0], end_id)

    def add(self, entry: StoredEntry, schema_version: bytes | None = None) -> Run:
        """Return the form of an entry, and cache it until `trim` drops it. `schema_version`: its schema's version in
        the remote region, if different."""
        info = entry.info
        position = _new_tuple(Position, (self.key[0], entry.entry_id))
        data = with_replication(entry.data, self._cache.region, position, schema_version)
        numbers = (info.sequence_id, info.num_messages, info.highest_sequence_id)
        form = end_of_send(*numbers, marker=entry.hidden, data=data)
        messages = info.num_messages
        return self._add(SendRun(entry.entry_id, [form.data], [form.command_bytes], messages, is_plain=False))

    def _add(self, run: Run) -> Run:
        at = bisect_right(self._firsts, run.first_entry_id)
        self._firsts.insert(at, run.first_entry_id)
        self._runs.insert(at, run)
        self._cache.added(self, run)
        return run

    def drop(self, run: Run) -> None:
        at = bisect_left(self._firsts, run.first_entry_id)
        del self._firsts[at], self._runs[at]


def _datas(
    entries: Sequence[StoredEntry], index: int, first_id: int, offset: int, entries_max: int
) -> list[bytes]:
    """Return the bytes of up to `entries_max` entries that are not hidden. The first one is `offset` entries behind the
    one with this index and id; the ids of all follow from that one's. Only what may be in a run is read, so that short
    runs do not cost time for all entries after them."""
    begin = index + offset
    if isinstance(entries, GroupSlice):
        return entries.datas(begin, entries_max)
    datas: list[bytes] = []
    for entry_id, entry in enumerate(entries[begin : begin + entries_max], first_id + offset):
        if entry.hidden or entry.entry_id != entry_id:
            break
        datas.append(entry.data)
    return datas


def _may_be_plain(entries: Sequence[StoredEntry], index: int) -> bool:
    """Whether an entry may be a plain message that originated here, without reading it."""
    if isinstance(entries, GroupSlice):
        return entries.replicated_from is None
    entry = entries[index]
    return not (entry.hidden or isinstance(entry, PlainReplica))


def _is_decoded(entries: Sequence[StoredEntry], index: int) -> bool:
    return entries.is_decoded(index) if isinstance(entries, GroupSlice) else entries[index].is_decoded


class ReplicatedEntryCache:
    """Caches the newest replicated forms of the entries of one region."""

    def __init__(self, region: str, budget: MemoryBudget) -> None:
        self.region = region
        self.plain_forms = PlainForms(region)
        self._charge = budget.charge(0)
        self._logs: dict[tuple[int, bytes | None, bool], LogForms] = {}
        """(ledger id, remote schema version, whether in runs) -> forms. Invariant: none is empty."""
        self._groups: deque[tuple[int, list[tuple[LogForms, Run]]]] = deque()
        """(bytes, forms) added between two calls of `trim`, oldest first."""
        self._new: list[tuple[LogForms, Run]] = []
        self._new_bytes = self._held_bytes = 0

    def of_log(
        self, ledger_id: int, schema_version: bytes | None = None, *, in_runs: bool = False
    ) -> LogForms:
        """Return the forms of a log, which is valid until the next call of `trim`."""
        key = (ledger_id, schema_version, in_runs)
        return self._logs.get(key) or LogForms(self, *key)

    def added(self, log: LogForms, run: Run) -> None:
        self._logs[log.key] = log
        self._new.append((log, run))
        self._new_bytes += RUN_OVERHEAD_BYTES + run.held_bytes + FORM_OVERHEAD_BYTES * len(run)

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
            for log, run in group:
                log.drop(run)
                if not len(log):
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
