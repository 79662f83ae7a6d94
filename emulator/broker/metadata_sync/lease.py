"""Which region of a cluster carries its metadata events: the one whose name stands in the cluster's store.

It says again and again that it is there. Who sees it say nothing for a while takes its place; by its own loop's time,
so no wall clock matters. Two regions that believe it for a moment do no harm: whatever both send or apply counts once.
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

BEAT_SECONDS = 0.4
SILENCE_SECONDS = 1.2
"""After so long somebody else carries on: within two seconds, with what it takes to begin."""


class StoredLease(NamedTuple):
    """The lease as it is stored."""

    region: str
    number: int
    """How often it has changed hands."""
    beat: int

    @classmethod
    def decode(cls, value: bytes) -> StoredLease:
        """ValueError and others for what `encode` did not make."""
        raw = json.loads(value)
        if not isinstance(raw["region"], str):
            raise ValueError(f"region {raw['region']!r} is not a name")
        return cls(raw["region"], number(raw, "number"), number(raw, "beat"))

    @classmethod
    def stored(cls, change: Change | None) -> StoredLease | None:
        """StorageDamaged."""
        return decoded(change, cls.decode, None)

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()


class Lease:
    """One a region."""

    def __init__(self, metadata: Metadata, region: str, *, is_alone: bool) -> None:
        self._metadata = metadata
        self._region = region
        self._is_alone = is_alone
        self._seen: StoredLease | None = None
        self._seen_at = asyncio.get_running_loop().time()
        self._beat_at = 0.0
        self._number = -1
        """Under which this region holds it; -1: it does not."""

    @property
    def holder(self) -> str:
        """Empty when nobody is known to be."""
        held = self._stored()
        return held.region if held is not None else self._region if self._is_alone else ""

    @property
    def is_held(self) -> bool:
        """This region carries, as far as it knows."""
        if self._is_alone:
            return True
        held = self._stored()
        return held is not None and (held.region, held.number) == (self._region, self._number)

    def _stored(self) -> StoredLease | None:
        return StoredLease.stored(self._metadata.get(SYNC_LEASE_PATH.text))

    async def look(self) -> None:
        """Say that this region is there, or take what nobody holds any more. StorageError when the store is away: then
        others cannot take it either, and who held it goes on."""
        if self._is_alone:
            return
        now, held = asyncio.get_running_loop().time(), self._stored()
        if held != self._seen:
            self._seen, self._seen_at = held, now
        if self.is_held:
            if now - self._beat_at >= BEAT_SECONDS:
                self._beat_at = now
                await self._put(held)
        elif held is None or held.region == self._region or now - self._seen_at >= SILENCE_SECONDS:
            await self._put(held)
            self._beat_at = now

    async def _put(self, seen: StoredLease | None) -> None:
        region, own = self._region, self._number

        def work(rows: ConfigurationRows) -> int:
            held = StoredLease.stored(rows.get(SYNC_LEASE_PATH.text))
            if held is not None and (held.region, held.number) == (region, own):
                rows.put(SYNC_LEASE_PATH.text, held._replace(beat=held.beat + 1).encode())
                return own
            if held != seen:
                return -1  # somebody was quicker
            number = 0 if held is None else held.number + 1
            rows.put(SYNC_LEASE_PATH.text, StoredLease(region, number, 0).encode())
            return number

        self._number = await self._metadata.transact(work)

    async def give_up(self) -> None:
        """Of a region that stops: others need not wait. StorageError."""
        if not self._is_alone and self.is_held:
            await self._metadata.put(SYNC_LEASE_PATH.text, None)
