"""Rows of metadata sync in the configuration store: decoding, excluded paths, declarations that a cluster is lost."""

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
"""Errors that decoding damaged bytes may raise."""


class StoreTransaction(Protocol):
    """A configuration store within one transaction."""

    def get(self, path: str) -> Change | None: ...

    def put(self, path: str, value: bytes | None) -> None: ...


def decoded(change: Change | None, decode: Callable[[bytes], T], absent: T) -> T:
    """Return the decoded value of a row, or `absent` when it has none. Raises StorageDamaged, naming the path, when it
    cannot be decoded."""
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
"""Prefixes of paths that a cluster does not synchronise (`metadata_sync_excluded_paths`), without escapes:
`namespace/acme/`. A path that only one of two clusters excludes never converges, although both report that they are up
to date."""


def excluded_from_json(raw: Any) -> Excluded:
    """Return a validated list of excluded paths. Raises ValueError for anything else."""
    if not isinstance(raw, list) or len(raw) > EXCLUDED_MAX:
        raise ValueError(f"excluded paths are a list of {EXCLUDED_MAX} at most")
    if any(not isinstance(one, str) or not 0 < len(one) <= EXCLUDED_CHARACTERS_MAX for one in raw):
        raise ValueError(f"an excluded path is a text of 1 to {EXCLUDED_CHARACTERS_MAX} characters")
    return tuple(raw)


def encode_excluded(excluded: Excluded) -> bytes:
    return json.dumps(excluded).encode()


def stored_excluded(change: Change | None) -> Excluded | None:
    """Return the excluded paths that a cluster reported; None: it has not reported any. Raises StorageDamaged."""
    return decoded(change, lambda value: excluded_from_json(json.loads(value)), None)


def not_covered(excluded: Iterable[str], by: Excluded) -> list[str]:
    """Return the prefixes in `excluded` that begin with no prefix of `by`, sorted."""
    return sorted({one for one in excluded if not one.startswith(by)})


BY_OPERATOR: Final = "operator"
BY_TOPOLOGY: Final = "topology"


@dataclass(frozen=True, slots=True)
class LossDeclaration:
    """Whether this cluster declares another cluster lost, and how often it did so."""

    times: int = 0
    """Number of times that the other cluster was declared lost."""
    by: str = ""
    """Source of the present declaration, BY_OPERATOR or BY_TOPOLOGY; empty: the cluster is not lost."""

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
        """Decode a stored declaration; an absent one means never lost. Raises StorageDamaged."""
        return decoded(change, cls._read, cls())

    @classmethod
    def _read(cls, value: bytes) -> LossDeclaration:
        raw = json.loads(value)
        if raw["by"] not in ("", BY_OPERATOR, BY_TOPOLOGY):
            raise ValueError(f"by {raw['by']!r} is neither {BY_OPERATOR} nor {BY_TOPOLOGY}")
        return cls(number(raw, "times"), raw["by"])
