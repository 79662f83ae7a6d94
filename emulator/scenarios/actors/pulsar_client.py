"""The real Pulsar client as actors use it: its settings and its end."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar  # type: ignore[import-untyped]

OPERATION_TIMEOUT_SECONDS = 2
"""The one setting that bounds how long the client takes to notice that a region is back. It repeats a lookup
after 0.1, 0.2, 0.4, 0.8 … s until this time is over, and then begins again at 0.1 s. Measured: with the
default of 30 s a region that was away for 3 s is noticed up to 3 s late, with 2 s after less than 1 s."""
CONNECTION_TIMEOUT_MS = 1_000
RETRY_SECONDS = 0.1
"""Pause before a refused producer or subscription is asked for again."""
CLOSE_SECONDS = 1.0
"""How long closing may take; a client of a dead region is abandoned after that."""

Pause = Callable[[float], None]
"""Sleeps for the given seconds, and raises when the actor receives the command `leave` meanwhile."""


def connect_client(service_url: str, log: Path) -> pulsar.Client:
    return pulsar.Client(
        service_url,
        operation_timeout_seconds=OPERATION_TIMEOUT_SECONDS,
        connection_timeout_ms=CONNECTION_TIMEOUT_MS,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Info, str(log)),
    )


def disconnect(client: pulsar.Client, *, orderly: bool) -> None:
    """Be rid of a client for good: an abandoned one would come back by itself with its region."""
    if orderly:
        closing = threading.Thread(target=_close_quietly, args=(client,), daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)
    client.shutdown()


def _close_quietly(client: pulsar.Client) -> None:
    # A close that the region refuses or does not hear ends the connection all the same.
    with contextlib.suppress(pulsar.PulsarException):
        client.close()


def read_identity(payload: bytes) -> dict[str, Any] | None:
    """Whose message it is; None when no producer of a scenario wrote it."""
    try:
        written = json.loads(payload)
        return {
            "origin_region": str(written["origin_region"]),
            "producer": str(written["producer"]),
            "sequence_id": int(written["sequence_id"]),
        }
    except (ValueError, TypeError, KeyError):
        return None
