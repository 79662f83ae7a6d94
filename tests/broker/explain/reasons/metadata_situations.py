"""Situations of metadata paths that are synchronised between clusters."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

from emulator.broker.explain.metadata import why_shared
from emulator.client import Client
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
from tests.broker.explain.reasons.region_situations import Steps, in_regions
from tests.broker.explain.reasons.situations import Codes, situation
from tests.broker.regions import Regions

PATH = NamespacePath("acme/orders").text
EUROPE = SyncPeerPath("europe").text
"""Path of the row in which europe confirms the events that it has applied."""
EVENT = SyncStamp(1, 0, "americas", 1, "i")
LATER = SyncStamp(2, 0, "europe", 1, "i")


class Shared:
    """A stub of a region of cluster americas for `why_shared`, with a path whose events europe has confirmed."""

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
        """Let europe confirm all events."""
        known = {stamp.origin: stamp.sequence for stamp in (EVENT, LATER)}
        self.rows[EUROPE] = json.dumps(known).encode()

    def get(self, path: str) -> Change | None:
        value = self.rows.get(path)
        if path == SyncRecordPath(PATH).text and self.is_compared:
            value = self.record.encode()
        return None if value is None else Change(1, path, value, 0)


def of_path(cause: ReasonRow) -> Callable[[Callable[[Shared], Iterator[None]]], object]:
    """Register a situation of a shared path. Only the code of `cause` is compared: a path can have several reasons."""

    def register(act: Callable[[Shared], Iterator[None]]) -> object:
        @situation(cause)
        async def scene() -> AsyncIterator[Codes]:
            here = cast(Any, Shared())
            steps = act(here)
            next(steps)
            yield lambda: {one.code for one in why_shared(here, here, PATH)} & {cause.code}
            next(steps, None)
            yield tuple

        return act

    return register


@in_regions(Cause.STORE_AWAY, "metadata", "namespace/public/default", names=("us",))
async def store_away(world: Regions, us: Client) -> Steps:
    metadata = world.running["us"].metadata
    metadata.read_failure = StorageError("no answer", definite=True)
    yield
    metadata.read_failure = None


@of_path(Cause.PATH_EXCLUDED)
def path_excluded(here: Shared) -> Iterator[None]:
    here.settings.excluded = ("namespace/acme",)
    yield
    here.settings.excluded = ()


@of_path(Cause.PATH_NOT_COMPARED)
def path_not_compared(here: Shared) -> Iterator[None]:
    here.is_compared = False
    yield
    here.is_compared = True


@of_path(Cause.EVENT_APPLIED)
def event_applied(here: Shared) -> Iterator[None]:
    yield
    here.record.entries.clear()


@of_path(Cause.EVENT_LOST)
def event_lost(here: Shared) -> Iterator[None]:
    here.record.losers.append(Loser("policies/deduplication", EVENT, False, LATER))
    yield
    here.record.losers.clear()


@of_path(Cause.CLUSTER_EXCLUDES)
def cluster_excludes(here: Shared) -> Iterator[None]:
    row = SyncExcludedPath("europe").text
    here.rows[row] = json.dumps(["namespace/acme"]).encode()
    yield
    del here.rows[row]


@of_path(Cause.CLUSTERS_BEHIND)
def clusters_behind(here: Shared) -> Iterator[None]:
    here.rows.pop(EUROPE)
    here.record.entries["policies/x"] = ElementState(EVENT, False, True, 0)
    yield
    here.confirm()


@of_path(Cause.EVENTS_NOT_CARRIED)
def events_not_carried(here: Shared) -> Iterator[None]:
    here.rows.pop(EUROPE)
    here.lease.holder = ""
    here.failure = "no link"
    yield
    here.lease.holder = "us"


@of_path(Cause.EVENT_TOPIC_FAILS)
def event_topic_fails(here: Shared) -> Iterator[None]:
    here.rows.pop(EUROPE)
    here.failure = "no link"
    yield
    here.lease.holder = "us-west"  # only a failure of the sync leader is a reason


@of_path(Cause.ROW_DAMAGED)
def row_damaged(here: Shared) -> Iterator[None]:
    here.damage.found[PATH] = "the row is damaged"
    yield
    here.damage.found.clear()


@of_path(Cause.ROW_REPLACED)
def row_replaced(here: Shared) -> Iterator[None]:
    here.damage.reports[PATH] = SimpleNamespace(problem="the row is damaged", at_ms=0)
    yield
    here.damage.reports.clear()  # as after a restart of the region


@of_path(Cause.RECORDS_INCOMPLETE)
def records_incomplete(here: Shared) -> Iterator[None]:
    here.rows[SYNC_INCOMPLETE_PATH.text] = json.dumps(["europe"]).encode()
    yield
    del here.rows[SYNC_INCOMPLETE_PATH.text]
