"""Figures for Prometheus, in its text format. So far those of exclusive producers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from emulator.broker.admin.http import Response
from emulator.broker.admin.resource import Call, Resource, reads
from emulator.broker.admin.scope import Scope
from emulator.broker.region import Region

TOPICS_MAX: Final = 1_000
"""So many topics have lines of their own; the rest is in the sums."""


async def metrics(call: Call) -> Response:
    return Response("".join(_lines(call.place.region)), text=True)


def _lines(region: Region) -> Iterator[str]:
    waiting = {
        name: count
        for name, topic in region.directory.serving.items()
        if (count := topic.access.waiting_count)
    }
    figures = region.access_figures
    yield from _family(
        "geoemu_exclusive_waiting", "gauge", "Producers that wait for exclusive access, by topic."
    )
    for name, count in sorted(waiting.items())[:TOPICS_MAX]:
        yield f'geoemu_exclusive_waiting{{topic="{_escaped(name)}"}} {count}\n'
    yield from _single(
        "geoemu_exclusive_waiting_sum", "gauge", "The same of all topics.", sum(waiting.values())
    )
    yield from _single(
        "geoemu_exclusive_promotions_total",
        "counter",
        "Producers that were given a topic after they had waited for it.",
        figures.promotions,
    )
    yield from _single(
        "geoemu_exclusive_fences_total",
        "counter",
        "Producers that lost a topic, or their place in line, to one that fenced them off.",
        figures.fences,
    )
    yield from _single(
        "geoemu_exclusive_ownerless_seconds_total",
        "counter",
        "How long producers waited for topics that nobody had.",
        round(figures.ownerless_seconds, 6),
    )


def _single(name: str, kind: str, help_: str, value: float) -> Iterator[str]:
    yield from _family(name, kind, help_)
    yield f"{name} {value}\n"


def _family(name: str, kind: str, help_: str) -> Iterator[str]:
    yield f"# HELP {name} {help_}\n# TYPE {name} {kind}\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


RESOURCES = (
    Resource(
        "/metrics",
        Scope.REGION,
        get=reads(metrics, "Figures for Prometheus; so far those of exclusive producers.", text=True),
    ),
)
