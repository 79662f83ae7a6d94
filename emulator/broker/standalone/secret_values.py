"""Keys and credentials in the forms that Pulsar's settings and commands accept.

A value is a path, a URL `file:///path` or `data:;base64,…`, or base64. Errors do not contain it: it may be the secret.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

RULE: Final = "must be a path, file:///path, data:;base64,… or base64"


def as_file(value: str, copy: Path) -> Path:
    """Return the file that a value names; content in the value itself is written to `copy`, which only its owner can
    read. Raises ValueError, or OSError."""
    content = _content(value)
    if content is None:
        return Path(_path(value))
    copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    copy.unlink(missing_ok=True)
    with open(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    return copy


def _path(value: str) -> str:
    """Return the path in a value that is a path or a URL of a file."""
    if not value.startswith("file:"):
        return value
    path = value.removeprefix("file:")
    if path.startswith("//"):
        host, _, rest = path[2:].partition("/")
        path = f"/{rest}" if host in ("", "localhost") else ""
    if not path.startswith("/"):
        raise ValueError("a file: URL must have the form file:///path")
    return unquote(path)


def _content(value: str) -> bytes | None:
    """Return the content in a value; None: it names a file."""
    if value.startswith("file:") or os.path.exists(value):  # unlike Path.exists, false for a long value
        return None
    if not value.startswith("data:"):
        return _decoded(value)
    kind, separator, data = value.removeprefix("data:").partition(",")
    if not separator:
        raise ValueError("a data: URL must have the form data:;base64,…")
    return _decoded(unquote(data)) if kind.endswith(";base64") else unquote_to_bytes(data)


def _decoded(text: str) -> bytes:
    """Return the bytes of base64, of the standard or the URL alphabet, with or without padding."""
    standard = "".join(text.split()).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{RULE}; there is no such file") from None
