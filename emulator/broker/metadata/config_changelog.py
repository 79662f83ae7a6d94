"""The changes of its cluster's configuration that a region received, and when: `regions/<name>/metadata.jsonl`.

One JSON object a line: `at_ms` (the region's clock), `region`, `revision`, `path`, `version` and `value` (text; null:
the path was deleted; `sha256:…` for a schema, which may be large and is no policy). A verdict about replication uses
the changes that were *delivered* here, not the content of the store (M3). Each start writes all current values again,
with the revisions at which they were set. A line with `away` in place of a change records that the store stopped
answering, and why; with null, that it answers again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from emulator.broker.environment import Environment
from emulator.broker.metadata.store import Metadata
from emulator.model.stored_keys import SchemaPath
from emulator.model.values import Change


class ConfigChangelog:
    """Writes one region's lines, each as the change is delivered."""

    def __init__(self, write: Callable[[str], None], region: str, environment: Environment) -> None:
        """`write`: takes a line without its newline, and loses none."""
        self._write_line = write
        self._region = region
        self._environment = environment

    def follow(self, metadata: Metadata) -> None:
        """Follow all changes from now on, in one step, so that none is missed or written twice."""
        for change in sorted(metadata.list(""), key=lambda change: change.revision):
            self._write(change)
        metadata.watch("", self._write)
        metadata.watch_away(lambda failure: self._record(away=None if failure is None else str(failure)))

    def _write(self, change: Change) -> None:
        self._record(
            revision=change.revision,
            path=change.path,
            version=change.version,
            value=None if change.value is None else _value(change.path, change.value),
        )

    def _record(self, **what: Any) -> None:
        line = {"at_ms": self._environment.wall_clock_ms(), "region": self._region, **what}
        self._write_line(json.dumps(line, separators=(",", ":")))


def _value(path: str, value: bytes) -> str:
    return f"sha256:{sha256(value).hexdigest()}" if path.startswith(SchemaPath.prefix()) else value.decode()
