"""A recording wrapper of the producer of `pulsar.Client`."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import pulsar  # type: ignore[import-untyped]

from emulator.recording.context import ClientLocation, Delegate
from emulator.recording.journal import ActorJournal
from emulator.recording.responses import exception_of, message_id_text, outcome_of
from emulator.run.history import ProducerHistory, PublishHistory


class RecordedProducer(Delegate):
    """Wraps `pulsar.Producer` and records its publishes."""

    def __init__(self, inner: Any, recorder: PublishRecorder, *, batching: bool) -> None:
        super().__init__(inner)
        self._recorder = recorder
        self._batching = batching

    def send(self, *args: Any, **named: Any) -> Any:
        receipt: Future[tuple[Any, Any]] = Future()
        arguments = self._recorder.bind_arguments(*args, **named)
        self._send(arguments, lambda result, message_id: receipt.set_result((result, message_id)))
        if self._batching and not receipt.done():
            # Like pulsar-client, a synchronous `send` flushes the batch instead of waiting until it is full.
            self._inner._producer.flush_async(lambda _: None)
        result, message_id = receipt.result()
        if result != pulsar.Result.Ok:
            raise exception_of(result)
        return message_id

    def send_async(
        self, content: Any, callback: Callable[[Any, Any], None], *args: Any, **named: Any
    ) -> None:
        self._send(self._recorder.bind_arguments(content, *args, **named), callback)

    def _send(self, arguments: dict[str, Any], callback: Callable[[Any, Any], None]) -> None:
        content = arguments["content"]
        rest = {name: value for name, value in arguments.items() if name != "content"}
        try:
            fields = self._recorder.message_fields(arguments)
        except Exception:
            # The client raises the proper error for an invalid message.
            self._inner.send_async(content, callback, **rest)
            self._recorder.journal.stop_recording("the recorder could not read a message that was sent")
            return
        chosen = rest.pop("sequence_id", None) or None
        with self._recorder.order:
            number, publish = self._recorder.record_request(fields, chosen)

            def on_result(result: Any, message_id: Any) -> None:
                record_result(publish, result, message_id)
                callback(result, message_id)

            try:
                # Sequence id 0 is passed as None, because the client treats 0 as no id, and starts at 0 by itself.
                self._inner.send_async(content, on_result, sequence_id=number or None, **rest)
            except (TypeError, ValueError) as problem:
                publish.failed(str(problem))
                raise


LOCAL_ONLY = "__local__"
"""Value of `replicate_to` that the client writes for a message that must not be replicated."""


class PublishRecorder:
    """Records the publishes of one producer, and assigns their sequence ids. A publish must be recorded with its
    sequence id before it is sent, and the client does not expose the id. So the recorder counts as the client would,
    and passes each id to the client with the message.
    """

    def __init__(self, journal: ActorJournal, location: ClientLocation, producer: Any, topic: str) -> None:
        self.journal = journal
        self.order = threading.Lock()
        """Held by threads from the assignment of a sequence id until the client has the message, so that ids reach the
        region in order."""
        self._location = location
        self._schema = producer._schema
        self._parameters = inspect.signature(producer.send)
        last = producer.last_sequence_id()
        self._next = last + 1
        self._history = ProducerHistory(journal, location.region, topic, producer.producer_name(), last)
        journal.write("connect", "ok", **self._history.event_fields, last_sequence_id=last)

    def bind_arguments(self, *args: Any, **named: Any) -> dict[str, Any]:
        """Return the arguments of `send` by name. Raises TypeError like the call itself."""
        return dict(self._parameters.bind(*args, **named).arguments)

    def message_fields(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields with which the history records a message. Raises an exception if the message is invalid."""
        content = arguments["content"]
        regions = list(arguments.get("replication_clusters") or ())
        ordering_key = arguments.get("ordering_key")
        return {
            "payload": b"" if content is None else bytes(self._schema.encode(content)),
            "key": arguments.get("partition_key") or None,
            "properties": dict(arguments.get("properties") or {}),
            "event_time_ms": arguments.get("event_timestamp") or 0,
            "ordering_key": ordering_key.encode() if ordering_key else None,
            "replicate_to": [LOCAL_ONLY] if arguments.get("disable_replication") else regions,
        }

    def record_request(self, fields: Mapping[str, Any], number: int | None) -> tuple[int, PublishHistory]:
        """Record a publish request; return its sequence id and the recorder of its outcome. `number`: the id that the
        program chose, or None. If the client has switched its service URL, end the recording."""
        if number is None:
            number = self._next
            self._next += 1
        new_url = self._location.switched_url()
        if new_url is not None:
            self.journal.stop_recording(f"its client switched to {new_url} by itself")
        return number, self._history.asked_publish(**fields, sequence_id=number)


def record_result(publish: PublishHistory, result: Any, message_id: Any) -> None:
    match outcome_of(result):
        case "ok":
            publish.ok(message_id_text(message_id))
        case "failed":
            publish.failed(result.name)
        case _:
            publish.unknown(result.name)
