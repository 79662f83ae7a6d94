"""Transaction keys: which connection may use a key, by epochs that only grow (docs/decisions/0026).

A client sends the epoch of its last connection, -1 at first. It is compared, signed, with the key's current epoch C:

    -1            accepted, and fences the current holder of the key
    C             accepted: the holder reconnects
    below C       rejected; unless C was granted to the same process, which did not receive the response
    above C       rejected: it was never granted

If the same process was granted a higher epoch than it sends, that epoch is compared instead. So a process that repeats
-1 because the first response was lost does not fence another client that was granted the key in the meantime.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from emulator.core.transactions.journal_format import (
    BegunUnderKey,
    Deleted,
    Floor,
    Granted,
    Holder,
    KeyEntry,
    KeysCheckpoint,
    name_bytes,
)
from emulator.errors import EXPIRED_TRANSACTION, ProtocolError, ServerError

NO_EPOCH: Final = -1
"""Epoch that a client sends before it has been granted one."""
PROCESS_BYTES_MAX: Final = 66
"""Maximum stored size of the id of a process, quoted."""
CLIENT_CHARACTERS_MAX: Final = 96
"""Maximum length of a client's version in `client_text`, and of its address."""
CLIENT_BYTES_MAX: Final = 4 * (2 * CLIENT_CHARACTERS_MAX + 8)
"""Maximum stored size of a `client_text`, quoted."""
PROCESSES_MAX: Final = 8
"""Maximum number of processes remembered per key."""
DELETED_MAX: Final = 1_000
"""Maximum number of deleted keys remembered individually; of all others only the highest epoch is kept."""
KEYS_BYTES_MAX: Final = 40 * 1024 * 1024
"""Maximum size of all existing keys in a checkpoint. A checkpoint, with the deleted keys, is one append, whose maximum
is 64 MiB: a larger one would fail for ever."""
ENTRY_BYTES: Final = 96
"""Maximum stored size of an entry besides its names."""


@dataclass(slots=True)
class KeyState:
    """One key that exists."""

    owner: str
    key: str
    epoch: int
    """Current epoch. INV-55: it only grows, over deletion and restarts."""
    since_ms: int
    """Time at which the epoch was granted, by the region's wall clock."""
    created_ms: int
    first_epoch: int
    """Epoch granted at creation: a key that is created again after a deletion continues its epochs (INV-55)."""
    least: int | None = None
    """Number of the newest transaction begun under the key. None: there was none."""
    client: str = ""
    """The client to which the epoch was granted, as `client_text`. For information only: it does not identify a key."""
    processes: OrderedDict[str, int] = field(default_factory=OrderedDict)
    """Process -> newest epoch granted to it, oldest first, also before a deletion of the key; the newest
    `PROCESSES_MAX`."""


class Tombstone(NamedTuple):
    """The remembered state of a deleted key."""

    epoch: int
    """The key's last epoch, which was never granted."""
    processes: OrderedDict[str, int]
    """Processes as in `KeyState`, so that a late repetition of an old connect does not fence the current holder."""


