"""The lease of a cluster's sync leader: a row of the cluster's store with the name of the leading region.

The holder renews its lease every RENEWAL_SECONDS. Another region acquires it when there is no row, or when the region
has seen no renewal for EXPIRY_SECONDS by its own event loop, so wall clocks do not matter. A restarted region acquires
its own former lease at once. Two regions that lead for a moment do no harm: events are idempotent.
"""

from __future__ import annotations

import asyncio
import json
from typing import NamedTuple

from emulator.broker.metadata.store import Metadata
from emulator.core.metadata.event import number
from emulator.core.metadata.stored import decoded
from emulator.model.stored_keys import SYNC_LEASE_PATH
from emulator.model.values import Change
from emulator.storage.configuration.contract import ConfigurationRows

RENEWAL_SECONDS = 0.4
"""Seconds between two renewals by the holder."""
EXPIRY_SECONDS = 1.2
"""Seconds without renewal after which another region acquires the lease: it leads within two seconds, startup
included."""


class StoredLease(NamedTuple):
    """The stored form of the lease."""

    region: str
    number: int
    """Number of acquisitions before this one since the row was created: a restarted region has a new number."""
    beat: int
    """Number of renewals since this acquisition."""

    @classmethod
    def decode(cls, value: bytes) -> StoredLease:
        """Decode a stored lease. One of `UNREADABLE` for a value that `encode` did not produce."""
        raw = json.loads(value)
        if not isinstance(raw["region"], str):
            raise ValueError(f"region {raw['region']!r} is not a name")
        return cls(raw["region"], number(raw, "number"), number(raw, "beat"))

    @classmethod
    def stored(cls, change: Change | None) -> StoredLease | None:
        """Return the stored lease; None if there is none. StorageDamaged."""
        return decoded(change, cls.decode, None)

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()


class Lease:
    """One region's view of its cluster's lease."""

    def __init__(self, metadata: Metadata, region: str, *, is_alone: bool) -> None:
        self._metadata = metadata
        self._region = region
        self._is_alone = is_alone
        self._last_seen: StoredLease | None = None
        self._last_seen_at = asyncio.get_running_loop().time()
        self._renewed_at = 0.0
        self._number = -1
        """The lease's `number` while this region holds it; -1 otherwise."""

    @property
    def holder(self) -> str:
        """The region in the stored lease, even if the lease has expired; empty if there is none."""
        held = self._stored()
        return held.region if held is not None else self._region if self._is_alone else ""

    @property
    def is_held(self) -> bool:
        """Whether this region holds the lease, by its mirror of the store."""
        if self._is_alone:
            return True
        held = self._stored()
        return held is not None and (held.region, held.number) == (self._region, self._number)

    def _stored(self) -> StoredLease | None:
        return StoredLease.stored(self._metadata.get(SYNC_LEASE_PATH.text))

    async def renew_or_acquire(self) -> None:
        """Renew the lease if it is due, or acquire a free or expired one. StorageError when the store is unavailable;
        StorageDamaged."""
        if self._is_alone:
            return
        now, held = asyncio.get_running_loop().time(), self._stored()
        if held != self._last_seen:
            self._last_seen, self._last_seen_at = held, now
        if self.is_held:
            if now - self._renewed_at >= RENEWAL_SECONDS:
                self._renewed_at = now
                await self._write(held)
        elif held is None or held.region == self._region or now - self._last_seen_at >= EXPIRY_SECONDS:
            await self._write(held)
            self._renewed_at = now

    async def _write(self, seen: StoredLease | None) -> None:
        """Renew the lease; or acquire it, unless another region has changed the row since `seen` was read."""
        region, own = self._region, self._number

        def work(rows: ConfigurationRows) -> int:
            held = StoredLease.stored(rows.get(SYNC_LEASE_PATH.text))
            if held is not None and (held.region, held.number) == (region, own):
                rows.put(SYNC_LEASE_PATH.text, held._replace(beat=held.beat + 1).encode())
                return own
            if held != seen:
                return -1  # another region was faster
            number = 0 if held is None else held.number + 1
            rows.put(SYNC_LEASE_PATH.text, StoredLease(region, number, 0).encode())
            return number

        self._number = await self._metadata.transact(work)

    async def release(self) -> None:
        """Delete the row if this region holds the lease. StorageError."""
        if not self._is_alone and self.is_held:
            await self._metadata.put(SYNC_LEASE_PATH.text, None)
