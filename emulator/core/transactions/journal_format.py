"""Formats of a coordinator's two logs, in which each entry is a JSON array (docs/components/transactions.md).

The transaction log:

    ["began", least, timeout ms, opened at ms, [owner, key, epoch] | null, owner]
                                        the last value is absent if there is none, or a key has it
    ["partitions", least, [topic …]]
    ["subscriptions", least, [[topic, subscription] …]]
    ["decided", least, status, why]
    ["ended", least, status, why]       in a checkpoint also [owner, key, epoch], if it began under a key
    ["checkpoint", next least]          the full state follows: discard what was read before

The log of transaction keys:

    ["granted", owner, key, epoch, process, at ms, client]
                                        a connection was accepted; `client` is absent if it is not known
    ["begun", owner, key, least]        the newest transaction of a key
    ["deleted", owner, key, epoch]
    ["floor", epoch, coordinators]      no key starts at this epoch or below; `coordinators`: their number
    ["checkpoint"]                      the full state follows: discard what was read before

The store guards each entry with a checksum, so an entry that cannot be decoded was written by another program.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from emulator.model.transaction_names import TransactionStatus


class Holder(NamedTuple):
    """The owner, key and epoch under which a transaction began."""

    owner: str
    """Role of the client; empty: it has none."""
    key: str
    epoch: int
    """Epoch that was granted to the client's connection."""


# Named tuples are created in half the time of frozen dataclasses.


class Began(NamedTuple):
    least: int
    timeout_ms: int
    opened_at_ms: int
    """Wall-clock time of the region, for information only."""
    holder: Holder | None
    owner: str = ""
    """Role of the client that began it; empty: it has none."""


class PartitionsAdded(NamedTuple):
    least: int
    topics: tuple[str, ...]
    """Full names of the topics."""


class SubscriptionsAdded(NamedTuple):
    least: int
    subscriptions: tuple[tuple[str, str], ...]
    """(full name of the topic, name of the subscription)."""


class Decided(NamedTuple):
    least: int
    status: TransactionStatus
    """COMMITTING or ABORTING."""
    why: str


class TransactionEnded(NamedTuple):
    """Every participant has the outcome. In a checkpoint: a remembered outcome."""

    least: int
    status: TransactionStatus
    """COMMITTED or ABORTED."""
    why: str
    holder: Holder | None = None
    """In a checkpoint: the key under which the transaction began. Elsewhere None: the log contains its `Began`."""


class Checkpoint(NamedTuple):
    next_least: int


JournalEntry = Began | PartitionsAdded | SubscriptionsAdded | Decided | TransactionEnded | Checkpoint


def encode(entry: JournalEntry) -> bytes:
    """Return the stored form of an entry."""
    return _TEXTS[type(entry)](entry).encode()


_quote: Final = json.JSONEncoder(ensure_ascii=False).encode
_quote_short: Final = lru_cache(maxsize=512)(_quote)
_SHORT_LENGTH_MAX: Final = 256
"""Maximum length of cached texts. Clients choose names: long ones would stay in memory."""
_listed: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _quoted(text: str) -> str:
    """Return a JSON string. Names of topics and reasons repeat."""
    return _quote_short(text) if len(text) <= _SHORT_LENGTH_MAX else _quote(text)


def name_bytes(name: str) -> int:
    """Return the stored size of a name with its quotation marks: up to six bytes per character."""
    return len(_quoted(name).encode())


# The JSON texts are formatted by hand: every transaction has four entries, and an encoder is three times slower.


def _began_text(entry: Began) -> str:
    holder = "null" if entry.holder is None else _listed(entry.holder)
    owner = f",{_quoted(entry.owner)}" if entry.owner and entry.holder is None else ""
    return f'["began",{entry.least},{entry.timeout_ms},{entry.opened_at_ms},{holder}{owner}]'


def _partitions_text(entry: PartitionsAdded) -> str:
    return f'["partitions",{entry.least},[{",".join(map(_quoted, entry.topics))}]]'


def _subscriptions_text(entry: SubscriptionsAdded) -> str:
    return f'["subscriptions",{entry.least},{_listed(entry.subscriptions)}]'


def _decided_text(entry: Decided) -> str:
    return f'["decided",{entry.least},"{entry.status._name_}",{_quoted(entry.why)}]'


def _ended_text(entry: TransactionEnded) -> str:
    holder = "" if entry.holder is None else f",{_listed(entry.holder)}"
    return f'["ended",{entry.least},"{entry.status._name_}",{_quoted(entry.why)}{holder}]'


def _checkpoint_text(entry: Checkpoint) -> str:
    return f'["checkpoint",{entry.next_least}]'


