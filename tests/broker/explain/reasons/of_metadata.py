"""Situations of paths that are synchronised between clusters."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

from emulator.broker.explain.metadata import why_shared
from emulator.core.metadata.event import SyncStamp
from emulator.core.metadata.record import DocumentRecord, ElementState, Loser
from emulator.errors import StorageError
from emulator.model.reasons import Cause, ReasonRow
from emulator.model.stored_keys import (
    SYNC_INCOMPLETE_PATH,
    NamespacePath,
    SyncExcludedPath,
    SyncPeerPath,
    SyncRecordPath,
)
from emulator.model.values import Change
from tests.broker.explain.reasons.of_regions import codes_of, linked
from tests.broker.explain.reasons.situations import Codes, situation

PATH = NamespacePath("acme/orders").text
EVENT = SyncStamp(1, 0, "americas", 1, "i")
LATER = SyncStamp(2, 0, "europe", 1, "i")


class Shared:
    """A region of cluster americas, as `why_shared` sees it, and a path that europe has confirmed."""

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}
        self.record = DocumentRecord(
            PATH, entries={"policies/deduplication": ElementState(EVENT, False, True, 0)}
        )
        self.lease = SimpleNamespace(holder="us")
        self.losses = SimpleNamespace(expected={"europe"})
        self.settings = SimpleNamespace(
            covers=lambda path: not self.excluded(path), excluded=(), clusters={"europe"}, region="us"
        )
        self.failure = ""
        self.damage = SimpleNamespace(found={}, reports={})
        self.is_compared = True
        self.confirm()

    def excluded(self, path: str) -> bool:
        return any(path.startswith(one) for one in self.settings.excluded)

    def confirm(self) -> None:
        """Let europe report that it has everything."""
        known = {stamp.origin: stamp.sequence for stamp in (EVENT, LATER)}
        self.rows[SyncPeerPath("europe").text] = json.dumps(known).encode()

    def get(self, path: str) -> Change | None:
        value = self.rows.get(path)
        if path == SyncRecordPath(PATH).text and self.is_compared:
            value = self.record.encode()
        return None if value is None else Change(1, path, value, 0)

    def only(self, cause: ReasonRow) -> Codes:
        """Return the reasons of one kind: the history of a path has several."""
        this = cast(Any, self)
        return lambda: {one.code for one in why_shared(this, this, PATH)} & {cause.code}


@situation(Cause.STORE_AWAY)
async def store_away() -> AsyncIterator[Codes]:
    async with linked("us") as (world, _):
        metadata = world.running["us"].metadata
        metadata.away = StorageError("no answer", definite=True)
        yield codes_of(world, "us", "metadata", "namespace/public/default")
        metadata.away = None
        yield tuple


@situation(Cause.PATH_EXCLUDED)
async def path_excluded() -> AsyncIterator[Codes]:
    here = Shared()
    here.settings.excluded = ("namespace/acme",)
    yield here.only(Cause.PATH_EXCLUDED)
    here.settings.excluded = ()
    yield tuple


@situation(Cause.PATH_NOT_COMPARED)
async def path_not_compared() -> AsyncIterator[Codes]:
    here = Shared()
    here.is_compared = False
    yield here.only(Cause.PATH_NOT_COMPARED)
    here.is_compared = True
    yield tuple


@situation(Cause.EVENT_APPLIED)
async def event_applied() -> AsyncIterator[Codes]:
    here = Shared()
    yield here.only(Cause.EVENT_APPLIED)
    here.record.entries.clear()
    yield tuple


@situation(Cause.EVENT_LOST)
async def event_lost() -> AsyncIterator[Codes]:
    here = Shared()
    here.record.losers.append(Loser("policies/deduplication", EVENT, False, LATER))
    yield here.only(Cause.EVENT_LOST)
    here.record.losers.clear()
    yield tuple


@situation(Cause.CLUSTER_EXCLUDES)
async def cluster_excludes() -> AsyncIterator[Codes]:
    here = Shared()
    row = SyncExcludedPath("europe").text
    here.rows[row] = json.dumps(["namespace/acme"]).encode()
    yield here.only(Cause.CLUSTER_EXCLUDES)
    del here.rows[row]
    yield tuple


def behind() -> Shared:
    here = Shared()
    del here.rows[SyncPeerPath("europe").text]
    return here


@situation(Cause.CLUSTERS_BEHIND)
async def clusters_behind() -> AsyncIterator[Codes]:
    here = behind()
    here.record.entries["policies/x"] = ElementState(EVENT, False, True, 0)
    yield here.only(Cause.CLUSTERS_BEHIND)
    here.confirm()
    yield tuple


@situation(Cause.EVENTS_NOT_CARRIED)
async def events_not_carried() -> AsyncIterator[Codes]:
    here = behind()
    here.lease.holder = ""
    here.failure = "no link"
    yield here.only(Cause.EVENTS_NOT_CARRIED)
    here.lease.holder = "us"
    yield tuple


@situation(Cause.EVENT_TOPIC_FAILS)
async def event_topic_fails() -> AsyncIterator[Codes]:
    here = behind()
    here.failure = "no link"
    yield here.only(Cause.EVENT_TOPIC_FAILS)
    here.lease.holder = "us-west"  # whose failure would be the reason
    yield tuple


@situation(Cause.ROW_DAMAGED)
async def row_damaged() -> AsyncIterator[Codes]:
    here = Shared()
    here.damage.found[PATH] = "the row is damaged"
    yield here.only(Cause.ROW_DAMAGED)
    here.damage.found.clear()
    yield tuple


@situation(Cause.ROW_REPLACED)
async def row_replaced() -> AsyncIterator[Codes]:
    here = Shared()
    here.damage.reports[PATH] = SimpleNamespace(problem="the row is damaged", at_ms=0)
    yield here.only(Cause.ROW_REPLACED)
    here.damage.reports.clear()  # the region starts again
    yield tuple


@situation(Cause.RECORDS_INCOMPLETE)
async def records_incomplete() -> AsyncIterator[Codes]:
    here = Shared()
    here.rows[SYNC_INCOMPLETE_PATH.text] = json.dumps(["europe"]).encode()
    yield here.only(Cause.RECORDS_INCOMPLETE)
    del here.rows[SYNC_INCOMPLETE_PATH.text]
    yield tuple
