"""Whole numbers in paths."""

from __future__ import annotations

from emulator.broker.admin.http import HttpError


def whole_number(text: str, what: str) -> int:
    """HttpError 400 for what is none, or would not fit into 64 bits."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and -(2**63) <= int(text) < 2**63):
        raise HttpError(400, f"{what}: {text[:100]!r} is not a whole number")
    return int(text)
