"""Read topics in batches, at most one page at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import NamedTuple

import kafka.errors

from emulator.storage.contract import Entry
from emulator.storage.kafka.cluster import KafkaCluster
from emulator.storage.kafka.records import RecordBatch, decode_batches

PAGE_BYTES = 1024 * 1024
"""Size that one fetch requests; Kafka returns a larger batch as a whole."""
PAGES_BYTES = 16 * 1024 * 1024
"""Maximum size of the cache of pages, with which reads of a few entries do not fetch the same batch each time."""


async def read_page(
    cluster: KafkaCluster, topic: str, offset: int, bytes_max: int = PAGE_BYTES
) -> list[RecordBatch]:
    """Return batches, beginning with the one that contains `offset`; wait until Kafka returns it."""

    async def attempt() -> list[RecordBatch]:
        data = (await cluster.fetch(topic, offset, bytes_max)).data
        batches = [batch for batch in decode_batches(data, topic) if batch.next_offset > offset]
        if not batches:  # a new leader does not know the high watermark yet
            raise kafka.errors.OffsetNotAvailableError(f"{topic} at {offset}")
        return batches

    return await cluster.retry(attempt, topic)


async def read_through(
    cluster: KafkaCluster, topic: str, start: int, stop: int
) -> AsyncIterator[RecordBatch]:
    """Yield all batches with records in start <= offset < stop; the record at stop - 1 must exist."""
    while start < stop:
        for batch in await read_page(cluster, topic, start):
            if batch.first_offset < stop:
                yield batch
            start = batch.next_offset


class Page(NamedTuple):
    """All entries of a log with first_offset <= id < next_offset."""

    first_offset: int
    next_offset: int
    entries: list[Entry]

    def from_id(self, entry_id: int) -> list[Entry]:
        return self.entries[bisect_left(self.entries, (entry_id,)) :]


class Pages:
    """A cache of the last page read of each log, up to PAGES_BYTES."""

    def __init__(self) -> None:
        self._pages: OrderedDict[int, tuple[Page, int]] = OrderedDict()
        self._bytes = 0

    def get(self, ledger_id: int, entry_id: int) -> Page | None:
        """Return the cached page that contains `entry_id`, or None."""
        page, _ = self._pages.get(ledger_id, (None, 0))
        if page is None or not page.first_offset <= entry_id < page.next_offset:
            return None
        self._pages.move_to_end(ledger_id)
        return page

    def put(self, ledger_id: int, page: Page) -> None:
        self.forget(ledger_id)
        size = sum(len(entry.data) + 100 for entry in page.entries)
        self._pages[ledger_id] = page, size
        self._bytes += size
        while self._bytes > PAGES_BYTES:
            self.forget(next(iter(self._pages)))

    def forget(self, ledger_id: int) -> None:
        _, size = self._pages.pop(ledger_id, (None, 0))
        self._bytes -= size
