"""The row of the command table for one command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Generic, NamedTuple, TypeVar

from emulator.broker.authorization import Action, ProtectedResource, TrustLevel
from emulator.errors import ProtocolError
from emulator.wire.codec import CommandType

C = TypeVar("C")
"""The decoded command, a type of `emulator/wire/`."""


def command_number(name: str) -> int:
    """Return the type number of a command by its protocol name."""
    number = getattr(CommandType, name)
    assert isinstance(number, int)
    return number


class Execution(Enum):
    """How a command is carried out."""

    INLINE = auto()
    """Handled where it is read: `handle(connection, command)`."""
    ENTRY = auto()
    """The same with the entry that came with it: `handle(connection, command, entry)`."""
    TASK = auto()
    """May have to wait: `handle(connection, command)` returns the `Work` to do. Later commands do not wait for it."""


class PendingResponse(NamedTuple):
    """The response of a request that waits for one thing."""

    kept: asyncio.Future[Any]
    """Must not be cancelled: others wait for it, too. Its StorageError or ProtocolError rejects the request."""
    answer: bytes
    """Sent when `kept` is done, in one write with other responses of that moment."""


Work = PendingResponse | Coroutine[Any, Any, None]
"""Result of a TASK row. A coroutine runs in a task of the connection, and ends with it."""


@dataclass(frozen=True, slots=True)
class CommandSpec(Generic[C]):
    """One command that a region accepts."""

    name: str
    """The protocol's name, as in CommandType."""
    decode: Callable[[bytes], C]
    handle: Callable[..., Any]
    """See Execution. Raises ProtocolError for a rejected command, before it changes anything."""
    refuse: Callable[[C, ProtocolError], bytes] | None
    """Builds the client's error response; empty, or None, where no client expects one."""
    resource: Callable[..., ProtectedResource]
    """`resource(connection, command)`: the resource of the command, for authorization and for the log."""
    action: Action | None = None
    """None: needs no permission, or was permitted when the producer or consumer that it names was attached."""
    trust: TrustLevel = TrustLevel.CLIENT
    """The lowest trust level of connections that may send it."""
    stage: Execution = Execution.INLINE
    estimate_bytes: int = 0
    """Memory of a request while it waits: counted against the budget of its connection. TASK only."""

    type: int = field(init=False)
    """Its number in CommandType."""

    def __post_init__(self) -> None:
        assert (self.stage is Execution.TASK) == (self.estimate_bytes > 0), self.name
        object.__setattr__(self, "type", command_number(self.name))