class KeyBook:
    """All keys of one coordinator."""

    def __init__(self, number: int, keys_max: int) -> None:
        self.number = number
        self._keys_max = keys_max
        self.keys: dict[tuple[str, str], KeyState] = {}
        self.deleted: OrderedDict[tuple[str, str], Tombstone] = OrderedDict()
        """(owner, key) -> tombstone."""
        self._keys_bytes = 0
        self.floor = NO_EPOCH
        """Epoch above which keys begin that are not in `keys`; one in `deleted` also begins above its last epoch."""
        self.coordinators: int | None = None
        """Number of coordinators among which keys are distributed; None: no key was granted yet."""

    def last_epoch(self, owner: str, key: str) -> int:
        """Return the newest epoch of a key; for an unknown or deleted one, at least the floor."""
        state = self.keys.get((owner, key))
        if state is not None:
            return state.epoch
        deleted = self.deleted.get((owner, key))
        return self.floor if deleted is None else max(self.floor, deleted.epoch)

    def highest_epoch(self) -> int:
        """Return the highest epoch of any key, also a deleted one."""
        known: list[KeyState | Tombstone] = [*self.keys.values(), *self.deleted.values()]
        return max(self.floor, NO_EPOCH, *(one.epoch for one in known))

    def connect(
        self, owner: str, key: str, epoch: int, process: str, at_ms: int, client: str = ""
    ) -> Granted:
        """Accept a connection and grant it the next epoch. Raises ProtocolError(NotAllowedError) for an epoch that is
        stale or was never granted, or too many keys."""
        if (owner, key) not in self.keys:
            self._check_limits(owner, key)
        current = self.last_epoch(owner, key)
        claimed = self._effective_epoch((owner, key), epoch, process)
        if claimed not in (NO_EPOCH, current):
            raise ProtocolError(ServerError.NotAllowedError, _rejection(key, claimed, current))
        granted = Granted(owner, key, current + 1, process, at_ms, client)
        self.apply(granted)
        return granted

    def _check_limits(self, owner: str, key: str) -> None:
        """Raise ProtocolError when one more key exceeds the limit of their number or size."""
        limit = ""
        if len(self.keys) >= self._keys_max:
            limit = f"{len(self.keys)} transaction keys"
        elif self._keys_bytes + _log_bytes(owner, key) > KEYS_BYTES_MAX:
            limit = f"{len(self.keys)} transaction keys, which need {self._keys_bytes} bytes"
        if limit:
            sentence = f"coordinator {self.number} has {limit}, the limit"
            raise ProtocolError(ServerError.NotAllowedError, sentence)

    def _effective_epoch(self, owner_and_key: tuple[str, str], epoch: int, process: str) -> int:
        """Return the epoch that is compared: the one that the process sent, or a higher one that it was granted."""
        known = self.keys.get(owner_and_key) or self.deleted.get(owner_and_key)
        if epoch < NO_EPOCH or known is None or not process:
            return epoch
        return max(epoch, known.processes.get(process, NO_EPOCH))

    def holder(self, owner: str, key: str, epoch: int) -> Holder:
        """Return the holder under which a connection may begin transactions. Raises ProtocolError when a newer
        connection has the key, or the key was deleted."""
        state = self.keys.get((owner, key))
        if state is None or state.epoch != epoch:
            reason = "was deleted" if state is None else f"has a newer connection (epoch {state.epoch})"
            sentence = (
                f"{EXPIRED_TRANSACTION}: transaction key {key!r} {reason}; this connection has epoch {epoch}"
            )
            raise ProtocolError(ServerError.NotAllowedError, sentence)
        return Holder(owner, key, epoch)

    def is_current(self, holder: Holder) -> bool:
        state = self.keys.get((holder.owner, holder.key))
        return state is not None and state.epoch == holder.epoch

    def record_begun(self, holder: Holder, least: int) -> BegunUnderKey:
        """Record the newest transaction of a key."""
        entry = BegunUnderKey(holder.owner, holder.key, least)
        self.apply(entry)
        return entry

    def delete(self, owner: str, key: str) -> Deleted:
        """Delete a key except its epoch, which grows: its holder is fenced. Raises ProtocolError when the key does not
        exist."""
        state = self.keys.get((owner, key))
        if state is None:
            raise ProtocolError(ServerError.NotAllowedError, f"there is no transaction key {key!r}")
        entry = Deleted(owner, key, state.epoch + 1)
        self.apply(entry)
        return entry

    def raise_floor(self, epoch: int, coordinators: int) -> Floor:
        """Raise the floor and set the number of coordinators. Keys that do not exist here begin above the floor."""
        entry = Floor(epoch, coordinators)
        self.apply(entry)
        return entry

    # The log.

    def apply(self, entry: KeyEntry) -> None:
        """Apply an entry to the state."""
        match entry:
            case Granted():
                self._apply_granted(entry)
            case BegunUnderKey():
                if (state := self.keys.get((entry.owner, entry.key))) is not None:
                    state.least = entry.least
            case Deleted():
                self._apply_deleted(entry)
            case Floor():
                self.floor = max(self.floor, entry.epoch)
                self.coordinators = entry.coordinators
            case KeysCheckpoint():
                self.keys.clear()
                self.deleted.clear()
                self.floor = NO_EPOCH
                self._keys_bytes = 0

    def _apply_granted(self, entry: Granted) -> None:
        owner_and_key = (entry.owner, entry.key)
        state = self.keys.get(owner_and_key)
        if state is None:
            state = KeyState(entry.owner, entry.key, entry.epoch, entry.at_ms, entry.at_ms, entry.epoch)
            self.keys[owner_and_key] = state
            self._keys_bytes += _log_bytes(*owner_and_key)
            if (deleted := self.deleted.pop(owner_and_key, None)) is not None:
                state.processes = deleted.processes
        state.epoch, state.since_ms, state.client = entry.epoch, entry.at_ms, entry.client
        if entry.process:
            state.processes[entry.process] = entry.epoch
            state.processes.move_to_end(entry.process)
            while len(state.processes) > PROCESSES_MAX:
                state.processes.popitem(last=False)

    def _apply_deleted(self, entry: Deleted) -> None:
        owner_and_key = (entry.owner, entry.key)
        state = self.keys.pop(owner_and_key, None)
        if state is not None:
            self._keys_bytes -= _log_bytes(*owner_and_key)
        self.deleted[owner_and_key] = Tombstone(
            entry.epoch, OrderedDict() if state is None else state.processes
        )
        while len(self.deleted) > DELETED_MAX:
            self.floor = max(self.floor, self.deleted.popitem(last=False)[1].epoch)

    def checkpoint_entries(self) -> Iterator[KeyEntry]:
        """Yield a checkpoint: the entries from which `apply` builds this state."""
        yield KeysCheckpoint()
        yield Floor(self.floor, self.coordinators or 1)
        for (owner, key), tombstone in self.deleted.items():
            yield from _tombstone_entries(owner, key, tombstone)
        for state in self.keys.values():
            yield from self._checkpoint_entries_of(state)

    def _checkpoint_entries_of(self, state: KeyState) -> Iterator[KeyEntry]:
        """Yield a key's epochs in the order in which they were granted, beginning with those from before a deletion."""
        former = OrderedDict(
            (who, epoch) for who, epoch in state.processes.items() if epoch < state.first_epoch
        )
        if former:
            yield from _tombstone_entries(state.owner, state.key, Tombstone(state.first_epoch - 1, former))
        yield Granted(state.owner, state.key, state.first_epoch, "", state.created_ms)
        for process, epoch in state.processes.items():
            if process not in former:
                yield Granted(state.owner, state.key, epoch, process, state.created_ms)
        current = next(reversed(state.processes), "")
        if state.processes.get(current) != state.epoch:
            current = ""
        yield Granted(state.owner, state.key, state.epoch, current, state.since_ms, state.client)
        if state.least is not None:
            yield BegunUnderKey(state.owner, state.key, state.least)


