"""A journey in lines for people: when, and what happened."""

from __future__ import annotations

from collections.abc import Iterable

from spark_jobs.figures.journeys import Journey, Stop, StoredCopy

Line = tuple[float | None, str]
"""Milliseconds on the history's clock, None where nobody knows them."""

_PUBLISH = {
    "asked": "{producer} publishes it to {region}",
    "ok": "{region} acknowledges it{place}",
    "failed": "{region} rejects it{why}",
    "unknown": "its publish ends without a response from {region}{why}",
}
_ACKNOWLEDGE = {
    "asked": "{subscription} acknowledges it to {region}{how}",
    "ok": "{region} confirms that {subscription} acknowledged it{how}",
    "failed": "{region} rejects the acknowledgement of {subscription}{why}",
    "unknown": "the acknowledgement of {subscription} ends without a response from {region}{why}",
}


def title_of_journey(journey: Journey) -> str:
    return f"{journey.producer} {journey.sequence_id} of {journey.origin_region} in {journey.topic}"


def journey_lines(journey: Journey, start_ms: float) -> list[tuple[str, str]]:
    """(when, what), in the order in which it happened; a copy stands where it was seen first."""
    lines: list[Line] = [(copy.by_ms, _stored(copy, start_ms)) for copy in journey.stored]
    lines += zip((stop.at_ms for stop in journey.stops), _told(journey), strict=True)
    # What happened at one moment keeps its order, and what nobody saw comes last.
    lines.sort(key=lambda line: float("inf") if line[0] is None else line[0])
    told = [("" if at_ms is None else _at(at_ms, start_ms), words) for at_ms, words in lines]
    told += [("", f"{region} does not store it, although it should") for region in journey.absent]
    if not journey.stored:
        told.append(("", "no region stores it"))
    if journey.stops_left_out:
        told.append(("", f"and {journey.stops_left_out:,} more times"))
    return told


def _told(journey: Journey) -> Iterable[str]:
    given: set[str] = set()
    for stop in journey.stops:
        if stop.op == "receive":
            again = " again" if stop.subscription in given else ""
            given.add(stop.subscription or "")
            yield f"{stop.subscription} receives it{again} in {stop.region}, from {stop.position}"
        else:
            forms = _PUBLISH if stop.op == "publish" else _ACKNOWLEDGE
            yield forms[stop.outcome].format(
                producer=journey.producer,
                region=stop.region,
                subscription=stop.subscription,
                place=f", at {stop.position}" if stop.position else "",
                how=_how(stop),
                why=f": {stop.error}" if stop.error else "",
            )


def _how(stop: Stop) -> str:
    return f", with everything up to {stop.position}" if stop.how == "cumulative" else ""


def _stored(copy: StoredCopy, start_ms: float) -> str:
    where = f"stored in {copy.region} at {copy.position}"
    if copy.after_ms is None:
        return where
    after = f"after {_at(copy.after_ms, start_ms)}"
    until = f"by {_at(copy.by_ms, start_ms)}" if copy.by_ms is not None else "until an unknown time"
    return f"{where}: {after}, {until}"


def _at(at_ms: float, start_ms: float) -> str:
    return f"{(at_ms - start_ms) / 1000:.3f} s"
