"""Faults that end with a `with` block, and the link faults of a program that have not ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

from emulator.config.link_shape import LinkShape
from emulator.errors import RuntimeFailure
from emulator.runtimes.contract import Link
from emulator.runtimes.faults import LinkFault


class FaultScope:
    """A fault that has begun. Used as a context manager, it ends the fault when its block ends."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end

    def __enter__(self) -> FaultScope:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if problem is None:
            self._end()
        else:
            with suppress(RuntimeFailure):  # the error of the block is raised
                self._end()


class ActiveLinkFaults:
    """Link faults that a program began, oldest first, each with the links on which it has not ended. On the end of one
    of them the links keep the others."""

    def __init__(self) -> None:
        self._faults: list[tuple[LinkFault, set[Link]]] = []

    def begin(self, fault: LinkFault) -> None:
        self._faults.append((fault, set(fault.links)))

    def heal(self, links: set[Link] | None = None) -> None:
        """Forget all faults of these links; None: of all links."""
        for _, remaining in self._faults:
            remaining.difference_update(remaining if links is None else links)
        self._faults = [(fault, remaining) for fault, remaining in self._faults if remaining]

    def end(self, ended: LinkFault) -> set[Link]:
        """Forget a fault, and return the links on which it had not ended."""
        links = next((remaining for fault, remaining in self._faults if fault is ended), set())
        self._faults = [(fault, remaining) for fault, remaining in self._faults if fault is not ended]
        return links

    def on(self, links: set[Link]) -> Iterator[LinkFault]:
        """Yield the faults of any of these links, oldest first."""
        return (fault for fault, remaining in self._faults if remaining & links)

    def values_without(
        self, ended: LinkFault, link: Link, declared: LinkShape, current: LinkShape
    ) -> Mapping[str, Any]:
        """Return the fields that `ended` changed, with the values that the other faults and the topology give them."""
        if armed := ended.changes.get("arm"):
            kept = [one for one in current.frame_faults if replace(one, number=armed.number) != armed]
            return {"frame_faults": tuple(kept)}
        shape = declared
        for other in self.on({link}):
            shape = shape.changed({name: value for name, value in other.changes.items() if name != "arm"})
        return {name: getattr(shape, name) for name in ended.changes}
