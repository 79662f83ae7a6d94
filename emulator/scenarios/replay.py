"""What the owner of a topic writes on it, and the state that anyone gets who reads it from the beginning (PIP-68's
example): a write-ahead log.

    introduction   who owns the topic now, its priority and epoch (PIP-440: it SHOULD be
                   published), and how much it read
    heartbeat      the next number, under one of a few keys; the state is the last number of each key
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

KEYS = 16


class State:
    """Of one topic, as one region's owners wrote it."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.messages = 0
        """So many were read or written."""

    @property
    def next_number(self) -> int:
        return 1 + max(self.values.values(), default=-1)

    @property
    def digest(self) -> str:
        """Equal for equal states."""
        return hashlib.blake2b(json.dumps(sorted(self.values.items())).encode(), digest_size=8).hexdigest()

    def apply(self, payload: bytes) -> None:
        """A message of the log, in its order. What owners did not write changes nothing."""
        self.messages += 1
        match read(payload):
            case {"kind": "heartbeat", "number": int(number)}:
                self.values[key_of(number)] = number


def key_of(number: int) -> str:
    return f"key-{number % KEYS}"


def read(payload: bytes) -> Mapping[str, Any]:
    """What an owner wrote; empty when it is something else."""
    try:
        written = json.loads(payload)
    except ValueError:
        return {}
    return written if isinstance(written, dict) else {}


def introduction(priority: int, epoch: int | None, state: State) -> dict[str, Any]:
    return {
        "kind": "introduction",
        "priority": priority,
        "epoch": epoch,
        "read": state.messages,
        "state": state.digest,
    }


def heartbeat(number: int) -> dict[str, Any]:
    return {"kind": "heartbeat", "number": number}


def report(number: int, epoch: int | None) -> dict[str, Any]:
    """Return what an owner publishes elsewhere, together with the heartbeat of that number."""
    return {"kind": "report", "number": number, "epoch": epoch}
