"""Contracts of services: for each message that a service acknowledges, it publishes one to another topic.

    billing: orders -> invoices

The subscription `billing` acknowledges a message of `orders` only after a message with the same key is stored in
`invoices`. Contracts are stored in the run directory, and every verdict on the run checks them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from emulator.model.values import TopicName
from emulator.run.json_text import parse_json

ANSWERS_FILE = "answers.json"


@dataclass(frozen=True, slots=True)
class Contract:
    """The contract of one service (INV-20)."""

    subscription: str
    of: str
    """Full name of the input topic."""
    on: str
    """Full name of the output topic."""

    @classmethod
    def between(cls, subscription: str, of: str, on: str) -> Contract:
        """Create a contract for a subscription on the input topic `of` and the output topic `on`, which may be short
        names. Raises ValueError if a topic name is invalid."""
        return cls(subscription, str(TopicName.parse(of)), str(TopicName.parse(on)))

    def __str__(self) -> str:
        return f"{self.subscription}: {_short(self.of)} -> {_short(self.on)}"


def write_contract(run_dir: Path, contracts: Iterable[Contract]) -> None:
    (run_dir / ANSWERS_FILE).write_text(json.dumps([asdict(one) for one in contracts], indent=1) + "\n")


def read_answers(run_dir: Path) -> tuple[Contract, ...]:
    """Read the contracts of a run; empty if none were written. Raises ValueError if the file is damaged."""
    try:
        written = parse_json((run_dir / ANSWERS_FILE).read_text())
        return tuple(Contract.between(**one) for one in written)
    except FileNotFoundError:
        return ()
    except (TypeError, AttributeError) as problem:
        raise ValueError(f"{ANSWERS_FILE}: {problem}") from problem


def _short(topic: str) -> str:
    return topic.removeprefix("persistent://public/default/")
