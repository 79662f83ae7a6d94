"""Standing in front of an object of the client's."""

from __future__ import annotations

from typing import Any


class Delegate:
    """What is not spelt out here is the inner object's."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __repr__(self) -> str:
        return f"<recorded {self._inner!r}>"
