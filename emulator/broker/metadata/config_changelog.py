"""Records which configuration changes a region received, and when, in `regions/<name>/metadata.jsonl`.

Each line is a JSON object: `at_ms` (the region's clock), `region`, `revision`, `path`, `version` and `value` (text;
null: the path was deleted; `sha256:…` for a schema, which may be large). A verdict about replication uses the changes
that were *delivered* to the region, not the content of the store (M3). Each start writes all current values again, with
the revisions at which they were set. A line with `away` instead of `revision`, `path`, `version` and `value` records
why the store became unavailable; null: it is available again.
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
    """Writes one region's changelog, a line when a change is delivered."""

    def __init__(self, write: Callable[[str], None], region: str, environment: Environment) -> None:
        """`write` appends a line, which is passed without a newline, and must not lose it."""
        self._write_line = write
        self._region = region
        self._environment = environment

    def follow(self, metadata: Metadata) -> None:
        """Write all current values, then each later change. No change is missed or written twice."""
        for change in sorted(metadata.list(""), key=lambda change: change.revision):
            self._write(change)
        metadata.watch("", self._write)
        metadata.watch_availability(
            lambda failure: self._record(away=None if failure is None else str(failure))
        )

    def _write(self, change: Change) -> None:
        self._record(
            revision=change.revision,
            path=change.path,
            version=change.version,
            value=None if change.value is None else _value(change.path, change.value),
        )

    def _record(self, **fields: Any) -> None:
        line = {"at_ms": self._environment.wall_clock_ms(), "region": self._region, **fields}
        self._write_line(json.dumps(line, separators=(",", ":")))


def _value(path: str, value: bytes) -> str:
    return f"sha256:{sha256(value).hexdigest()}" if path.startswith(SchemaPath.prefix()) else value.decode()
