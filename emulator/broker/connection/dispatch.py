"""The table of commands, and the steps of every command (C1): it must be known, legal for its connection and
authorized; then it is handled, and its memory counted.

`refuse` rejects a command: it sends an error response of the command's own type and writes one line to the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from emulator.broker.authorization import ProtectedResource, TrustLevel
from emulator.broker.authorizer import Authorizer
from emulator.broker.connection.flow_control import FlowControl
from emulator.broker.connection.pending_responses import PendingResponse, PendingResponses
from emulator.broker.connection.requirements import CommandRequirements
from emulator.broker.tasks import TaskGroup
from emulator.errors import ProtocolError, ServerError, StorageError
from emulator.model.principals import Principal
from emulator.wire.command_types import CommandType
from emulator.wire.frames import Frame

logger = logging.getLogger(__name__)

C = TypeVar("C")
"""The decoded command, a type of `emulator/wire/`."""


def command_number(name: str) -> int:
    """Return the type number of a command by its protocol name."""
    number = getattr(CommandType, name)
    assert isinstance(number, int)
    return number


class Execution(Enum):
    """The way in which a command is executed."""

    INLINE = auto()
    """Executed as it is read: `handle(connection, command)`."""
    ENTRY = auto()
    """Executed as it is read, with the entry of its frame: `handle(connection, command, entry)`."""
    TASK = auto()
    """Executed asynchronously: `handle(connection, command)` returns the `Work`, or None if nothing is left to do.
    Later commands do not wait for it."""


class Continuation(NamedTuple):
    """A request that waits for a single future and then usually needs no task."""

    awaited: asyncio.Future[Any]
    """The future, which must not be cancelled. Its StorageError or ProtocolError rejects the request."""
    proceed: Callable[[Any], Work | None]
    """`proceed(result)` does the rest, or returns the work that is left. Its StorageError or ProtocolError rejects the
    request."""
    end: Callable[[], None]
    """Called instead of `proceed` when the request is rejected, or the connection has ended."""


Work = PendingResponse | Continuation | Coroutine[Any, Any, None]
"""Result of a TASK row. A coroutine runs in a task of the connection, and ends with it."""


@dataclass(frozen=True, slots=True)
class CommandSpec(Generic[C]):
    """One command that a region accepts."""

    name: str
    """The protocol's name, as in CommandType."""
    decode: Callable[[bytes], C]
    handle: Callable[..., Any]
    """The handler; Execution names its arguments. ProtocolError for a rejected command, before any change."""
    refuse: Callable[[C, ProtocolError], bytes] | None
    """Builder of the error response; None, or an empty result, if the client expects none."""
    resource: Callable[..., ProtectedResource]
    """`resource(connection, command)`: the resource of the command, for the log."""
    requires: CommandRequirements | None = None
    """The permissions that the command requires. None: none, or they were checked when the producer or consumer was
    attached."""
    trust: TrustLevel = TrustLevel.CLIENT
    """The lowest trust level of connections that may send the command."""
    stage: Execution = Execution.INLINE
    handle_group: Callable[..., int] | None = None
    """`handle_group(connection, command, frames, index)` executes several commands of this type at once, beginning with
    this one, the frame of that index, and returns their number; 0: it has to be handled alone, as the last command of a
    read always is. Neither for TASK nor with `requires`."""
    estimate_bytes: int = 0
    """Estimated memory of a waiting request, charged to the budget of its connection; TASK only."""

    type: int = field(init=False)
    """The command's number in CommandType."""

    def __post_init__(self) -> None:
        assert (self.stage is Execution.TASK) == (self.estimate_bytes > 0), self.name
        object.__setattr__(self, "type", command_number(self.name))


AnyCommandSpec = CommandSpec[Any]

# Access to a member of an enum costs several times as much as to a global, and every SEND needs these.
_ENTRY: Final = Execution.ENTRY
_INLINE: Final = Execution.INLINE


class CommandingConnection(Protocol):
    """A client's connection, as the table sees it."""

    address: str
    trust: TrustLevel
    principal: Principal
    authorizer: Authorizer | None
    """Checks permissions; None: every client may do everything."""
    table: CommandTable
    legal_rows: dict[int, AnyCommandSpec]

    tasks: TaskGroup
    flow_control: FlowControl
    pending_responses: PendingResponses
    responses: list[bytes]
    """What `answer_soon` has kept."""

    @property
    def is_open(self) -> bool: ...

    def answer(self, data: bytes) -> None: ...

    def answer_soon(self, data: bytes) -> None:
        """Send a response in one write with the other responses of the same read or iteration of the event loop."""
        ...

    def send_responses(self) -> None:
        """Send `responses`; called at the end of a read."""
        ...

    def coalesce_reads(self) -> None:
        """Pause reading from a client that sends a command in small parts, until more of them have arrived."""
        ...

    def close_with_error(self, problem: ProtocolError) -> None:
        """Close the connection after a protocol violation; before authentication, send ERROR first."""
        ...


class CommandTable:
    """All rows, and the legal rows of each trust level."""

    def __init__(
        self,
        rows: tuple[AnyCommandSpec, ...],
        not_offered: Mapping[int, str],
        repeated: tuple[AnyCommandSpec, ...] = (),
    ) -> None:
        self.rows = {row.type: row for row in rows}
        assert len(self.rows) == len(rows), "two rows of one type"
        self.not_offered = not_offered
        """Command type -> why it has no row, as a sentence."""
        self.repeated = {row.type: row for row in repeated}
        """Command type -> the row by which the region repeats a client's request itself after a topic was unloaded."""
        self.legal: dict[TrustLevel, dict[int, AnyCommandSpec]] = {
            trust: {row.type: row for row in rows if row.trust <= trust} for trust in TrustLevel
        }


