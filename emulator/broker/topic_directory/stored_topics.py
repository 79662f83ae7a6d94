"""The topics in a region's store: the kinds of its logs, and the topics that users deleted here.

Other regions may still have a topic that was deleted here (docs/components/life.md, L6). A replicator that opens a
producer for it would create it again unnoticed. The producer is rejected, with the reason, until the topic is created
here again or deleted there, too. Deletions of inactive topics by policy are not recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import Enum
from typing import Final

from emulator.model.stored_keys import DeletedKey, parse_key
from emulator.model.values import TopicName
from emulator.storage.contract import Store

logger = logging.getLogger(__name__)

REMEMBERED_MAX: Final = 10_000
"""Maximum number of recorded deletions; a further one replaces the oldest."""


class LogKind(Enum):
    """The purpose of a log; the value is the prefix of its name."""

    MESSAGES = "persistent"
    COMPACTED_VIEW = "compacted"
    """The newest message of each key of a topic, written by compaction. No client publishes to it."""
    INTERNAL = "internal"
    """A log of the region itself, which no client can access."""


def kind_of(log_name: str) -> LogKind | None:
    """Return the kind of a log by its name; None for a name that is not one of a region's logs."""
    domain, separator, rest = log_name.partition("://")
    if not separator or domain not in {kind.value for kind in LogKind}:
        return None
    try:
        TopicName.parse(f"persistent://{rest}")
    except ValueError:
        return None
    return LogKind(domain)


def log_unreachable(store: Store, namespaces: Iterable[str]) -> None:
    """Warn of logs with an invalid name and of topics without a namespace; they do not prevent the start (D5)."""
    known = tuple(f"{LogKind.MESSAGES.value}://{namespace}/" for namespace in namespaces)
    unreachable = []
    for name in store.log_names():
        if name.startswith(known):
            continue
        kind = kind_of(name)
        if kind is None:
            unreachable.append(f"{name!r} is not a topic name")
        elif kind is LogKind.MESSAGES:
            unreachable.append(f"the namespace of {name} was deleted")
    if unreachable:
        logger.warning(
            "the store has %d logs of unknown or invalid topic names, which are not changed: %s",
            len(unreachable),
            "; ".join(unreachable),
        )


class Deletions:
    """The topics that users deleted in one region, recorded in its own store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: set[str] | None = None
        """Full names of all recorded topics, and of some that are not recorded any more; None until the first use.
        Nearly all topics are in no record, and each opening asks twice."""

    def __contains__(self, name: str) -> bool:
        names = self._recorded() if self._names is None else self._names
        return name in names and self._store.get(DeletedKey.text_of(name)) is not None

    def _recorded(self) -> set[str]:
        if self._names is None:
            keys = [parse_key(text) for text, _ in self._store.scan(DeletedKey.prefix())]
            self._names = {key.name for key in keys if isinstance(key, DeletedKey)}
        return self._names

    async def remember(self, name: str, now_ms: int) -> None:
        """Record a deletion durably, before anything of the topic is removed. StorageError."""
        rows = self._store.scan(DeletedKey.prefix())
        if len(rows) >= REMEMBERED_MAX:
            oldest, _ = min(rows, key=lambda row: row[1].value)
            await self._store.delete(oldest)
            if isinstance(key := parse_key(oldest), DeletedKey):
                self._recorded().discard(key.name)
        self._recorded().add(name)
        text = DeletedKey(name).text
        self._store.get(text)  # after a failed put the store rejects the key until it is read (S5)
        await self._store.put(text, f"{now_ms:020d}".encode())

    async def forget(self, name: str) -> None:
        """Remove the record of a deletion, because the name is used here again. StorageError."""
        if name in self:
            await self._store.delete(DeletedKey(name).text)
            self._recorded().discard(name)
