"""What a runtime says to its regions, and asks them, on their admin ports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from emulator.config.region import LinkShape
from emulator.runtimes.admin_client import Answer, NoAnswer, call


@dataclass(frozen=True, slots=True)
class RegionReport:
    """A region's own answer to how it is."""

    ready: bool
    waiting_for: str
    """What it lacks, as a sentence; empty when it lacks nothing."""


async def ask_region(host: str, port: int, pid: int | None, expected_peers: Iterable[str]) -> RegionReport:
    """How a region is, given the peers that it ought to be linked with.

    NoAnswer when it says nothing, or when another process than `pid` is at its port (None: whoever it is).
    """
    target = f"/geoemu/v1/status?expect={quote(','.join(expected_peers))}"
    answer = await call(host, port, "GET", target)
    try:
        raw = answer.json()
        if pid is not None and raw["pid"] != pid:
            raise NoAnswer(f"process {raw['pid']} listens at its port")
        return RegionReport(raw["ready"], "; ".join(raw["waiting_for"]))
    except (ValueError, KeyError, TypeError) as problem:
        raise NoAnswer(describe(answer)) from problem


def link_request(link: tuple[str, str], shape: LinkShape) -> tuple[str, str, dict[str, Any]]:
    """Method, target and body that tell a region how one direction of a link is. Answered with 204."""
    source, target = (quote(end, safe="") for end in link)
    return "PUT", f"/geoemu/v1/links/{source}/{target}", asdict(shape)


def describe(answer: Answer) -> str:
    """An answer that was not expected, for an error message."""
    return f"it answered {answer.status} {answer.body[:200].decode(errors='replace')}"
