"""Common part of the actors with the real Pulsar client: its settings, how they move, and how they end."""

from __future__ import annotations

import contextlib
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar  # type: ignore[import-untyped]

from emulator.run.history import HistoryWriter
from emulator.scenarios.actors.specs import Counts

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


class PulsarActor(ABC):
    """Works in one region after the other, with a new client in each."""

    def __init__(self, region: str, history: HistoryWriter, log: Path, pause: Pause) -> None:
        self._region = region
        self._history = history
        self._log = log
        self._pause = pause
        self._client: pulsar.Client | None = None

    @property
    @abstractmethod
    def counts(self) -> Counts: ...

    @abstractmethod
    def begin(self, service_url: str) -> None: ...

    @abstractmethod
    def finish(self) -> None: ...

    @abstractmethod
    def _drop(self) -> None:
        """Forget what belongs to the client."""

    @abstractmethod
    def act(self) -> None:
        """Do what is due; wait a little when there is nothing."""

    @abstractmethod
    def idle_seconds(self) -> float:
        """How long it may wait for a command before it acts again."""

    def move(self, region: str, service_url: str) -> None:
        self.close()
        self._region = region
        self.begin(service_url)

    def close(self) -> None:
        """Drop the client for good: an abandoned one would come back by itself with its region."""
        orderly = self.counts.connected
        client, self._client = self._client, None
        self._drop()
        if client is None:
            return
        if orderly:
            closing = threading.Thread(target=_close_quietly, args=(client,), daemon=True)
            closing.start()
            closing.join(CLOSE_SECONDS)
        client.shutdown()

    def _connect(self, service_url: str) -> pulsar.Client:
        self._client = pulsar.Client(
            service_url,
            operation_timeout_seconds=OPERATION_TIMEOUT_SECONDS,
            connection_timeout_ms=CONNECTION_TIMEOUT_MS,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Info, str(self._log)),
        )
        return self._client


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
