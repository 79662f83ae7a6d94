"""Mutants of disks and remote logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from emulator.errors import StorageError, StorageFenced
from emulator.simulation.disk import DiskStore, SimulatedDisk
from emulator.simulation.durable_media import MediaWrite, Medium
from emulator.simulation.remote_log import RemoteLog, RemoteStore
from emulator.simulation.store import SimulatedLog
from tests.swarm.mutant import Mutants, medium

MUTANTS = Mutants()


@MUTANTS.mutant("torn-tail-trusted", "INV-3", "INV-15", patch=medium("disk"))
class _TornTailTrusted(SimulatedDisk):
    """Recovery serves the partial data of an append that a crash interrupted."""

    async def open_store(self) -> DiskStore:
        self.faults = replace(self.faults, trusts_torn_tail=True)
        return await super().open_store()


class _FailsAlone(SimulatedLog):
    def failed(self, error: StorageError) -> None:
        """Let the next caller open the log again; the present user continues with the failed one."""
        self._store.forget(self.name)


class _EachByItself(Medium):
    def apply(self, group: Sequence[MediaWrite], owner: int) -> list[Any]:
        """Apply each write as if no earlier write had failed."""
        outcomes = []
        for write in group:
            if isinstance(write.lane, SimulatedLog):
                write.lane.broken = None
            outcomes += super().apply([write], owner)
        return outcomes


class _FailsAloneOnDisk(DiskStore):
    log_type = _FailsAlone


class _FailsAloneElsewhere(RemoteStore):
    log_type = _FailsAlone


class _UnpoisonedDisk(_EachByItself, SimulatedDisk):
    def make_store(self, owner: int) -> DiskStore:
        return _FailsAloneOnDisk(self, owner)


class _UnpoisonedRemoteLog(_EachByItself, RemoteLog):
    def make_store(self, owner: int) -> RemoteStore:
        return _FailsAloneElsewhere(self, owner)


@MUTANTS.mutant("fence-ignored", "INV-11", patch=medium("remote_log"))
class _FenceIgnored(RemoteLog):
    """A remote log stores appends of a fenced owner."""

    def fence(self, write: MediaWrite, owner: int) -> StorageFenced | None:
        return None


class _BlindStore(RemoteStore):
    def poll_owner(self) -> None:
        pass


@MUTANTS.mutant("ownership-not-checked", "INV-11", patch=medium("remote_log"))
class _OwnershipNotChecked(RemoteLog):
    """A region that writes nothing does not check that it still owns its log."""

    def make_store(self, owner: int) -> RemoteStore:
        return _BlindStore(self, owner)


class _TakesFailuresForDefinite(RemoteStore):
    async def open_log(self, name: str, *, create: bool = True) -> SimulatedLog | None:
        """Open a failed log at its last durable entry, as if the failed append had not been stored."""
        failed = self._logs.get(name)
        if failed is None or failed.broken is None or failed.deleted_error is not None:
            return await super().open_log(name, create=create)
        again = self._logs[name] = self.log_type(self, failed.durable)
        again.next_entry_id, again.size_bytes = failed.next_entry_id, failed.size_bytes
        return again


@MUTANTS.mutant(
    "lost-response-not-reread", "INV-2", "INV-1", "INV-4", "INV-6", "INV-13", patch=medium("remote_log")
)
class _LostResponseNotReread(RemoteLog):
    """After a lost response the log is not read again; the append is considered failed."""

    def make_store(self, owner: int) -> RemoteStore:
        return _TakesFailuresForDefinite(self, owner)


MUTANTS.mutant(
    "append-after-failed-append",
    "INV-4",
    "INV-1",
    "INV-2",
    safeguard="After a failed append, later appends are stored.",
)(lambda overrides: replace(overrides, disk=_UnpoisonedDisk, remote_log=_UnpoisonedRemoteLog))
