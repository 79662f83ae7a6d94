"""The requests of one link that have no response yet. Every pending request is bounded by what waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from emulator.errors import ProtocolError


class LinkRequests:
    """Ids of requests and producers on one link, and the callers that wait for a response."""

    def __init__(self) -> None:
        self._last_id = 0
        self._producers: dict[int, int] = {}
        """Request id -> id of the producer that the peer was asked to open."""
        self._newest: dict[int, int] = {}
        """Producer id -> its newest request. Invariant: the inverse of `_producers`."""
        self._pending: dict[int, asyncio.Future[Any]] = {}

    @property
    def pending(self) -> int:
        """Number of requests without a response."""
        return len(self._producers) + len(self._pending)

    def new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def producer_requested(self, producer_id: int) -> int:
        """Return the id for a request to open a producer. It replaces an earlier one: a peer that answers PINGs but
        never PRODUCER is asked again and again."""
        self.producer_gone(producer_id)
        request_id = self.new_id()
        self._producers[request_id] = producer_id
        self._newest[producer_id] = request_id
        return request_id

    def producer_answered(self, request_id: int) -> int | None:
        """Return the producer of a request; None for a request that was replaced or is none for a producer."""
        producer_id = self._producers.pop(request_id, None)
        if producer_id is not None:
            del self._newest[producer_id]
        return producer_id

    def producer_gone(self, producer_id: int) -> None:
        """Drop the request for this producer."""
        request_id = self._newest.pop(producer_id, None)
        if request_id is not None:
            del self._producers[request_id]

    def send(self, send: Callable[[int], None]) -> asyncio.Future[Any]:
        """Send a request, given its id; the future gets the response."""
        request_id = self.new_id()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = answer
        answer.add_done_callback(lambda _: self._pending.pop(request_id, None))
        send(request_id)
        return answer

    def answered(self, request_id: int, response: Any) -> None:
        """Pass a response, or the error that the peer sent instead, to its caller."""
        answer = self._pending.pop(request_id, None)
        if answer is None or answer.done():
            return
        if isinstance(response, ProtocolError):
            answer.set_exception(response)
        else:
            answer.set_result(response)

    def fail(self, failure: ProtocolError) -> None:
        """The link was lost."""
        self._producers.clear()
        self._newest.clear()
        pending, self._pending = self._pending, {}
        for answer in pending.values():
            if not answer.done():
                answer.set_exception(failure)