_TEXTS: Final[dict[type[JournalEntry], Callable[[Any], str]]] = {
    Began: _began_text,
    PartitionsAdded: _partitions_text,
    SubscriptionsAdded: _subscriptions_text,
    Decided: _decided_text,
    TransactionEnded: _ended_text,
    Checkpoint: _checkpoint_text,
}
"""Type of an entry -> its JSON text."""


def decode(data: bytes) -> JournalEntry:
    """Decode the result of `encode`. Raises ValueError for an unknown kind of entry or a wrong number of values."""
    try:
        what, *rest = json.loads(data)
        return _read(what, rest)
    except (ValueError, TypeError, KeyError) as problem:
        raise ValueError(f"{data[:80]!r} is not an entry of a transaction log ({problem})") from None


def _read(what: str, rest: list[Any]) -> JournalEntry:
    match what, rest:
        case "began", [least, timeout_ms, opened_at_ms, holder]:
            owned = None if holder is None else Holder(*holder)
            return Began(least, timeout_ms, opened_at_ms, owned, "" if owned is None else owned.owner)
        case "began", [least, timeout_ms, opened_at_ms, None, str(owner)]:
            return Began(least, timeout_ms, opened_at_ms, None, owner)
        case "partitions", [least, topics]:
            return PartitionsAdded(least, tuple(topics))
        case "subscriptions", [least, subscriptions]:
            return SubscriptionsAdded(least, tuple((topic, name) for topic, name in subscriptions))
        case "decided", [least, status, why]:
            return Decided(least, TransactionStatus[status], why)
        case "ended", [least, status, why]:
            return TransactionEnded(least, TransactionStatus[status], why)
        case "ended", [least, status, why, holder]:
            return TransactionEnded(least, TransactionStatus[status], why, Holder(*holder))
        case "checkpoint", [next_least]:
            return Checkpoint(next_least)
    raise ValueError(f"{what!r} with {len(rest)} values")


@dataclass(frozen=True, slots=True)
class Granted:
    owner: str
    key: str
    epoch: int
    process: str
    """Id that the client's process chose for itself; empty: it sent none."""
    at_ms: int
    """Wall-clock time of the region, for information only."""
    client: str = ""
    """Version and address of the client, as `client_text` writes them; empty: not known. For information only."""


@dataclass(frozen=True, slots=True)
class BegunUnderKey:
    owner: str
    key: str
    least: int


@dataclass(frozen=True, slots=True)
class Deleted:
    owner: str
    key: str
    epoch: int
    """The key's last epoch, which is never granted again."""


@dataclass(frozen=True, slots=True)
class Floor:
    epoch: int
    coordinators: int


@dataclass(frozen=True, slots=True)
class KeysCheckpoint:
    pass


KeyEntry = Granted | BegunUnderKey | Deleted | Floor | KeysCheckpoint


def encode_key_entry(entry: KeyEntry) -> bytes:
    """Return the stored form of an entry."""
    return json.dumps(_key_row(entry), ensure_ascii=False, separators=(",", ":")).encode()


def _key_row(entry: KeyEntry) -> list[Any]:
    match entry:
        case Granted():
            client = [entry.client] if entry.client else []
            return ["granted", entry.owner, entry.key, entry.epoch, entry.process, entry.at_ms, *client]
        case BegunUnderKey():
            return ["begun", entry.owner, entry.key, entry.least]
        case Deleted():
            return ["deleted", entry.owner, entry.key, entry.epoch]
        case Floor():
            return ["floor", entry.epoch, entry.coordinators]
        case KeysCheckpoint():
            return ["checkpoint"]


def decode_key_entry(data: bytes) -> KeyEntry:
    """Decode the result of `encode_key_entry`. Raises ValueError for anything else."""
    try:
        what, *rest = json.loads(data)
        return _read_key_entry(what, rest)
    except (ValueError, TypeError) as problem:
        raise ValueError(f"{data[:80]!r} is not an entry of a log of transaction keys ({problem})") from None


def _read_key_entry(what: str, rest: list[Any]) -> KeyEntry:
    match what, rest:
        case "granted", [str(owner), str(key), int(epoch), str(process), int(at_ms)]:
            return Granted(owner, key, epoch, process, at_ms)
        case "granted", [str(owner), str(key), int(epoch), str(process), int(at_ms), str(client)]:
            return Granted(owner, key, epoch, process, at_ms, client)
        case "begun", [str(owner), str(key), int(least)]:
            return BegunUnderKey(owner, key, least)
        case "deleted", [str(owner), str(key), int(epoch)]:
            return Deleted(owner, key, epoch)
        case "floor", [int(epoch), int(coordinators)]:
            return Floor(epoch, coordinators)
        case "checkpoint", []:
            return KeysCheckpoint()
    raise ValueError(f"{what!r} with unexpected values")
