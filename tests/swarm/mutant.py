"""A mutant: the product with one safeguard removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from emulator.broker.topic.topic import Topic
from emulator.simulation.overrides import Overrides
from tests.swarm.names import public_name


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    safeguard: str
    """What is missing, as a sentence."""
    invariants: tuple[str, ...]
    """What its loss violates; the first is the one it is there for."""
    break_: Callable[[Overrides], Overrides]
    seed_name: str = "swarm"
    """The seed name of the workload whose simulated runs detect it."""

    @property
    def kind(self) -> str:
        """The workload whose simulated runs detect it."""
        return public_name(self.seed_name)


def parts(**changes: Any) -> Callable[[Overrides], Overrides]:
    """Other parts of the broker, by the names of their fields."""
    return lambda overrides: overrides.with_parts(**changes)


def topic(type_: type[Topic]) -> Callable[[Overrides], Overrides]:
    return lambda overrides: replace(overrides, topic=type_)
