"""What a coordinator's log of keys says, an entry a line of JSON (docs/components/transactions.md).

["granted", owner, key, epoch, process, at ms, client]
                                                  a connect was accepted; without `client` in logs of older versions
["begun", owner, key, least]                      the newest transaction of a key
["deleted", owner, key, epoch]
["floor", epoch, coordinators]                    no key begins at this epoch or below; keys are bound to so many
["checkpoint"]                                    what follows tells everything: forget what was read before
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Granted:
    owner: str
    key: str
    epoch: int
    process: str
    """What the client's process calls itself; empty when it does not say."""
    at_ms: int
    """By the region's wall clock: for people."""
    client: str = ""
    """Version and address of the client, as `client_text` writes them. For information only: no rule depends on it."""


@dataclass(frozen=True, slots=True)
class Begun:
    owner: str
    key: str
    least: int


@dataclass(frozen=True, slots=True)
class Deleted:
    owner: str
    key: str
    epoch: int
    """The key's last one. It is never granted again."""


@dataclass(frozen=True, slots=True)
class Floor:
    epoch: int
    coordinators: int


@dataclass(frozen=True, slots=True)
class KeysCheckpoint:
    pass


KeyEntry = Granted | Begun | Deleted | Floor | KeysCheckpoint


def encode(entry: KeyEntry) -> bytes:
    """As it stands in the log."""
    return json.dumps(_listed(entry), ensure_ascii=False, separators=(",", ":")).encode()


def _listed(entry: KeyEntry) -> list[Any]:
    match entry:
        case Granted():
            client = [entry.client] if entry.client else []
            return ["granted", entry.owner, entry.key, entry.epoch, entry.process, entry.at_ms, *client]
        case Begun():
            return ["begun", entry.owner, entry.key, entry.least]
        case Deleted():
            return ["deleted", entry.owner, entry.key, entry.epoch]
        case Floor():
            return ["floor", entry.epoch, entry.coordinators]
        case KeysCheckpoint():
            return ["checkpoint"]


def decode(data: bytes) -> KeyEntry:
    """Inverse of `encode`. ValueError for anything else."""
    try:
        what, *rest = json.loads(data)
        return _read(what, rest)
    except (ValueError, TypeError) as problem:
        raise ValueError(f"{data[:80]!r} is not an entry of a log of transaction keys ({problem})") from None


def _read(what: str, rest: list[Any]) -> KeyEntry:
    match what, rest:
        case "granted", [str(owner), str(key), int(epoch), str(process), int(at_ms)]:
            return Granted(owner, key, epoch, process, at_ms)
        case "granted", [str(owner), str(key), int(epoch), str(process), int(at_ms), str(client)]:
            return Granted(owner, key, epoch, process, at_ms, client)
        case "begun", [str(owner), str(key), int(least)]:
            return Begun(owner, key, least)
        case "deleted", [str(owner), str(key), int(epoch)]:
            return Deleted(owner, key, epoch)
        case "floor", [int(epoch), int(coordinators)]:
            return Floor(epoch, coordinators)
        case "checkpoint", []:
            return KeysCheckpoint()
    raise ValueError(f"{what!r} with unexpected values")
