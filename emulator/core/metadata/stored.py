"""Rows that metadata sync keeps in the configuration store: read and written in one transaction of the store, and
decoded with one error for a row that cannot be read. Among them: which paths a cluster excludes, and which clusters are
declared lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from emulator.core.metadata.event import number
from emulator.errors import StorageDamaged
from emulator.model.values import Change

T = TypeVar("T")
UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)
"""What decoding raises for bytes that no region wrote."""


class StoreTransaction(Protocol):
    """A configuration store inside of one transaction."""

    def get(self, path: str) -> Change | None: ...

    def put(self, path: str, value: bytes | None) -> None: ...


def decoded(change: Change | None, decode: Callable[[bytes], T], absent: T) -> T:
    """The value of a row, or `absent` when there is none. StorageDamaged, with the path, when it cannot be read."""
    if change is None or change.value is None:
        return absent
    try:
        return decode(change.value)
    except UNREADABLE as problem:
        raise StorageDamaged(
            f"{change.path} of the configuration store is damaged: {type(problem).__name__}: {problem}"
        ) from None


EXCLUDED_MAX: Final = 1_000
EXCLUDED_CHARACTERS_MAX: Final = 4_096

Excluded = tuple[str, ...]
"""Beginnings of paths that a cluster does not synchronize (`metadata_sync_excluded_paths`), as a person writes them:
`namespace/acme/`. A path that one cluster excludes and another one shares never converges, although each cluster
reports to be up to date."""


def excluded_from_json(raw: Any) -> Excluded:
    """The gate. ValueError for what is not a list of paths."""
    if not isinstance(raw, list) or len(raw) > EXCLUDED_MAX:
        raise ValueError(f"excluded paths are a list of {EXCLUDED_MAX} at most")
    if any(not isinstance(one, str) or not 0 < len(one) <= EXCLUDED_CHARACTERS_MAX for one in raw):
        raise ValueError(f"an excluded path is a text of 1 to {EXCLUDED_CHARACTERS_MAX} characters")
    return tuple(raw)


def encode_excluded(excluded: Excluded) -> bytes:
    return json.dumps(excluded).encode()


def stored_excluded(change: Change | None) -> Excluded | None:
    """None: the cluster has not said. StorageDamaged."""
    return decoded(change, lambda value: excluded_from_json(json.loads(value)), None)


def not_covered(excluded: Iterable[str], by: Excluded) -> list[str]:
    """What is excluded, and not by the others, too."""
    return sorted({one for one in excluded if not one.startswith(by)})


BY_OPERATOR: Final = "operator"
BY_TOPOLOGY: Final = "topology"


@dataclass(frozen=True, slots=True)
class LossDeclaration:
    """What one cluster says of another one."""

    times: int = 0
    """How often it was declared lost."""
    by: str = ""
    """The cluster that declares it lost now; empty: none."""

    @property
    def is_lost(self) -> bool:
        return bool(self.by)

    def lost(self, by: str) -> LossDeclaration:
        return self if self.is_lost else LossDeclaration(self.times + 1, by)

    def back(self) -> LossDeclaration:
        return LossDeclaration(self.times)

    def encode(self) -> bytes:
        return json.dumps({"times": self.times, "by": self.by}).encode()

    @classmethod
    def decode(cls, change: Change | None) -> LossDeclaration:
        """StorageDamaged."""
        return decoded(change, cls._read, cls())

    @classmethod
    def _read(cls, value: bytes) -> LossDeclaration:
        raw = json.loads(value)
        if raw["by"] not in ("", BY_OPERATOR, BY_TOPOLOGY):
            raise ValueError(f"by {raw['by']!r} is neither {BY_OPERATOR} nor {BY_TOPOLOGY}")
        return cls(number(raw, "times"), raw["by"])
