"""Damaged rows of metadata sync: each is found at the start or when it changes, reported, and replaced by a safe value.

A replacement never claims more than what is known:

* lease: no row, so that any region of the cluster takes the lease;
* clock: a new incarnation, as after the loss of a store; numbers of the former incarnation are not used again;
* applied, peer, excluded, seen-to: no row; other clusters send their events again, which are idempotent;
* drawn (prepared changes): no row; if changes are published first, also a new incarnation, so that they are applied
  when received;
* incomplete: all other clusters;
* loss: not lost, with a count above any that the other cluster has processed, so that it requests everything (INV-82);
* record: the current document, as a seed of the topology; all events are requested from every cluster.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from emulator.broker.metadata.store import Metadata
from emulator.broker.metadata_sync.lease import StoredLease
from emulator.broker.metadata_sync.settings import SyncSettings
from emulator.core.metadata.event import BEGINNING, SyncStamp
from emulator.core.metadata.merge import MetadataTransaction
from emulator.core.metadata.record import stored_record
from emulator.core.metadata.stored import UNREADABLE, LossDeclaration, decoded, stored_excluded
from emulator.core.metadata.version_vector import OwnClock, bounded, read_pending, stored_vector
from emulator.errors import StorageDamaged
from emulator.model.stored_keys import (
    SYNC_APPLIED_PATH,
    SYNC_CLOCK_PATH,
    SYNC_INCOMPLETE_PATH,
    SYNC_LEASE_PATH,
    SYNC_PENDING_PATH,
    SYNC_SEEN_TO_PATH,
    StoredKey,
    SyncExcludedPath,
    SyncLossPath,
    SyncPeerPath,
    SyncRecordPath,
    SyncStatePath,
    parse_path,
)
from emulator.model.values import Change
from emulator.storage.configuration.contract import ConfigurationRows

logger = logging.getLogger(__name__)

ROWS_AT_ONCE = 200
"""Maximum number of rows that are replaced in one transaction."""
REPORTS_MAX = 100


class ReplacedRow(NamedTuple):
    """The report of a damaged row that was replaced."""

    at_ms: int
    problem: str


class DamagedRows:
    """Finds the damaged rows of the region's mirror, and replaces them in the store."""

    def __init__(self, metadata: Metadata, settings: SyncSettings) -> None:
        self._metadata = metadata
        self._settings = settings
        self.found: dict[str, str] = {}
        """Path of a damaged row that is not replaced yet -> why it cannot be read."""
        self.reports: dict[str, ReplacedRow] = {}
        """Path -> report of its replaced row; the newest REPORTS_MAX."""
        self.count = 0
        """Number of times that a row was found damaged since the region started."""

    def begin(self) -> None:
        """Check all rows now, and each row again when it changes."""
        for prefix in _PREFIXES:
            self._metadata.watch(prefix, self._check)
            for change in self._metadata.list(prefix):
                self._check(change)

    def _check(self, change: Change) -> None:
        former_problem = self.found.pop(change.path, "")
        problem = problem_of(change)
        if problem:
            self.found[change.path] = problem
            self.count += 1
            logger.error("%s", problem)
        elif former_problem:
            self._report(change.path, former_problem)

    def _report(self, path: str, problem: str) -> None:
        self.reports.pop(path, None)
        self.reports[path] = ReplacedRow(self._settings.wall_clock_ms(), problem)
        if len(self.reports) > REPORTS_MAX:
            del self.reports[next(iter(self.reports))]

    async def replace(self) -> bool:
        """Replace up to ROWS_AT_ONCE damaged rows. Return whether any was known. StorageError: the caller retries."""
        paths = list(islice(self.found, ROWS_AT_ONCE))
        if paths:
            await self._metadata.transact(self._work(paths))
        return bool(paths)

    def _work(self, paths: list[str]) -> Callable[[ConfigurationRows], None]:
        own = self._own_stamps()
        replacement = _Replacement(self._settings, own)

        def work(rows: ConfigurationRows) -> None:
            damaged = {path: rows.get(path) for path in paths}
            keys = [parse_path(path) for path, change in damaged.items() if change and problem_of(change)]
            replacement.write(rows, [key for key in keys if key is not None])

        return work

    def _own_stamps(self) -> list[SyncStamp]:
        """Return the stamps of this cluster's own events in all readable records, of any incarnation."""
        stamps = []
        for change in self._metadata.list(SyncRecordPath.prefix()):
            if change.path not in self.found:
                stamps += [event.stamp for event in stored_record(change.path, change).events()]
        return [stamp for stamp in stamps if stamp.source == self._settings.here.cluster]


