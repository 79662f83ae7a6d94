"""The keys of one coordinator as they run: the rules of `core.transactions.keys`, a log for what they decide, and the
connections that have a key.

Nobody hears of an epoch, a deletion or a refusal before what it rests on is durable; then whoever had the key is cut
off, and what it had open is aborted (TX8).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from emulator.broker.transactions.journal import CHECKPOINT_ENTRIES, TransactionJournal, damaged
from emulator.core.transactions.coordinator import FENCED
from emulator.core.transactions.journal_format import Holder, KeyEntry, decode_key_entry, encode_key_entry
from emulator.core.transactions.keys import KeyBook
from emulator.errors import ProtocolError, StorageError

FENCE_SECONDS: Final = 5.0
"""So long a connection waits until the participants of the transaction that it fenced have been told."""


class Closable(Protocol):
    """A client's connection that holds a key."""

    @property
    def is_open(self) -> bool: ...

    def cut_off(self) -> None: ...


Holders = dict[tuple[str, str], WeakKeyDictionary[Closable, None]]
"""(owner, key) -> the connection that was accepted last, and those that it has not fenced durably yet; in the order in
which they connected."""


class _Fence(NamedTuple):
    """Who is kept from going on."""

    owner: str
    key: str
    epoch: int
    """The new one: whatever has an older one."""
    why: str
    former: list[Closable]
    """Connections that had it, or may have had it."""


class KeyedTransactions(Protocol):
    """The transactions of the same coordinator."""

    @property
    def over(self) -> bool:
        """Its life has ended: nothing may be decided."""
        ...

    async def ready(self) -> None:
        """From now on something can be decided. StorageError; ProtocolError when its life has ended."""
        ...

    def issue_all(self) -> None:
        """Have everything that was begun or decided on its way to the store."""
        ...

    def abort_of(
        self, owner: str, key: str, why: str, before_epoch: int | None = None
    ) -> list[asyncio.Future[None]]:
        """Abort what is open under a key. Gives what to wait for."""
        ...

    def key_stored(self, written: asyncio.Future[int]) -> None:
        """A write is durable, or failed."""
        ...


class KeyRegistry:
    """From reading the log of keys until a log of the coordinator fails."""

    def __init__(
        self,
        book: KeyBook,
        journal: TransactionJournal,
        coordinators: int,
        transactions: KeyedTransactions,
        wall_clock_ms: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """`coordinators`: how many there are, to which the first key binds all."""
        self.book = book
        self.holders: Holders = {}
        """A life leaves them to the next one."""
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
        """Return whether a client that holds the key has a connection now."""
        return any(one.is_open for one in self.holders.get((owner, key), ()))

    @property
    def newest_write(self) -> asyncio.Future[int] | None:
        """When it is done, all are."""
        return self._journal.newest

    # Asked for.

    async def connect(
        self, owner: str, key: str, epoch: int, process: str, connection: Closable, client: str = ""
    ) -> int:
        """Give a connection the next epoch of a key; whoever had it is fenced, and its transaction aborted. Returns
        when that is done. ProtocolError for a stale epoch; StorageError."""
        await self._journal.ready()
        await self._transactions.ready()
        entries: list[KeyEntry] = []
        if self.book.coordinators is None:
            entries.append(self.book.raise_floor(self.book.floor, self._coordinators))
        try:
            granted = self.book.connect(owner, key, epoch, process, self._wall_clock_ms(), client)
        except ProtocolError:
            await self._settled()
            raise
        holders = self.holders.setdefault((owner, key), WeakKeyDictionary())
        former = [one for one in holders if one is not connection]
        holders[connection] = None
        written = self._issue(*entries, granted)
        why = f"{FENCED}: its key has a newer connection (epoch {granted.epoch})"
        await self._fenced(_Fence(owner, key, granted.epoch, why, former), written)
        return granted.epoch

    async def delete(self, owner: str, key: str) -> None:
        """Forget a key; its transaction is aborted and its connection closed. ProtocolError, StorageError."""
        await self._transactions.ready()
        deleted = self.book.delete(owner, key)
        former = list(self.holders.get((owner, key), ()))
        written = self._issue(deleted)
        await self._fenced(
            _Fence(owner, key, deleted.epoch, f"{FENCED}: its key was deleted", former), written
        )

    async def holder(self, asked: Holder) -> Holder:
        """What a connection may begin transactions as. ProtocolError when a newer one has the key; StorageError."""
        try:
            return self.book.holder(asked.owner, asked.key, asked.epoch)
        except ProtocolError:
            await self._settled()
            raise

    def begun(self, holder: Holder, least: int) -> asyncio.Future[int]:
        """Note the newest transaction of a key; done when the log has it."""
        return self._issue(self.book.begun(holder, least))

    async def raise_floor(self, epoch: int, coordinators: int) -> None:
        """Bind keys to so many coordinators from now on; none is granted this epoch or a lower one."""
        await self._journal.ready()
        await asyncio.shield(self._issue(self.book.raise_floor(epoch, coordinators)))

    async def _settled(self) -> None:
        """A refusal tells of a newer epoch, which may be on its way to the store (TX8). StorageError."""
        newest = self._journal.newest
        if newest is not None:
            await asyncio.shield(newest)

    # Fencing. Whoever asked may go away meanwhile: it is done all the same.

    async def _fenced(self, fence: _Fence, written: asyncio.Future[int]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._spawn(self._fence(fence, written, done))
        await asyncio.shield(done)

    async def _fence(self, fence: _Fence, written: asyncio.Future[int], done: asyncio.Future[None]) -> None:
        """TX8: once the epoch is durable, what was begun before it ends."""
        try:
            await asyncio.shield(written)
            self._close_former(fence)
            if not self._transactions.over:
                told = self._transactions.abort_of(fence.owner, fence.key, fence.why, fence.epoch)
                if told:
                    await asyncio.wait(told, timeout=FENCE_SECONDS)
        except StorageError as failure:
            done.set_exception(failure)
            done.exception()
        else:
            done.set_result(None)

    def _close_former(self, fence: _Fence) -> None:
        holders = self.holders.get((fence.owner, fence.key), WeakKeyDictionary())
        for connection in fence.former:
            connection.cut_off()
            holders.pop(connection, None)
        if not holders:
            self.holders.pop((fence.owner, fence.key), None)

    # The log.

    def _issue(self, *entries: KeyEntry) -> asyncio.Future[int]:
        self._transactions.issue_all()  # what was begun or decided before is not behind it in time (INV-57)
        written = self._journal.append([encode_key_entry(entry) for entry in entries])
        written.add_done_callback(self._transactions.key_stored)
        if self._journal.unsummed > max(CHECKPOINT_ENTRIES, 16 * len(self.book.keys)):
            everything = [encode_key_entry(entry) for entry in self.book.everything()]
            self._journal.checkpoint(everything).add_done_callback(self._transactions.key_stored)
        return written
