"""Lists the topics of a namespace for clients, and notifies watchers of changes (docs/components/topic-directory.md).

All watchers of one namespace and pattern share one listing. The directory is read once, REFRESH_SECONDS after the first
change of a topic's load state, so that changes at the same time are one update. A topic that was deleted and created
again in between is reported as both, because its watchers have to subscribe again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from emulator.broker.topic_directory.loaded_topic import LoadState, LoadStateChange
from emulator.core.topic_patterns import TopicPattern
from emulator.model.values import TopicName

REFRESH_SECONDS: Final = 0.02
HIDDEN_PREFIX: Final = "__"
"""Prefix of the brokers' internal topics."""


class TopicNames(Protocol):
    """The topic directory, as the listings see it."""

    def names(self, namespace: str) -> list[str]: ...

    def non_persistent_names(self, namespace: str) -> list[str]: ...

    def exists(self, name: str) -> bool: ...

    def observe(self, observer: Callable[[LoadStateChange], None]) -> None: ...


class Watcher(Protocol):
    """The receiver of a listing's changes."""

    def changed(self, listing: Listing) -> None:
        """Handle a change of the names in the listing."""
        ...


class Listing:
    """The topics of a namespace that match a pattern, while they are watched."""

    def __init__(self, namespace: str, pattern: TopicPattern) -> None:
        self.namespace = namespace
        self._matches = pattern.fits
        self.names: frozenset[str] = frozenset()
        self.watchers: dict[Watcher, None] = {}

    def update(self, added: Iterable[str], removed: Iterable[str]) -> None:
        names = self.names.difference(removed).union(filter(self._matches, added))
        if names != self.names:
            self.names = names
            for watcher in list(self.watchers):
                watcher.changed(self)


class TopicLists:
    """The listings of one region, and the topic lists of its namespaces."""

    def __init__(self, directory: TopicNames) -> None:
        self._directory = directory
        self._listed_names: dict[str, frozenset[str]] = {}
        """Full names of the listed topics when the directory was last read, by watched namespace."""
        self._listings: dict[tuple[str, str], Listing] = {}
        """Watched listings, by namespace and text of the pattern."""
        self._deleted: set[str] = set()
        """Full names of topics deleted since the last update; they may exist again."""
        self._timer: asyncio.TimerHandle | None = None
        directory.observe(self._load_state_changed)

    def names(self, namespace: str) -> list[str]:
        """Return the full names of a namespace's persistent topics, sorted, without internal ones. Of a partitioned
        topic, the partitions are listed."""
        return [name for name in self._directory.names(namespace) if not _is_hidden(name)]

    def non_persistent_names(self, namespace: str) -> list[str]:
        """Return the full names of a namespace's non-persistent topics, sorted, without internal ones. As upstream,
        watchers are not notified of them."""
        return [name for name in self._directory.non_persistent_names(namespace) if not _is_hidden(name)]

    def watch(self, namespace: str, pattern: str, watcher: Watcher) -> Listing:
        """Return the present listing, and notify the watcher of later changes. ValueError for an invalid pattern."""
        key = (namespace, pattern)
        listing = self._listings.get(key)
        if listing is None:
            listing = Listing(namespace, TopicPattern(pattern))
            self._refresh(namespace)
            if namespace not in self._listed_names:
                self._listed_names[namespace] = frozenset(self.names(namespace))
            listing.update(self._listed_names[namespace], ())
            self._listings[key] = listing
        else:
            self._refresh(namespace)
        listing.watchers[watcher] = None
        return listing

    def leave(self, listing: Listing, watcher: Watcher) -> None:
        """Stop notifying the watcher."""
        listing.watchers.pop(watcher, None)
        if listing.watchers:
            return
        self._listings = {key: one for key, one in self._listings.items() if one is not listing}
        if all(one.namespace != listing.namespace for one in self._listings.values()):
            self._listed_names.pop(listing.namespace, None)

    def _load_state_changed(self, change: LoadStateChange) -> None:
        if not self._listed_names or _namespace_of(change.name) not in self._listed_names:
            return
        if change.after is LoadState.ABSENT and not self._directory.exists(change.name):
            self._deleted.add(change.name)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REFRESH_SECONDS, self._refresh_all)

    def _refresh_all(self) -> None:
        self._timer = None
        for namespace in list(self._listed_names):
            self._refresh(namespace)
        self._deleted.clear()

    def _refresh(self, namespace: str) -> None:
        before = self._listed_names.get(namespace)
        if before is None:
            return
        now = frozenset(self.names(namespace))
        self._listed_names[namespace] = now
        deleted = self._deleted & before
        self._deleted -= deleted
        if now != before or deleted:
            listings = [one for one in self._listings.values() if one.namespace == namespace]
            for listing in listings:
                listing.update((), before - now | deleted)
                listing.update(now - before | (deleted & now), ())


def _namespace_of(full_name: str) -> str:
    return TopicName.parse(full_name).full_namespace


def _is_hidden(full_name: str) -> bool:
    return full_name.rpartition("/")[2].startswith(HIDDEN_PREFIX)
