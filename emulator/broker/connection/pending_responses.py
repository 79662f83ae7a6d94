"""The responses of one connection that wait for an outcome, such as the write of a log.

Requests that wait for the same outcome are a group: one callback releases their memory and sends their responses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from emulator.errors import ProtocolError, StorageError

if TYPE_CHECKING:
    from emulator.broker.connection.flow_control import FlowControl


class Outcome(Protocol):
    """A future, or what behaves like one. Several requests may share it, so it must not be cancelled."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None: ...

    def exception(self) -> BaseException | None:
        """Return the StorageError or ProtocolError that rejects the requests; None: they succeed."""
        ...


class PendingResponse(NamedTuple):
    """The response of a request that waits for an outcome."""

    outcome: Outcome
    answer: bytes
    """Encoded response, sent once `outcome` succeeds, in one write with others of that iteration of the event loop."""


class RespondingConnection(Protocol):
    """A client's connection, as its pending responses see it."""

    @property
    def flow_control(self) -> FlowControl: ...
    @property
    def is_open(self) -> bool: ...

    def answer_soon(self, data: bytes) -> None: ...


Reject = Callable[[ProtocolError | StorageError], None]
"""Rejects a request that was started."""


class _Group:
    """The requests that wait for one outcome."""

    __slots__ = ("answers", "charged_bytes", "rejects")

    def __init__(self) -> None:
        self.charged_bytes = 0
        self.answers: list[bytes] = []
        self.rejects: list[Reject] = []


class PendingResponses:
    """The pending responses of one connection."""

    def __init__(self, connection: RespondingConnection) -> None:
        self._connection = connection
        self._groups: dict[Outcome, _Group] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether a response is pending."""
        return bool(self._groups)

    def add(self, response: PendingResponse, estimate_bytes: int, reject: Reject) -> None:
        """Send a response once its outcome succeeds; otherwise call `reject`. `estimate_bytes` of memory are charged
        until then."""
        outcome, flow_control = response.outcome, self._connection.flow_control
        group = self._groups.get(outcome)
        if group is None:
            group = self._groups[outcome] = _Group()
        flow_control.charge_request(estimate_bytes)
        group.charged_bytes += estimate_bytes
        group.answers.append(response.answer)
        group.rejects.append(reject)
        if len(group.answers) == 1:
            outcome.add_done_callback(self._send)

    def _send(self, outcome: Outcome) -> None:
        group = self._groups.pop(outcome)
        self._connection.flow_control.release_request(group.charged_bytes)
        if not self._connection.is_open:
            return
        failure = outcome.exception()
        if failure is None:
            self._connection.answer_soon(b"".join(group.answers))
            return
        assert isinstance(failure, ProtocolError | StorageError), failure
        for reject in group.rejects:
            reject(failure)
