"""Metadata sync of one region: tries to hold its cluster's lease, and runs the sync leader while it holds it."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from emulator.broker.metadata.store import Metadata
from emulator.broker.metadata_sync.damage import DamagedRows
from emulator.broker.metadata_sync.event_topic import EventTopicHost
from emulator.broker.metadata_sync.inbox import SyncMetrics
from emulator.broker.metadata_sync.lease import Lease
from emulator.broker.metadata_sync.settings import LostClusters, SyncSettings
from emulator.broker.metadata_sync.sync_leader import SyncLeader
from emulator.errors import ProtocolError, StorageError

logger = logging.getLogger(__name__)

RESTART_SECONDS = 1.0
"""Seconds to wait after an unexpected error before the sync leader is started again."""
STEP_SECONDS = 0.2
"""Maximum seconds between two steps; also the delay after an expected error."""


class SyncHost(EventTopicHost, Protocol):
    """The region, as this module needs it."""

    metadata: Metadata


class Synchronizer:
    """The metadata sync of one region."""

    def __init__(self, host: SyncHost, settings: SyncSettings) -> None:
        self._host = host
        self.settings = settings
        self.metrics = SyncMetrics(events=host.resources.protocol_events)
        self.lease = Lease(host.metadata, settings.region, is_alone=settings.is_alone)
        self.losses = LostClusters(host.metadata, settings)
        self.damage = DamagedRows(host.metadata, settings)
        self.leader: SyncLeader | None = None
        """The sync leader while it runs in this region; None otherwise."""
        self.failure = ""
        """Why the last step failed; empty if it succeeded, or if the sync leader was started again since."""
        self._wakeup = asyncio.Event()
        self._closed = False

    async def run(self) -> None:
        """Check the stored rows, then execute steps until `close` is called."""
        self._host.metadata.watch("", lambda change: self._wakeup.set())
        self.damage.begin()
        while not self._closed:
            self._wakeup.clear()
            try:
                await self._step()
                self._report("")
            except (StorageError, ProtocolError) as problem:
                self._report(str(problem))
                await asyncio.sleep(STEP_SECONDS)
            except Exception as problem:  # any: an unexpected error must not end the sync
                await self._restart_after(problem)
            await self._wait()

    async def _restart_after(self, problem: Exception) -> None:
        self.metrics.failures += 1
        failure = f"{type(problem).__name__}: {problem}"
        if failure != self.failure:
            logger.error("metadata sync failed and is restarted", exc_info=problem)
        self.failure = failure
        self._resign()
        await asyncio.sleep(RESTART_SECONDS)

    async def _step(self) -> None:
        if await self.damage.replace():
            self._resign()
            self._wakeup.set()
        await self.lease.renew_or_acquire()
        if not self.lease.is_held:
            self._resign()
            return
        if self.leader is None or not self.leader.channel.is_open:
            self._resign()
            host = self._host
            self.leader = await SyncLeader.begin(
                host, host.metadata, self.settings, self.metrics, self._wakeup.set
            )
            self._report("")  # the first step may take long, and the failure before it has ended
            logger.info(
                "this region is now the metadata sync leader of cluster %s", self.settings.here.cluster
            )
        await self.leader.step()

    def _report(self, failure: str) -> None:
        if failure and failure != self.failure:
            logger.warning("metadata sync is interrupted and will be retried: %s", failure)
        self.failure = failure

    def _resign(self) -> None:
        if self.leader is not None:
            self.leader.close()
            self.leader = None

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(STEP_SECONDS):
                await self._wakeup.wait()
        except TimeoutError:
            pass

    async def close(self) -> None:
        """Stop the sync leader, and release the lease within a second, so that other regions need not wait."""
        self._closed = True
        self._resign()
        try:
            async with asyncio.timeout(1.0):
                await self.lease.release()
        except (StorageError, TimeoutError) as failure:
            logger.warning("the metadata sync lease could not be released: %s", failure or "no answer")
