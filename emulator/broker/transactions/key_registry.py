"""The keys of one running coordinator: applies the rules of `core.transactions.keys`, logs their decisions and closes
the connections of fenced holders.

When a new epoch or a deletion is durable, the connection of the former holder is closed and its open transaction
aborted; then the client receives the response (TX8). An error, too, is sent only when the state behind it is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from emulator.broker.shared_outcome import SharedOutcome
from emulator.broker.transactions.journal import CHECKPOINT_ENTRIES_MIN, TransactionJournal, damaged
from emulator.core.transactions.coordinator import FENCED
from emulator.core.transactions.journal_format import Holder, KeyEntry, decode_key_entry, encode_key_entry
from emulator.core.transactions.keys import KeyBook
from emulator.errors import ProtocolError, StorageError

FENCE_SECONDS: Final = 5.0
"""Maximum time that a request waits for the participants of the transactions that it fenced."""


class Closable(Protocol):
    """A client's connection that holds a key."""

    @property
    def is_open(self) -> bool: ...

    def close_at_once(self) -> None: ...


Holders = dict[tuple[str, str], WeakKeyDictionary[Closable, None]]
"""(owner, key) -> the connection that was granted the key last, and former ones that are not closed yet; in the order
in which they connected."""


class _Fence(NamedTuple):
    """The fencing of the former holders of a key."""

    owner: str
    key: str
    epoch: int
    """The new epoch: older ones are fenced."""
    why: str
    former: list[Closable]
    """Connections that had an older epoch, or may have had one."""


class KeyedTransactions(Protocol):
    """The transactions of the same coordinator, as the key registry uses them."""

    @property
    def over(self) -> bool:
        """Whether the running coordinator has ended: it makes no more decisions."""
        ...

    async def ready(self) -> None:
        """Wait until decisions are possible. StorageError; ProtocolError when the running coordinator has ended."""
        ...

    def issue_all(self) -> None:
        """Issue the writes of all transactions that were begun or decided."""
        ...

    def abort_of(
        self, owner: str, key: str, why: str, before_epoch: int | None = None
    ) -> list[asyncio.Future[None]]:
        """Abort the open transactions of a key, or only those of epochs below `before_epoch`. Returns the futures of
        their confirmations, also of transactions that were decided already."""
        ...

    def key_stored(self, written: SharedOutcome) -> None:
        """End the coordinator if a write of the keys' log has failed."""
        ...


