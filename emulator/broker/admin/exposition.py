"""Metrics as text, in the two formats that Prometheus reads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class MetricFamily:
    """The samples of one metric name. The name of a counter ends in `_total`."""

    name: str
    kind: str
    """`gauge`, `counter` or `summary`."""
    help: str
    samples: list[tuple[Labels, float, str]] = field(default_factory=list)

    def add(self, value: float, labels: Mapping[str, str] | None = None, suffix: str = "") -> None:
        """Add a sample. `suffix`: `_sum` or `_count` of a summary."""
        self.samples.append((tuple((labels or {}).items()), value, suffix))


class Metrics:
    """The metric families of a response, in the order in which they were created."""

    def __init__(self) -> None:
        self.families: dict[str, MetricFamily] = {}

    def family(self, name: str, help_: str, kind: str = "") -> MetricFamily:
        """Return the family of a name; create it if needed. `kind`: by default a counter if the name ends in `_total`,
        else a gauge."""
        kind = kind or ("counter" if name.endswith("_total") else "gauge")
        return self.families.setdefault(name, MetricFamily(name, kind, help_))

    def add(self, name: str, help_: str, value: float, **labels: str) -> None:
        self.family(name, help_).add(value, labels)

    def add_fields(
        self, rows: Mapping[str, tuple[str, str]], values: Mapping[str, Any], **labels: str
    ) -> None:
        """Add a sample for each field that `values` contains. `rows`: name of the metric -> (field, help)."""
        for name, (field_, help_) in rows.items():
            if field_ in values:
                value = values[field_]
                self.add(name, help_, int(value) if isinstance(value, bool) else value, **labels)


def wants_openmetrics(accept: str) -> bool:
    """Whether this Accept header contains OpenMetrics."""
    return any(part.split(";")[0].strip() == "application/openmetrics-text" for part in accept.split(","))


def text_of(families: Iterable[MetricFamily], *, openmetrics: bool) -> str:
    """Return the text of all families that have samples."""
    lines = [
        line for family in families if family.samples for line in _lines(family, openmetrics=openmetrics)
    ]
    return "".join(lines) + ("# EOF\n" if openmetrics else "")


def _lines(family: MetricFamily, *, openmetrics: bool) -> Iterator[str]:
    family_name = (
        family.name.removesuffix("_total") if openmetrics and family.kind == "counter" else family.name
    )
    yield f"# HELP {family_name} {_escape(family.help, quotes=openmetrics)}\n"
    yield f"# TYPE {family_name} {family.kind}\n"
    for labels, value, suffix in family.samples:
        sample_name = family.name + suffix
        label_text = ",".join(f'{name}="{_escape(one, quotes=True)}"' for name, one in labels)
        yield (
            f"{sample_name}{{{label_text}}} {_format_number(value)}\n"
            if label_text
            else f"{sample_name} {_format_number(value)}\n"
        )


def _format_number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return str(round(value, 6)) if math.isfinite(value) else "NaN"


def _escape(text: str, *, quotes: bool) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quotes else escaped
