"""What a service promises beside what Pulsar promises: to answer each message of a topic with one on another topic.

    billing: orders -> invoices

The subscription `billing` acknowledges a message of `orders` only when a message with the same key is on `invoices`.
Written in the run directory, so that every verdict on the run holds the service to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from emulator.model.values import TopicName

ANSWERS_FILE = "answers.json"


@dataclass(frozen=True, slots=True)
class Contract:
    """One such promise."""

    subscription: str
    of: str
    """The topic that is answered, in its full form."""
    on: str
    """The topic of the answers."""

    @classmethod
    def between(cls, subscription: str, of: str, on: str) -> Contract:
        """With topics as people write them. ValueError names what is wrong."""
        return cls(subscription, str(TopicName.parse(of)), str(TopicName.parse(on)))

    def __str__(self) -> str:
        return f"{self.subscription}: {_short(self.of)} -> {_short(self.on)}"


def write_contract(run_dir: Path, answers: Iterable[Contract]) -> None:
    """Of a run."""
    (run_dir / ANSWERS_FILE).write_text(json.dumps([asdict(one) for one in answers], indent=1) + "\n")


def read_answers(run_dir: Path) -> tuple[Contract, ...]:
    """Of a run; none where none were written. ValueError when the file is damaged."""
    try:
        written = json.loads((run_dir / ANSWERS_FILE).read_text())
        return tuple(Contract.between(**one) for one in written)
    except FileNotFoundError:
        return ()
    except (TypeError, AttributeError) as problem:
        raise ValueError(f"{ANSWERS_FILE}: {problem}") from problem


def _short(topic: str) -> str:
    return topic.removeprefix("persistent://public/default/")
