"""Why a schema is refused."""

from __future__ import annotations


class BadSchema(ValueError):
    """It is no schema of its type, or larger than what is allowed."""


class Incompatible(ValueError):
    """It may not follow, or read, what there is."""
