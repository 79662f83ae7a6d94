"""Stores the exclusive access of one topic: a row for each grant, and the wait queue.

The wait queue is written soon after a change, and no response waits for that: losing it costs only the order in which
producers are promoted.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict

from emulator.broker.debounced_writer import DebouncedWriter, one_key
from emulator.broker.environment import RegionServices
from emulator.core.access.types import AccessGrant
from emulator.core.access.wait_queue import WaitQueue
from emulator.errors import StorageDamaged
from emulator.model.stored_keys import GrantKey, WaitQueueKey
from emulator.storage.contract import Store

logger = logging.getLogger(__name__)

_UNREADABLE = (ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""Errors of decoding a stored row of any content."""
QUEUE_WRITE_DELAY_SECONDS = 0.02
QUEUE_STORED_MAX = 1_000
"""Maximum number of waiting producers whose order survives a restart."""


def newest_grant(store: Store, topic: str) -> AccessGrant | None:
    """Return the newest stored grant. StorageDamaged when it cannot be read."""
    rows = store.scan(GrantKey.prefix(topic))
    return _decode_grant(rows[-1][0], rows[-1][1].value) if rows else None


def encode_grant(grant: AccessGrant, why: str, at_ms: int) -> bytes:
    return json.dumps({**asdict(grant), "why": why, "at_ms": at_ms}).encode()


def _decode_grant(key: str, value: bytes) -> AccessGrant:
    try:
        row = json.loads(value)
        end = row["end_entry"]
        grant = AccessGrant(
            int(row["epoch"]), str(row["owner"]), int(row["first_entry"]), None if end is None else int(end)
        )
        if not key.endswith(f"/{grant.epoch:020d}"):
            raise ValueError(f"epoch {grant.epoch} is not that of the key")
    except _UNREADABLE as problem:
        raise StorageDamaged(
            f"{key} is damaged ({type(problem).__name__}: {problem}): the owner of the topic is unknown"
        ) from None
    return grant


def stored_wait_queue(store: Store, topic: str) -> dict[str, int]:
    """Return the stored wait queue: the time at which each producer began to wait, in microseconds, by name."""
    stored = store.get(WaitQueueKey.text_of(topic))
    if stored is None:
        return {}
    try:
        return {str(name): int(arrived_us) for name, arrived_us in json.loads(stored.value)}
    except _UNREADABLE:
        logger.warning(
            "%s: the stored wait queue cannot be read; producers are queued in the order in which they "
            "reconnect",
            topic,
        )
        return {}


class WaitQueueWriter:
    """Writes the wait queue of one topic to the store after changes."""

    def __init__(self, region: RegionServices, topic: str, queue: WaitQueue) -> None:
        self._region = region
        self._topic = topic
        self._queue = queue
        self._changes_written = 0
        """Value of `WaitQueue.changes` when the last write was scheduled."""
        self._writer: DebouncedWriter | None = None
        """Writer of the queue, created at the first change; most topics never need one."""

    def changed(self) -> None:
        """Write the queue soon if it changed."""
        if self._queue.changes == self._changes_written:
            return
        self._changes_written = self._queue.changes
        if self._writer is None:
            key = WaitQueueKey.text_of(self._topic)
            self._writer = self._region.environment.components.storage.debounced_writer(
                self._region.store, key, one_key(key, self._encode_queue), _log_failure
            )
        self._writer.soon(QUEUE_WRITE_DELAY_SECONDS)

    def _encode_queue(self) -> bytes:
        entries = self._queue.entries[:QUEUE_STORED_MAX]
        return json.dumps([[entry.claimant.producer_name, entry.arrived_us] for entry in entries]).encode()

    async def flush(self) -> None:
        """Make the queue durable. StorageError when that fails."""
        pending = None if self._writer is None else self._writer.flush()
        if pending is not None:
            await pending

    async def settled(self) -> None:
        """After `close`: wait until no write is pending."""
        if self._writer is not None:
            await self._writer.settled()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _log_failure(failure: BaseException) -> None:
    logger.warning("the wait queue for exclusive access could not be stored: %s", failure)
