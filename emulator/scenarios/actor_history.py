"""What programs with our own client write down, wherever they run: in a process, or on a simulated host."""

from __future__ import annotations

from typing import Any, Protocol

from emulator.run.history import Outcome


class Notes(Protocol):
    """A history."""

    def write(self, op: str, outcome: Outcome, **fields: Any) -> None:
        """`detail` of a publish is the text of its payload."""
        ...

    def new_session(self) -> str: ...
