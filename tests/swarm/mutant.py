"""A mutant: the product with one safeguard removed.

    @MUTANTS.mutant("growth-ignored-by-client", "INV-93", patch=part("partitions"))
    class _RequestsOnce(Partitions):
        \"\"\"A client requests the number of partitions only once.\"\"\"

The docstring describes the faulty behaviour, and is printed in docs/reference/mutants.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from emulator.broker.replication.replicator import Replicator
from emulator.broker.topic.topic import Topic
from emulator.core.cursor.cursor import Cursor
from emulator.core.dispatch.dispatcher import strategy_for
from emulator.core.dispatch.strategy import DispatchStrategy
from emulator.core.dispatch.types import DispatchLimits, SubscriptionType
from emulator.simulation.region import Overrides
from tests.swarm.names import public_name

T = TypeVar("T")
Patch = Callable[[Overrides], Overrides]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    safeguard: str
    """The faulty behaviour, as a sentence."""
    invariants: tuple[str, ...]
    """The invariants that the mutant violates; first the one that the removed safeguard maintains."""
    patch: Patch
    seed_name: str
    """The seed name of the workload whose simulated runs detect the mutant."""

    @property
    def kind(self) -> str:
        """The public name of the workload whose simulated runs detect the mutant."""
        return public_name(self.seed_name)


class Mutants(list[Mutant]):
    """The mutants of one module. `seed_name` names the workload whose simulated runs detect them."""

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
        """Register the decorated class or function as a faulty component, which `patch` puts into the product. Without
        `patch` the decorated function is the patch. `safeguard` replaces the docstring."""

        def register(made: T) -> T:
            sentence = safeguard or " ".join((made.__doc__ or "").partition("\n\n")[0].split())
            self.append(Mutant(name, sentence, invariants, patch(made), self.seed_name))
            return made

        return register


def parts(**changes: Any) -> Patch:
    """Return a patch that replaces components of the broker, by the names of their fields."""
    return lambda overrides: overrides.with_parts(**changes)


def part(name: str, wrap: Callable[[Any], Any] = lambda made: made) -> Callable[[Any], Patch]:
    """Return a function that makes a patch: component `name` becomes the decorated object, wrapped by `wrap`."""
    return lambda made: parts(**{name: wrap(made)})


def medium(name: str) -> Callable[[Any], Patch]:
    """Return a function that makes a patch: the medium `name` (`disk`, `remote_log`) or the client becomes the
    decorated class."""
    return lambda made: lambda overrides: replace(overrides, **{name: made})


def topic(type_: type[Topic]) -> Patch:
    return lambda overrides: replace(overrides, topic=type_)


def replicator(careless: type[Replicator]) -> Patch:
    """Return a patch with which topics replicate carelessly."""

    class CarelesslyReplicated(Topic):
        replicator_type: type[Any] = careless

    return topic(CarelesslyReplicated)


def dispatching(type_: SubscriptionType) -> Callable[[Any], Patch]:
    """Return a function that makes a patch: subscriptions of a type dispatch with the decorated strategy."""

    def wrap(careless: type[DispatchStrategy]) -> object:
        def made(wanted: SubscriptionType, cursor: Cursor, limits: DispatchLimits) -> DispatchStrategy:
            return careless(cursor, limits) if wanted is type_ else strategy_for(wanted, cursor, limits)

        return made

    return part("strategy_for", wrap)
