"""Compare the figures of a run with the limits that the user set for it (`emulator.run.limits`).

A limit is kept, missed or unknown, and does not change the verdict. The exit code follows the gravest result: a
violated guarantee, then a missed limit, then an unknown one. A missed limit outweighs an unknown result because it is
certain: more evidence cannot make a wait shorter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from emulator.run.limits import COUNTS, REPLICATION_LAG, Limit
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
    return tuple(
        _check_replication_lag(limit, figures.get("replication_lag") or [])
        if limit.measure in REPLICATION_LAG
        else _check_limit(limit, _figures_of(limit.measure, figures))
        for limit in limits
    )


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


def _check_replication_lag(limit: Limit, lags: Sequence[Mapping[str, Any]]) -> LimitResult:
    """Compare bounds with a limit: it is kept if every upper bound keeps it, missed if a lower bound does not."""
    if not lags:
        sentence = f"the logs and the history have no data for {limit.measure}"
        return LimitResult(limit, "unknown", sentence)
    shown = [lag for lag in lags if limit.actor in (None, lag["link"])]
    if not shown:
        known = ", ".join(sorted({lag["link"] for lag in lags}))
        return LimitResult(
            limit, "unknown", f"there is no figure of {limit.actor}; figures exist for: {known}"
        )
    statistic = limit.measure.partition(".")[2] or "max"
    outcomes = [(lag, _bounds_outcome(limit, lag[statistic])) for lag in shown]
    outcome = min((one for _, one in outcomes), key=("missed", "unknown", "kept").index)
    deciding = [lag for lag, one in outcomes if one == outcome]
    # A region's log without traffic has wide bounds: the entry that is certainly the latest is the worst.
    bound = "at_least" if outcome == "missed" else "at_most"
    worst = max(deciding, key=lambda lag: _or_forever(lag[statistic][bound]))
    sentence = f"{limit.measure} was {_bounds_text(worst[statistic])} ({worst['link']}, {worst['topic']})"
    if outcome == "unknown":
        sentence += f"; the traffic in {worst['region']} bounds it no closer"
    return LimitResult(limit, outcome, sentence)


def _bounds_outcome(limit: Limit, bounds: Mapping[str, float | None]) -> Outcome:
    least, most = bounds["at_least"] or 0.0, _or_forever(bounds["at_most"])
    kept = limit.is_kept_by(least), limit.is_kept_by(most)
    if all(kept):
        return "kept"
    may_be_equal = limit.operator == "=" and least <= limit.value <= most
    return "unknown" if any(kept) or may_be_equal else "missed"


def _bounds_text(bounds: Mapping[str, float | None]) -> str:
    least, most = bounds["at_least"] or 0.0, bounds["at_most"]
    if most is None:
        return f"at least {duration_text(least)}: a message never arrived"
    return (
        f"between {duration_text(least)} and {duration_text(most)}"
        if least
        else f"at most {duration_text(most)}"
    )


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
