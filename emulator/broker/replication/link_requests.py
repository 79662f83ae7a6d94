"""The requests that a link to another region has sent and that have no response yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from emulator.errors import ProtocolError


class LinkRequests:
    """Ids of requests and producers on one link, and the callers that wait for a response. Each producer and each
    waiting caller has at most one pending request."""

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

    def new_producer_request(self, producer_id: int) -> int:
        """Return the id for a request to open a producer. It replaces the producer's pending one: requests to a peer
        that answers PINGs but never PRODUCER must not accumulate."""
        self.drop_producer_request(producer_id)
        request_id = self.new_id()
        self._producers[request_id] = producer_id
        self._newest[producer_id] = request_id
        return request_id

    def pop_producer_request(self, request_id: int) -> int | None:
        """Remove a request that has a response. Return its producer; None if it was dropped or had none."""
        producer_id = self._producers.pop(request_id, None)
        if producer_id is not None:
            del self._newest[producer_id]
        return producer_id

    def drop_producer_request(self, producer_id: int) -> None:
        """Drop the pending request for this producer."""
        request_id = self._newest.pop(producer_id, None)
        if request_id is not None:
            del self._producers[request_id]

    def send(self, send: Callable[[int], None]) -> asyncio.Future[Any]:
        """Call `send` with the id of a new request; the future receives the response."""
        request_id = self.new_id()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = answer
        answer.add_done_callback(lambda _: self._pending.pop(request_id, None))
        send(request_id)
        return answer

    def complete(self, request_id: int, response: Any) -> None:
        """Pass a response, or the error that the peer sent instead, to the caller that waits for it, if any."""
        answer = self._pending.pop(request_id, None)
        if answer is None or answer.done():
            return
        if isinstance(response, ProtocolError):
            answer.set_exception(response)
        else:
            answer.set_result(response)

    def fail(self, failure: ProtocolError) -> None:
        """Drop requests for producers and fail all other pending requests: the link was lost."""
        self._producers.clear()
        self._newest.clear()
        pending, self._pending = self._pending, {}
        for answer in pending.values():
            if not answer.done():
                answer.set_exception(failure)
