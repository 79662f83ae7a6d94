"""A producer of `pulsar.Client` whose publishes are written down."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pulsar  # type: ignore[import-untyped]

from emulator.recording.delegate import Delegate
from emulator.recording.publishing import Publishing, tell
from emulator.recording.responses import raised_by


class RecordedProducer(Delegate):
    """Like `pulsar.Producer`."""

    def __init__(self, inner: Any, publishing: Publishing, *, batching: bool) -> None:
        super().__init__(inner)
        self._publishing = publishing
        self._batching = batching

    def send(self, *args: Any, **named: Any) -> Any:
        told: Future[tuple[Any, Any]] = Future()
        given = self._publishing.given(*args, **named)
        self._ask(given, lambda result, message_id: told.set_result((result, message_id)))
        if self._batching and not told.done():
            # Whoever waits for this one is not to wait until the batch is full: the client does the same.
            self._inner._producer.flush_async(lambda _: None)
        result, message_id = told.result()
        if result != pulsar.Result.Ok:
            raise raised_by(result)
        return message_id

    def send_async(
        self, content: Any, callback: Callable[[Any, Any], None], *args: Any, **named: Any
    ) -> None:
        self._ask(self._publishing.given(content, *args, **named), callback)

    def _ask(self, given: dict[str, Any], callback: Callable[[Any, Any], None]) -> None:
        content = given["content"]
        rest = {name: value for name, value in given.items() if name != "content"}
        try:
            described = self._publishing.described(given)
        except Exception:
            # The client says best what is wrong with it.
            self._inner.send_async(content, callback, **rest)
            self._publishing.journal.give_up("the recorder could not read a message that was sent")
            return
        chosen = rest.pop("sequence_id", None) or None
        with self._publishing.order:
            number, publish = self._publishing.asked(described, chosen)

            def told(result: Any, message_id: Any) -> None:
                tell(publish, result, message_id)
                callback(result, message_id)

            try:
                # Number 0 cannot be given: the client takes it for none, and begins with it by itself.
                self._inner.send_async(content, told, sequence_id=number or None, **rest)
            except (TypeError, ValueError) as problem:
                publish.failed(str(problem))
                raise
