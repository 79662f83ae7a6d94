"""A region's mirror of its configuration store: a copy in memory, with watches.

The mirror may lag behind the store, but after each call its state was once the store's, and it never returns to an
older one (M2, M4). It applies changes in the order of their revisions. `get` returns a change's value before any watch
receives the change, so a watch may call `get`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from emulator.model.values import Change

OnChange = Callable[[Change], None]


class Watch:
    """A registration for the changes of paths with a prefix, until it is cancelled."""

    def __init__(self, mirror: Mirror, prefix: str, on_change: OnChange) -> None:
        self._mirror = mirror
        self.prefix = prefix
        self.on_change = on_change

    def cancel(self) -> None:
        """End the watch. May be called twice."""
        self._mirror.watches.pop(self, None)


class Mirror:
    """Paths and their values, up to a revision."""

    def __init__(self) -> None:
        self.revision = 0
        """Revision up to which every change was applied and passed to the watches."""
        self.watches: dict[Watch, None] = {}
        self._values: dict[str, Change] = {}
        """Path -> the change that set its present value."""

    def get(self, path: str) -> Change | None:
        """Return the change that set the path's present value. None: the path has no value."""
        return self._values.get(path)

    def list(self, prefix: str) -> list[Change]:
        """Return the changes that set the present values of all paths with a prefix, sorted by path."""
        return [
            self._values[path] for path in sorted(path for path in self._values if path.startswith(prefix))
        ]

    def watch(self, prefix: str, on_change: OnChange) -> Watch:
        """Call `on_change` for each later change of paths with a prefix, in order. For the present values, the caller
        calls `list` in the same step of the event loop."""
        watch = Watch(self, prefix, on_change)
        self.watches[watch] = None
        return watch

    def apply(self, changes: Iterable[Change]) -> None:
        """Apply committed changes, in the order of their revisions. Changes up to `revision` have no effect."""
        for change in changes:
            if change.revision > self.revision:
                self.revision = change.revision
                self._apply(change)

    def replace(self, revision: int, live: Iterable[Change]) -> None:
        """Replace the contents by the store's state at a revision, because the store no longer has the changes up to
        it. Watches receive the differences. An older revision has no effect."""
        if revision < self.revision:
            return
        new = {change.path: change for change in live}
        deletions = [Change(revision, path, None, -1) for path in self._values if path not in new]
        changed = [change for path, change in new.items() if change != self._values.get(path)]
        for change in sorted(changed, key=lambda change: change.revision) + deletions:
            self.revision = max(self.revision, change.revision)
            self._apply(change)
        self.revision = revision

    def _apply(self, change: Change) -> None:
        if change.value is None:
            self._values.pop(change.path, None)
        else:
            self._values[change.path] = change
        for watch in list(self.watches):
            if change.path.startswith(watch.prefix) and watch in self.watches:
                watch.on_change(change)