def _tombstone_entries(owner: str, key: str, tombstone: Tombstone) -> Iterator[KeyEntry]:
    for process, epoch in tombstone.processes.items():
        yield Granted(owner, key, epoch, process, 0)
    yield Deleted(owner, key, tombstone.epoch)


def _log_bytes(owner: str, key: str) -> int:
    """Return the maximum size of a key in a checkpoint: an entry for each process and four others."""
    names = name_bytes(owner) + name_bytes(key) + ENTRY_BYTES
    return (PROCESSES_MAX + 4) * names + PROCESSES_MAX * PROCESS_BYTES_MAX + CLIENT_BYTES_MAX


def client_text(version: str, address: str) -> str:
    """Return a client's version and address as `KeyState.client`: printable and bounded, whatever the client sent."""
    return f"{_printable(version) or 'unknown client'} at {_printable(address)}"


def _printable(text: str) -> str:
    return "".join(one for one in text[:CLIENT_CHARACTERS_MAX] if one.isprintable())


def _rejection(key: str, claimed: int, current: int) -> str:
    if claimed > current:
        return (
            f"transaction key {key!r}: epoch {claimed} was never granted here; connect with {NO_EPOCH} first"
        )
    return f"transaction key {key!r}: epoch {claimed} is stale, the newest connection has epoch {current}"
