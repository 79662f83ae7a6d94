"""Outcomes that follow from the results of the Pulsar client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pulsar  # type: ignore[import-untyped]

from emulator.run.history_events import Outcome

NEVER_SENT = frozenset(
    {
        pulsar.Result.MessageTooBig,
        pulsar.Result.InvalidMessage,
        pulsar.Result.ProducerQueueIsFull,
        pulsar.Result.MemoryBufferIsFull,
        pulsar.Result.CryptoError,
    }
)
"""Results of messages that the client rejected before sending: the message certainly was not stored. After any other
failure it may have been stored, for example by an attempt whose receipt was lost."""


def message_id_text(message_id: Any) -> str | None:
    """Return a message id as `ledger:entry:batch_index`; None for the id in a receipt for a duplicate."""
    if message_id.ledger_id() < 0:
        return None
    return f"{message_id.ledger_id()}:{message_id.entry_id()}:{message_id.batch_index()}"


def outcome_of(result: pulsar.Result) -> Outcome:
    """Return the outcome of a publish with this result."""
    if result == pulsar.Result.Ok:
        return "ok"
    return "failed" if result in NEVER_SENT else "unknown"


@contextmanager
def recording_error(record: Callable[[str], None]) -> Iterator[None]:
    """Call `record` with the text of an error of `pulsar` or `pulsar.asyncio` that is raised in the `with` block."""
    try:
        yield
    except BaseException as problem:
        # `pulsar.asyncio` has its own exception class, and some versions of the client do not have that module.
        if isinstance(problem, pulsar.PulsarException) or type(problem).__module__ == "pulsar.asyncio":
            record(str(problem))
        raise


def exception_of(result: pulsar.Result) -> Exception:
    """Return the exception that the client's blocking calls raise for a result."""
    kind: type[Exception] = getattr(pulsar, result.name, pulsar.PulsarException)
    name = {"Timeout": "TimeOut"}.get(result.name, result.name)
    return kind(f"Pulsar error: {name}")
