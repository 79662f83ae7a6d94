"""Untrusted JSON: parsing with a bounded depth, and normalisation for comparison; the errors of rejected schemas."""

from __future__ import annotations

import json
import re
from typing import Any


class BadSchema(ValueError):
    """The data is not a schema of its type, or exceeds a limit."""


class Incompatible(ValueError):
    """The schema is incompatible with an existing version."""


DEPTH_MAX = 64
"""Maximum nesting depth of a schema. Each level takes several stack frames of the parser."""
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


def read_json(data: bytes) -> Any:
    """Parse JSON. Raises BadSchema for data that is not JSON, or is nested too deeply."""
    _check_depth(data)
    try:
        return json.loads(
            data.decode()
        )  # not the bytes: `loads` would accept UTF-16, whose brackets are not counted
    except (ValueError, RecursionError) as problem:
        raise BadSchema(f"not JSON: {problem}") from None


def _check_depth(data: bytes) -> None:
    depth = 0
    for token in _TOKENS.finditer(data):
        if token[0] in b"[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise BadSchema(f"nested deeper than {DEPTH_MAX} levels, at byte {token.start():,}")
        elif token[0] in b"]}":
            depth -= 1


def normalized(data: bytes) -> bytes:
    """Return the same bytes for schemas that differ only in spaces, the order of keys and documentation. Returns `data`
    itself when `read_json` rejects it."""
    try:
        return json.dumps(_without_doc(read_json(data)), sort_keys=True).encode()
    except BadSchema:
        return data


def _without_doc(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: one if key == "default" else _without_doc(one) for key, one in value.items() if key != "doc"
        }
    if isinstance(value, list):
        return [_without_doc(one) for one in value]
    return value