def dispatch(connection: CommandingConnection, frames: Sequence[Frame], index: int) -> int:
    """Execute the command with this index, or reject or ignore it, and further ones if its type is handled in groups.
    Return the number of handled commands. ProtocolError, which ends the connection, when the bytes of the command
    cannot be read, or it must not be sent before CONNECT."""
    type_, command, entry = frames[index]
    row = connection.legal_rows.get(type_)
    if row is None:
        _reject_illegal(connection, type_, command)
        return 1
    value = row.decode(command)
    if index + 1 < len(frames) and row.handle_group is not None:
        handled = row.handle_group(connection, value, frames, index)
        if handled:
            return handled
    stage = row.stage
    try:
        if row.requires is not None and connection.authorizer is not None:
            _authorize(connection, connection.authorizer, row.requires, value)
        if stage is _ENTRY:
            row.handle(connection, value, entry)
        elif stage is _INLINE:
            row.handle(connection, value)
        else:
            begin(connection, row, value)
    except (ProtocolError, StorageError) as failure:
        _reject(connection, row, value, failure)
    return 1


def _authorize(
    connection: CommandingConnection, authorizer: Authorizer, requires: CommandRequirements, value: Any
) -> None:
    for requirement in requires.of(value):
        authorizer.check(connection.trust, connection.principal, requirement)


def repeat(connection: CommandingConnection, row: AnyCommandSpec, value: Any) -> bool:
    """Repeat the request of a client by a row of `CommandTable.repeated`, with the permissions that its role has now.
    Return whether it was started."""
    try:
        if row.requires is not None and connection.authorizer is not None:
            _authorize(connection, connection.authorizer, row.requires, value)
        begin(connection, row, value)
    except ProtocolError as problem:
        refuse(connection, row, value, problem)
        return False
    return True


def begin(connection: CommandingConnection, row: AnyCommandSpec, value: Any) -> None:
    """Start a request that may have to wait; its memory is charged until it is done. ProtocolError."""
    _await(connection, row, value, row.handle(connection, value))


def _await(connection: CommandingConnection, row: AnyCommandSpec, value: Any, work: Work | None) -> None:
    if work is None:
        return
    if isinstance(work, PendingResponse):
        connection.pending_responses.add(work, row.estimate_bytes, partial(_reject, connection, row, value))
        return
    connection.flow_control.charge_request(row.estimate_bytes)
    if isinstance(work, Continuation):
        work.awaited.add_done_callback(partial(_continue, connection, row, value, work))
    else:
        connection.tasks.start(
            _carry_out(connection, row, value, work), partial(_end_request, connection, row, work)
        )


def _end_request(
    connection: CommandingConnection, row: AnyCommandSpec, work: Coroutine[Any, Any, None]
) -> None:
    work.close()  # the coroutine was never started if the connection ended first
    connection.flow_control.release_request(row.estimate_bytes)


def _continue(
    connection: CommandingConnection,
    row: AnyCommandSpec,
    value: Any,
    work: Continuation,
    awaited: asyncio.Future[Any],
) -> None:
    """Continue a request whose future has a result, or reject it."""
    connection.flow_control.release_request(row.estimate_bytes)
    failure = awaited.exception()
    if failure is not None or not connection.is_open:
        work.end()
        if failure is not None and connection.is_open:
            assert isinstance(failure, ProtocolError | StorageError), failure
            _reject(connection, row, value, failure)
        return
    try:
        _await(connection, row, value, work.proceed(awaited.result()))
    except (ProtocolError, StorageError) as problem:
        _reject(connection, row, value, problem)


async def _carry_out(
    connection: CommandingConnection, row: AnyCommandSpec, value: Any, work: Coroutine[Any, Any, None]
) -> None:
    """Run the task of a TASK row."""
    try:
        await work
    except (ProtocolError, StorageError) as failure:
        _reject(connection, row, value, failure)


def _reject(
    connection: CommandingConnection, row: AnyCommandSpec, value: Any, failure: ProtocolError | StorageError
) -> None:
    """Reject a request; a failure of the store is an error of its own type."""
    if isinstance(failure, StorageError):
        failure = ProtocolError(ServerError.PersistenceError, str(failure))
    refuse(connection, row, value, failure)


def refuse(connection: CommandingConnection, row: AnyCommandSpec, value: Any, problem: ProtocolError) -> None:
    """Send the error response and log it. Some errors close the connection instead, which logs them."""
    if problem.closes_connection:
        connection.close_with_error(problem)
        return
    kind, name = row.resource(connection, value)
    logger.info(
        "refused: connection %s, %s, %s %s, %s: %s",
        connection.address,
        row.name,
        kind,
        name if name.isprintable() else repr(name),
        problem.code.name,
        problem,
    )
    if row.refuse is not None and (refusal := row.refuse(value, problem)):
        connection.answer(refusal)


def _reject_illegal(connection: CommandingConnection, type_: int, command: bytes) -> None:
    """Reject a command that this trust level does not permit, and ignore one without a row. ProtocolError before the
    connection is authenticated."""
    if connection.trust is TrustLevel.UNAUTHENTICATED:
        raise ProtocolError(
            ServerError.UnknownError, "the first command must be CONNECT", closes_connection=True
        )
    row = connection.table.rows.get(type_)
    if row is not None:
        problem = ProtocolError(ServerError.AuthorizationError, f"{row.name} is for other regions only")
        refuse(connection, row, row.decode(command), problem)
        return
    # Newer clients may send commands that a region does not support: ignoring them does no harm.
    sentence = connection.table.not_offered.get(type_, "not supported by this region")
    logger.info("ignored: connection %s, command %d: %s", connection.address, type_, sentence)
