"""A mutant: the product with one safeguard removed.

    @MUTANTS.mutant("growth-ignored-by-client", "INV-93", patch=part("partitions"))
    class _RequestsOnce(Partitions):
        \"\"\"A client requests the number of partitions only once.\"\"\"

The docstring says what is missing; it is a row of docs/reference/mutants.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from emulator.broker.topic.topic import Topic
from emulator.simulation.region import Overrides
from tests.swarm.names import public_name

T = TypeVar("T")
Patch = Callable[[Overrides], Overrides]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    safeguard: str
    """What is missing, as a sentence."""
    invariants: tuple[str, ...]
    """The invariants that its loss violates, the one that it maintains first."""
    patch: Patch
    seed_name: str
    """The seed name of the workload whose simulated runs detect it."""

    @property
    def kind(self) -> str:
        """The workload whose simulated runs detect it."""
        return public_name(self.seed_name)


class Mutants(list[Mutant]):
    """The mutants of one module. `seed_name`: of the workload whose simulated runs detect them."""

    def __init__(self, seed_name: str = "swarm") -> None:
        super().__init__()
        self.seed_name = seed_name

    def mutant(
        self,
        name: str,
        *invariants: str,
        patch: Callable[[Any], Patch] = lambda made: made,
        safeguard: str = "",
    ) -> Callable[[T], T]:
        """Register the decorated class or function as a faulty component. `patch` puts it into the product. Without
        `patch` it is a patch itself, and `safeguard` replaces the docstring."""

        def register(made: T) -> T:
            sentence = safeguard or " ".join((made.__doc__ or "").partition("\n\n")[0].split())
            self.append(Mutant(name, sentence, invariants, patch(made), self.seed_name))
            return made

        return register


def parts(**changes: Any) -> Patch:
    """Other components of the broker, by the names of their fields."""
    return lambda overrides: overrides.with_parts(**changes)


def part(name: str, wrap: Callable[[Any], Any] = lambda made: made) -> Callable[[Any], Patch]:
    """The component of that name is the decorated class or function, or what `wrap` makes of it."""
    return lambda made: parts(**{name: wrap(made)})


def medium(name: str) -> Callable[[Any], Patch]:
    """The medium of that name (`disk`, `remote_log`) or the client is the decorated class."""
    return lambda made: lambda overrides: replace(overrides, **{name: made})


def topic(type_: type[Topic]) -> Patch:
    return lambda overrides: replace(overrides, topic=type_)
