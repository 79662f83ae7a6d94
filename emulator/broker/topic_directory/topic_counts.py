"""Counts the topics of each namespace for the limits on their number, without listing them for each new topic.

Stored topics count, loaded non-persistent ones, topics that are being created, and partitions for which a request has
reserved room. A topic counts once, whatever the number of reasons. The names are read at the first check; a region
without limits does not hold them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

EXISTS: Final = 1
"""Stored, or non-persistent and loaded."""
CREATED: Final = 2
"""Being opened by a request that may create it."""
RESERVED: Final = 4


class TopicCounts:
    """The topics of one region that count, by namespace."""

    def __init__(self, existing: Callable[[], Iterable[str]]) -> None:
        """`existing`: returns the full names of the existing topics."""
        self._existing = existing
        self._creating: dict[str, None] = {}
        self.reserved: Counter[str] = Counter()
        """Full names of partitions that are being created, with the number of requests for each."""
        self._reasons: dict[str, dict[str, int]] | None = None
        """Namespace -> full name -> sum of the reasons for which the topic counts; None until the first check."""

    # Changes.

    def note_existence(self, name: str, *, exists: bool) -> None:
        """Record whether a topic of this full name exists now."""
        self._note(name, EXISTS, exists)

    def begin_creating(self, name: str) -> None:
        """Count a topic until `end_creating`."""
        self._creating[name] = None
        if self._reasons is not None:
            self._note(name, CREATED, True)

    def end_creating(self, name: str, *, exists: bool) -> None:
        """Record that the request which may have created a topic has ended, and whether the topic exists now."""
        del self._creating[name]
        if self._reasons is not None:
            self._note(name, EXISTS, exists)
            self._note(name, CREATED, False)

    @contextmanager
    def reserving(self, names: Collection[str]) -> Iterator[None]:
        """Count partitions until the block ends."""
        self.reserved.update(names)
        self._note_reserved(names)
        try:
            yield
        finally:
            self.reserved -= Counter(names)
            self._note_reserved(names)

    def _note_reserved(self, names: Collection[str]) -> None:
        for name in names:
            self._note(name, RESERVED, name in self.reserved)

    def _note(self, name: str, reason: int, applies: bool) -> None:
        if self._reasons is None:
            return
        namespace = _namespace_of(name)
        of_namespace = self._reasons.setdefault(namespace, {})
        before = of_namespace.get(name, 0)
        if after := before | reason if applies else before & ~reason:
            of_namespace[name] = after
        else:
            of_namespace.pop(name, None)
            if not of_namespace:
                del self._reasons[namespace]

    # Queries.

    def is_creating(self, name: str) -> bool:
        return name in self._creating

    def of_namespace(self, namespace: str) -> Collection[str]:
        """Return the full names of the topics of a namespace that count."""
        if self._reasons is None:
            self._reasons = {}
            for names, reason in (
                (self._existing(), EXISTS),
                (self._creating, CREATED),
                (self.reserved, RESERVED),
            ):
                for name in names:
                    self._note(name, reason, True)
        return self._reasons.get(namespace, {}).keys()

    def exceed(self, names: Collection[str], namespaces: Collection[str], topics_max: int) -> bool:
        """Whether a topic of `names`, which are in one of the namespaces, does not count yet, and all of them would be
        more than `topics_max` in these namespaces."""
        counted = [self.of_namespace(namespace) for namespace in namespaces]
        new = sum(not any(name in of_namespace for of_namespace in counted) for name in set(names))
        return new > 0 and sum(map(len, counted)) + new > topics_max


def _namespace_of(full_name: str) -> str:
    """Return `tenant/namespace`, also for a stored log whose name is no valid name of a topic."""
    return "/".join(full_name.partition("://")[2].split("/", 2)[:2])
