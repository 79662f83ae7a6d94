"""The authenticated sender of a command or request."""

from __future__ import annotations

from typing import Final, NamedTuple


class Principal(NamedTuple):
    """The roles of a sender. Both are empty where the region does not authenticate clients."""

    role: str = ""
    """The authenticated role."""
    original: str = ""
    """The role of the client for which a proxy acts; empty: `role` acts for itself."""

    @property
    def acting(self) -> str:
        """The role that owns what the sender creates."""
        return self.original or self.role


NO_PRINCIPAL: Final = Principal()
"""The sender where the region does not authenticate clients."""
