"""Which topics of a namespace clients may find, and who is told when that changes (docs/components/topic-directory.md).

One listing for each namespace and pattern that is watched, however many watch it. After a topic came or went the
directory is looked at once, a moment later: many that come together are one update. One that went and came again
meanwhile went and came: its watchers have to subscribe anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from emulator.broker.topic_directory.loaded_topic import LoadState, LoadStateChange
from emulator.core.topic_patterns import TopicPattern
from emulator.model.values import TopicName

LOOK_SECONDS: Final = 0.02
HIDDEN_PREFIX: Final = "__"
"""Of topics that brokers keep for themselves."""


class TopicNames(Protocol):
    """The directory."""

    def names(self, namespace: str) -> list[str]: ...

    def non_persistent_names(self, namespace: str) -> list[str]: ...

    def exists(self, name: str) -> bool: ...

    def observe(self, observer: Callable[[LoadStateChange], None]) -> None: ...


class Watcher(Protocol):
    """Who watches."""

    def changed(self, listing: Listing) -> None:
        """There are other names now."""
        ...


class Listing:
    """The topics of a namespace that a pattern fits, for as long as somebody watches."""

    def __init__(self, namespace: str, pattern: TopicPattern) -> None:
        self.namespace = namespace
        self._fits = pattern.fits
        self.names: frozenset[str] = frozenset()
        self.watchers: dict[Watcher, None] = {}

    def update(self, new: Iterable[str], gone: Iterable[str]) -> None:
        names = self.names.difference(gone).union(filter(self._fits, new))
        if names != self.names:
            self.names = names
            for watcher in list(self.watchers):
                watcher.changed(self)


class TopicLists:
    """One a region."""

    def __init__(self, directory: TopicNames) -> None:
        self._directory = directory
        self._known: dict[str, frozenset[str]] = {}
        """By namespace that is watched."""
        self._listings: dict[tuple[str, str], Listing] = {}
        """By namespace and text of the pattern."""
        self._went: set[str] = set()
        """Since the last look; they may be there again."""
        self._looking: asyncio.TimerHandle | None = None
        directory.observe(self._moved)

    def names(self, namespace: str) -> list[str]:
        """Full names of those that keep their messages, sorted. Partitions, not what they are partitions of."""
        return [name for name in self._directory.names(namespace) if not _is_hidden(name)]

    def non_persistent_names(self, namespace: str) -> list[str]:
        """The same of those that keep nothing. Nobody is told when they come and go, as upstream."""
        return [name for name in self._directory.non_persistent_names(namespace) if not _is_hidden(name)]

    def watch(self, namespace: str, pattern: str, watcher: Watcher) -> Listing:
        """Tell the watcher from now on. ValueError for what is no pattern."""
        key = (namespace, pattern)
        listing = self._listings.get(key)
        if listing is None:
            listing = Listing(namespace, TopicPattern(pattern))
            self._look(namespace)
            if namespace not in self._known:
                self._known[namespace] = frozenset(self.names(namespace))
            listing.update(self._known[namespace], ())
            self._listings[key] = listing
        else:
            self._look(namespace)
        listing.watchers[watcher] = None
        return listing

    def leave(self, listing: Listing, watcher: Watcher) -> None:
        """Tell it no more."""
        listing.watchers.pop(watcher, None)
        if listing.watchers:
            return
        self._listings = {key: one for key, one in self._listings.items() if one is not listing}
        if all(one.namespace != listing.namespace for one in self._listings.values()):
            self._known.pop(listing.namespace, None)

    def _moved(self, moved: LoadStateChange) -> None:
        if not self._known or _namespace_of(moved.name) not in self._known:
            return
        if moved.after is LoadState.ABSENT and not self._directory.exists(moved.name):
            self._went.add(moved.name)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look_at_all)

    def _look_at_all(self) -> None:
        self._looking = None
        for namespace in list(self._known):
            self._look(namespace)
        self._went.clear()

    def _look(self, namespace: str) -> None:
        before = self._known.get(namespace)
        if before is None:
            return
        now = frozenset(self.names(namespace))
        self._known[namespace] = now
        went = self._went & before
        self._went -= went
        if now != before or went:
            listings = [one for one in self._listings.values() if one.namespace == namespace]
            for listing in listings:
                listing.update((), before - now | went)
                listing.update(now - before | (went & now), ())


def _namespace_of(full_name: str) -> str:
    return TopicName.parse(full_name).full_namespace


def _is_hidden(full_name: str) -> bool:
    return full_name.rpartition("/")[2].startswith(HIDDEN_PREFIX)
