"""Metrics as text, in the two formats that Prometheus reads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class MetricFamily:
    """Samples of one name. A counter's name ends in `_total`."""

    name: str
    kind: str
    """gauge, counter or summary."""
    help: str
    samples: list[tuple[Labels, float, str]] = field(default_factory=list)

    def add(self, value: float, labels: Mapping[str, str] | None = None, suffix: str = "") -> None:
        """`suffix`: `_sum` or `_count` of a summary."""
        self.samples.append((tuple((labels or {}).items()), value, suffix))


def wants_openmetrics(accept: str) -> bool:
    """Whether a client that sends this header prefers OpenMetrics."""
    return any(part.split(";")[0].strip() == "application/openmetrics-text" for part in accept.split(","))


def text_of(families: Iterable[MetricFamily], *, openmetrics: bool) -> str:
    """Families without samples are left out."""
    lines = [
        line for family in families if family.samples for line in _lines(family, openmetrics=openmetrics)
    ]
    return "".join(lines) + ("# EOF\n" if openmetrics else "")


def _lines(family: MetricFamily, *, openmetrics: bool) -> Iterator[str]:
    named = family.name.removesuffix("_total") if openmetrics and family.kind == "counter" else family.name
    yield f"# HELP {named} {_escaped(family.help, quotes=openmetrics)}\n"
    yield f"# TYPE {named} {family.kind}\n"
    for labels, value, suffix in family.samples:
        name_of_sample = family.name + suffix
        inside = ",".join(f'{name}="{_escaped(one, quotes=True)}"' for name, one in labels)
        yield (
            f"{name_of_sample}{{{inside}}} {_number(value)}\n"
            if inside
            else f"{name_of_sample} {_number(value)}\n"
        )


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return str(round(value, 6)) if math.isfinite(value) else "NaN"


def _escaped(text: str, *, quotes: bool) -> str:
    plain = text.replace("\\", "\\\\").replace("\n", "\\n")
    return plain.replace('"', '\\"') if quotes else plain