class KeyRegistry:
    """Keys of one coordinator, until a log of the coordinator fails; then another instance is loaded."""

    def __init__(
        self,
        book: KeyBook,
        journal: TransactionJournal,
        coordinators: int,
        transactions: KeyedTransactions,
        wall_clock_ms: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """`coordinators`: number of coordinators; the first granted key binds all keys to it."""
        self.book = book
        self.holders: Holders = {}
        """Connections that hold each key; the next instance takes them over."""
        self._journal = journal
        self._coordinators = coordinators
        self._transactions = transactions
        self._wall_clock_ms = wall_clock_ms
        self._spawn = spawn

    async def load(self) -> None:
        """Read the log. StorageError when it cannot be read."""
        try:
            for data in await self._journal.read():
                self.book.apply(decode_key_entry(data))
        except ValueError as problem:
            raise damaged(self._journal.name, problem) from None

    def is_connected(self, owner: str, key: str) -> bool:
        """Whether a connection that was granted the key is open."""
        return any(one.is_open for one in self.holders.get((owner, key), ()))

    @property
    def newest_write(self) -> SharedOutcome | None:
        """The newest write; when it is done, all earlier ones are."""
        return self._journal.newest

    # Requests.

    async def connect(
        self, owner: str, key: str, epoch: int, process: str, connection: Closable, client: str = ""
    ) -> int:
        """Grant a connection the next epoch of a key and return it. First the former holder is fenced and its
        transaction aborted, for which the caller waits up to `FENCE_SECONDS`. ProtocolError when the epoch is not
        accepted, there are too many keys, or the coordinator has ended; StorageError."""
        await self._journal.ready()
        await self._transactions.ready()
        try:
            granted = self.book.connect(owner, key, epoch, process, self._wall_clock_ms(), client)
        except ProtocolError:
            await self._wait_for_writes()
            raise
        entries: list[KeyEntry] = [granted]
        if self.book.coordinators is None:
            entries.append(self.book.raise_floor(self.book.floor, self._coordinators))
        holders = self.holders.setdefault((owner, key), WeakKeyDictionary())
        former = [one for one in holders if one is not connection]
        holders[connection] = None
        written = self._issue(*entries)
        why = f"{FENCED}: its key has a newer connection (epoch {granted.epoch})"
        await self._fence_and_wait(_Fence(owner, key, granted.epoch, why, former), written)
        return granted.epoch

    async def delete(self, owner: str, key: str) -> None:
        """Delete a key, close its connection and abort its transaction. ProtocolError when there is no such key, or the
        coordinator has ended; StorageError."""
        await self._transactions.ready()
        deleted = self.book.delete(owner, key)
        former = list(self.holders.get((owner, key), ()))
        written = self._issue(deleted)
        await self._fence_and_wait(
            _Fence(owner, key, deleted.epoch, f"{FENCED}: its key was deleted", former), written
        )

    async def holder(self, claimed: Holder) -> Holder:
        """Return the holder under which a connection may begin transactions. ProtocolError when a newer connection has
        the key, or it was deleted; StorageError."""
        try:
            return self.book.holder(claimed.owner, claimed.key, claimed.epoch)
        except ProtocolError:
            await self._wait_for_writes()
            raise

    def record_begun(self, holder: Holder, least: int) -> SharedOutcome:
        """Record the newest transaction of a key. The outcome is known when the record is durable."""
        return self._issue(self.book.record_begun(holder, least))

    async def raise_floor(self, epoch: int, coordinators: int) -> None:
        """Bind keys to this number of coordinators from now on. Keys that do not exist here begin above `epoch`."""
        await self._journal.ready()
        await self._issue(self.book.raise_floor(epoch, coordinators))

    async def _wait_for_writes(self) -> None:
        """Wait until all writes are durable, before a rejection reveals them (TX1). StorageError."""
        newest = self._journal.newest
        if newest is not None:
            await newest

    # Fencing. It is completed even if the requesting client disconnects.

    async def _fence_and_wait(self, fence: _Fence, written: SharedOutcome) -> None:
        """Run `_fence` in a task of the region and wait for it. StorageError."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._spawn(self._fence(fence, written, done))
        await asyncio.shield(done)

    async def _fence(self, fence: _Fence, written: SharedOutcome, done: asyncio.Future[None]) -> None:
        """Once the epoch is durable, close the former connections and abort the transactions of older epochs (TX8);
        then complete `done`."""
        try:
            await written
            self._close_former(fence)
            if not self._transactions.over:
                aborted = self._transactions.abort_of(fence.owner, fence.key, fence.why, fence.epoch)
                if aborted:
                    await asyncio.wait(aborted, timeout=FENCE_SECONDS)
        except StorageError as failure:
            done.set_exception(failure)
            done.exception()
        else:
            done.set_result(None)

    def _close_former(self, fence: _Fence) -> None:
        holders = self.holders.get((fence.owner, fence.key), WeakKeyDictionary())
        for connection in fence.former:
            connection.close_at_once()
            holders.pop(connection, None)
        if not holders:
            self.holders.pop((fence.owner, fence.key), None)

    # The log.

    def _issue(self, *entries: KeyEntry) -> SharedOutcome:
        # transactions begun or decided before must precede these entries in the store (INV-57)
        self._transactions.issue_all()
        written = self._journal.append([encode_key_entry(entry) for entry in entries])
        written.add_done_callback(self._transactions.key_stored)
        if self._journal.since_checkpoint > max(CHECKPOINT_ENTRIES_MIN, 16 * len(self.book.keys)):
            state = [encode_key_entry(entry) for entry in self.book.checkpoint_entries()]
            self._journal.checkpoint(state).add_done_callback(self._transactions.key_stored)
        return written
