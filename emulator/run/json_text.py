"""Parse the JSON of a run's files, whose texts must be valid Unicode.

JSON allows lone surrogates (`"\\ud800"`), and neither UTF-8 nor Arrow does. A file with one is damaged.
"""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON document. Raises ValueError if it is no JSON, has a lone surrogate or is nested too deeply."""
    try:
        value = json.loads(text)
        if _may_have_surrogates(text):
            require_unicode(value)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def require_unicode(value: Any) -> None:
    """Raise ValueError if a text in a parsed document has a lone surrogate."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as problem:
        found = ascii(problem.object[problem.start])
        raise ValueError(f"a text has the lone surrogate {found}, which UTF-8 cannot encode") from None


def _may_have_surrogates(text: str | bytes) -> bool:
    """Return False for nearly all documents: ASCII without an escape of a code unit, and no UTF-16 or UTF-32."""
    if not text.isascii():
        return True
    return "\\u" in text if isinstance(text, str) else b"\\u" in text or b"\0" in text


def is_unicode(name: str) -> bool:
    """Return whether UTF-8 can encode a name. It cannot encode a file name with other bytes."""
    return name == readable(name)


def readable(name: str) -> str:
    """Return a file name with escapes in place of bytes that are not UTF-8."""
    return name.encode(errors="backslashreplace").decode()
