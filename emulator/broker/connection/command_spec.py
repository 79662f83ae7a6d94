"""What the table says of one command."""

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
"""A command's value, made in `emulator/wire/`."""


def command_number(name: str) -> int:
    """Return the type number of a command by its protocol name."""
    number = getattr(CommandType, name)
    assert isinstance(number, int)
    return number


class Execution(Enum):
    """How a command is carried out."""

    INLINE = auto()
    """Where it is read: `handle(connection, command)`."""
    ENTRY = auto()
    """The same with the stored entry that came with it: `handle(connection, command, entry)`."""
    TASK = auto()
    """It may have to wait: `handle(connection, command)` gives the `Work` to be done. Commands behind it do not wait
    for it."""


class PendingResponse(NamedTuple):
    """Of a request that waits for one thing."""

    kept: asyncio.Future[Any]
    """Not to be cancelled: others wait for it, too. A StorageError or ProtocolError of it refuses the request."""
    answer: bytes
    """Sent when it is kept, in one write with other answers of that moment."""


Work = PendingResponse | Coroutine[Any, Any, None]
"""Of a TASK row. A coroutine runs in a task of the connection, and ends with it."""


@dataclass(frozen=True, slots=True)
class CommandSpec(Generic[C]):
    """One command that a region takes."""

    name: str
    """The protocol's name, as in CommandType."""
    decode: Callable[[bytes], C]
    handle: Callable[..., Any]
    """See Stage. Raises ProtocolError for what it refuses, before it changed anything."""
    refuse: Callable[[C, ProtocolError], bytes] | None
    """The answer that its client understands as "no"; empty, or None, where no client waits for one."""
    resource: Callable[..., ProtectedResource]
    """`resource(connection, command)`: what it is about, for authorization and for the log."""
    action: Action | None = None
    """None: needs no permission, or was permitted when the producer or consumer that it names was attached."""
    trust: TrustLevel = TrustLevel.CLIENT
    """The least that the region must know of the other side."""
    stage: Execution = Execution.INLINE
    estimate_bytes: int = 0
    """What a request holds while it waits: counted against the budget of its connection. TASK only."""

    type: int = field(init=False)
    """Its number, of CommandType."""

    def __post_init__(self) -> None:
        assert (self.stage is Execution.TASK) == (self.estimate_bytes > 0), self.name
        object.__setattr__(self, "type", command_number(self.name))