class _Replacement:
    """The replacement of damaged rows in one transaction. Time and randomness are read in advance, because the
    transaction runs in the store."""

    def __init__(self, settings: SyncSettings, own: list[SyncStamp]) -> None:
        self._settings = settings
        self._own = own
        self._now_ms = settings.wall_clock_ms()
        self._incarnation = f"{settings.draw():08x}"

    def write(self, rows: ConfigurationRows, keys: list[StoredKey]) -> None:
        for key in keys:
            if not isinstance(key, SyncRecordPath):
                rows.put(key.text, self._value(key))
        if SYNC_CLOCK_PATH in keys:
            self._begin_incarnation(rows)
        elif SYNC_PENDING_PATH in keys and self._settings.publishes_first:
            rows.put(SYNC_CLOCK_PATH.text, self._clock())
        records = [key.of for key in keys if isinstance(key, SyncRecordPath)]
        if records:
            self._adopt(rows, records)

    def _value(self, key: StoredKey) -> bytes | None:
        if isinstance(key, SyncLossPath):
            return LossDeclaration(self._now_ms // 1000).encode()
        return self._all_clusters() if key == SYNC_INCOMPLETE_PATH else None

    def _all_clusters(self) -> bytes:
        return json.dumps(sorted(self._settings.clusters)).encode()

    def _clock(self) -> bytes:
        latest = max((stamp.reading for stamp in self._own), default=BEGINNING)
        return OwnClock(self._incarnation, 0, latest).encode()

    def _begin_incarnation(self, rows: ConfigurationRows) -> None:
        """Begin a new incarnation. Events of former incarnations count as applied events of other origins: other
        clusters request those that they lack."""
        reached: dict[str, int] = {}
        for stamp in self._own:
            reached[stamp.origin] = max(stamp.sequence, reached.get(stamp.origin, 0))
        own = f"{self._settings.here.cluster}:{self._incarnation}"
        applied = bounded({own: 0, **reached}, stored_vector(rows.get(SYNC_APPLIED_PATH.text)))
        del applied[own]
        rows.put(SYNC_CLOCK_PATH.text, self._clock())
        rows.put(SYNC_APPLIED_PATH.text, json.dumps(applied, sort_keys=True).encode())

    def _adopt(self, rows: ConfigurationRows, paths: list[str]) -> None:
        for path in paths:
            rows.put(SyncRecordPath(path).text, None)
        transaction = MetadataTransaction(rows, self._settings.here, self._now_ms, self._incarnation)
        for path in filter(self._settings.covers, paths):
            with suppress(*UNREADABLE):  # a document that is damaged, too, is not sent to other clusters
                transaction.adopt(path)
        transaction.finish()
        rows.put(SYNC_APPLIED_PATH.text, None)
        rows.put(SYNC_INCOMPLETE_PATH.text, self._all_clusters())


# Validity of rows.


def incomplete(change: Change | None) -> list[str]:
    """Return the clusters from which all events must be requested, including those of this cluster. StorageDamaged."""
    return decoded(change, _decode_names, [])


def _decode_names(value: bytes) -> list[str]:
    names = json.loads(value)
    if not isinstance(names, list) or any(not isinstance(one, str) for one in names):
        raise ValueError(f"{str(names)[:80]!r} is not a list of clusters")
    return names


_READERS: dict[StoredKey, Callable[[Change], object]] = {
    SYNC_LEASE_PATH: StoredLease.stored,
    SYNC_CLOCK_PATH: lambda change: decoded(change, OwnClock.decode, None),
    SYNC_APPLIED_PATH: stored_vector,
    SYNC_SEEN_TO_PATH: stored_vector,
    SYNC_PENDING_PATH: read_pending,
    SYNC_INCOMPLETE_PATH: incomplete,
}
_READERS_BY_TYPE: dict[type[StoredKey], Callable[[Change], object]] = {
    SyncRecordPath: lambda change: stored_record(change.path, change),
    SyncPeerPath: stored_vector,
    SyncLossPath: LossDeclaration.decode,
    SyncExcludedPath: stored_excluded,
}
_PREFIXES = (
    SyncStatePath.prefix(),
    SyncRecordPath.prefix(),
    SyncPeerPath.prefix(),
    SyncLossPath.prefix(),
    SyncExcludedPath.prefix(),
)


def problem_of(change: Change) -> str:
    """Return why a row of metadata sync cannot be read; empty when it can, or when metadata sync has no such row."""
    key = parse_path(change.path)
    read = None if key is None else _READERS.get(key) or _READERS_BY_TYPE.get(type(key))
    try:
        if read is not None:
            read(change)
    except StorageDamaged as damage:
        return str(damage)
    return ""
