"""Faults of single frames as faults of links: which links and frames they name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from emulator.errors import Refused
from emulator.model.frame_faults import FrameAction, FrameFault, check_link_of
from emulator.model.values import CLIENTS
from emulator.runtimes.contract import Link


def frame_changes(
    action: FrameAction, what: str, count: int = 1, nth: int = 1, by_ms: float = 0.0
) -> tuple[dict[str, Any], str]:
    """Raises Refused for an unknown name or a value out of range."""
    try:
        fault = FrameFault(action, what, count, nth, by_ms)
    except ValueError as problem:
        raise Refused(str(problem)) from None
    return {"arm": fault}, fault.words


def link_of(text: str) -> tuple[str, str]:
    """Return source and target of a link that is written `us->eu`. Raises Refused for other text."""
    source, arrow, target = (part.strip() for part in text.partition("->"))
    if not (source and arrow and target) or "->" in target:
        raise Refused(
            f"{text!r} is no direction of a link: write it like 'us->eu' or 'clients->us', in quotes"
        )
    return source, target


def check_links_of(fault: FrameFault, links: Iterable[Link]) -> None:
    """Raise Refused if the frames of a fault never pass one of these links."""
    for link in links:
        try:
            check_link_of(fault, clients=CLIENTS in link)
        except ValueError as problem:
            raise Refused(str(problem)) from None
