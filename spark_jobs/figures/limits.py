"""Compare the figures of a run with the limits that the user set for it (`emulator.run.limits`).

A limit is kept, missed or unknown, and does not change the verdict. The exit code follows the gravest result: a
violated guarantee, then a missed limit, then an unknown one. A missed limit outweighs an unknown result because it is
certain: more evidence cannot make a wait shorter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from emulator.run.limits import COUNTS, Limit
from spark_jobs.verdict import EXIT_CODES, Verdict
from spark_jobs.wording import duration_text

Outcome = Literal["kept", "missed", "unknown"]
MISSED_EXIT_CODE = 1


@dataclass(frozen=True, slots=True)
class LimitResult:
    """The result of comparing one limit with its figures."""

    limit: Limit
    outcome: Outcome
    sentence: str

    def as_json(self) -> dict[str, str]:
        return {"limit": self.limit.text, "outcome": self.outcome, "sentence": self.sentence}


def check_limits(limits: Iterable[Limit], figures: Mapping[str, Any]) -> tuple[LimitResult, ...]:
    """Compare limits with figures. `figures`: as in report.json."""
    return tuple(_check_limit(limit, _figures_of(limit.measure, figures)) for limit in limits)


def exit_code(verdict: Verdict, limits: Sequence[LimitResult]) -> int:
    """Return the exit code of the gravest result, in the order invalid, missed, unknown, valid."""
    outcomes = {result.outcome for result in limits}
    if verdict == "invalid" or "missed" in outcomes:
        return MISSED_EXIT_CODE
    return EXIT_CODES["unknown" if "unknown" in outcomes else verdict]


def _check_limit(limit: Limit, by_actor: Mapping[str, float]) -> LimitResult:
    figures = by_actor
    if limit.actor is not None:
        if limit.actor not in by_actor:
            known = ", ".join(sorted(by_actor)) or "none"
            sentence = f"there is no figure of {limit.actor}; figures exist for: {known}"
            return LimitResult(limit, "unknown", sentence)
        figures = {limit.actor: by_actor[limit.actor]}
    if not figures:
        return _without_figures(limit)
    actor, worst = max(figures.items(), key=lambda pair: pair[1])
    suffix = f" ({actor})" if actor else ""
    outcome: Outcome = "kept" if limit.is_kept_by(worst) else "missed"
    return LimitResult(limit, outcome, f"{limit.measure} was {_figure_text(limit.measure, worst)}{suffix}")


def _without_figures(limit: Limit) -> LimitResult:
    """Return the result of a limit whose figure does not exist. Limits on loss and gap are kept: no region was lost or
    left; all others are unknown."""
    if limit.measure == "unrecovered":
        return LimitResult(limit, "kept", "no region was lost")
    if limit.measure == "gap":
        return LimitResult(limit, "kept", "no subscription lost its region")
    return LimitResult(limit, "unknown", f"the history has no data for {limit.measure}")


def _figures_of(measure: str, figures: Mapping[str, Any]) -> dict[str, float]:
    """Return actor -> figure; the name is empty for a figure without an actor."""
    measures = figures["measures"]
    match measure.split("."):
        case ["unrecovered"]:
            return _unrecovered(figures["loss"])
        case ["redelivered"]:
            return dict(measures["repeated"])
        case ["gap"]:
            return {name: _or_forever(seconds) for name, seconds in figures["gaps"].items()}
        case ["latency", statistic]:
            return {name: one[statistic] for name, one in measures["latency_seconds"].items()}
        case ["lag"]:
            return {name: one["max"] for name, one in measures["lag_seconds"].items()}
        case [stretch]:
            return {name: one["seconds"] for name, one in measures[stretch].items()}
        case _:
            raise AssertionError(measure)


def _unrecovered(loss: Mapping[str, Any] | None) -> dict[str, float]:
    if loss is None:
        return {}
    by_producer: dict[str, float] = {"": loss["unrecovered"]}
    for row in loss["by_producer"]:
        by_producer[row["producer"]] = by_producer.get(row["producer"], 0) + row["acknowledged"]
    return by_producer


def _or_forever(seconds: float | None) -> float:
    return float("inf") if seconds is None else seconds


def _figure_text(measure: str, figure: float) -> str:
    if measure in COUNTS:
        return f"{figure:,.0f}"
    return "endless" if figure == float("inf") else duration_text(figure)
