"""The details of a subscription in the output of `geoemu explain subscription`, in lines of at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from emulator.model.subscription_details import (
    KnownSnapshot,
    ReceivedPosition,
    SentPosition,
    SubscriptionDetails,
)

COLUMNS = 80
INDENT = " " * 13
SNAPSHOTS_MAX = 3
"""Maximum number of cached snapshots that are listed."""


def details_as_lines(details: SubscriptionDetails) -> list[str]:
    """Return the details as indented lines."""
    return [
        *_entry("beyond it", _beyond(details)),
        *_entry("newest", _newest(details.newest_snapshot)),
        *_cached(details),
        *(line for one in details.sent for line in _entry("sent", _sent(one))),
        *(line for one in details.received for line in _entry("received", _received(one))),
        *_entry("updates", _counts(details)),
    ]


def _entry(label: str, text: str) -> list[str]:
    return wrap_line(f"  {label:<11}{text}", COLUMNS)


def wrap_line(line: str, columns: int | None) -> list[str]:
    """Return a line of an explanation in lines of at most `columns`, the further ones indented; a word is never split.
    None: the line alone."""
    if columns is None:
        return [line]
    return [wrapped for one in line.split("\n") for wrapped in _wrap(one, columns)]


def _wrap(line: str, columns: int) -> list[str]:
    text = line.lstrip()
    return textwrap.wrap(
        text,
        columns,
        initial_indent=line[: len(line) - len(text)],
        subsequent_indent=INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _beyond(details: SubscriptionDetails) -> str:
    entries, ranges, batches = (
        details.acknowledged_entries,
        details.acknowledged_ranges,
        details.partial_batches,
    )
    return (
        f"{_number(entries, 'entry', 'entries')} in {_number(ranges, 'range')} and "
        f"{_number(batches, 'partial batch', 'partial batches')} are acknowledged"
    )


def _newest(snapshot: KnownSnapshot | None) -> str:
    return "no snapshot is known" if snapshot is None else f"snapshot {_snapshot(snapshot)}"


def _cached(details: SubscriptionDetails) -> Iterator[str]:
    """Yield the snapshots that mark-delete has not reached: the oldest ones, which it reaches next."""
    waiting = [one for one in details.cached_snapshots if not one.is_reached]
    for snapshot in waiting[:SNAPSHOTS_MAX]:
        yield from _entry("to reach", f"snapshot {_snapshot(snapshot)}")
    if len(waiting) > SNAPSHOTS_MAX:
        yield from _entry("", f"and {len(waiting) - SNAPSHOTS_MAX} newer snapshots")


def _snapshot(snapshot: KnownSnapshot) -> str:
    elsewhere = ", ".join(f"{region} {position}" for region, position in sorted(snapshot.elsewhere.items()))
    return f"{snapshot.here}{_ago(snapshot.age_ms)}: {elsewhere}"


def _sent(sent: SentPosition) -> str:
    stored = "stored there" if sent.is_stored_there else "not stored there yet"
    bound = sent.redelivered_at_most
    redelivered = "" if bound is None else f"; fail-over redelivers at most {_number(bound, 'message')}"
    return f"{sent.region} {sent.position}{_ago(sent.age_ms)}, {stored}{redelivered}"


def _received(received: ReceivedPosition) -> str:
    position = f" {received.position}" if received.position else ""
    return f"{received.region}{position}{_ago(received.age_ms)}: {received.outcome}"


def _counts(details: SubscriptionDetails) -> str:
    return (
        f"{details.updates_sent} sent, {details.updates_applied} applied, {details.updates_ignored} ignored "
        "since the topic was loaded"
    )


def _ago(age_ms: int | None) -> str:
    return "" if age_ms is None else f", {age_ms / 1000:.1f} s ago"


def _number(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or f'{one}s'}"
