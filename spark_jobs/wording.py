"""Texts that checks, figures and the report share: counts, durations, and every hint that a verdict prints.

A hint names what a reader may look at first. `causes`, `checks.check`, `loss` and `replication_state` decide when it
is printed; tests/spark_jobs/test_wording.py evaluates a run that meets each condition, and one that does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hint:
    """A text that the report prints when a condition holds."""

    condition: str
    """Condition under which the hint is printed: one sentence."""
    text: str
    """Text of the hint, with a field in braces for each value that depends on the run."""


HINTS: Mapping[str, Hint] = {
    # Printed with a check that failed (`causes`).
    "region-down": Hint(
        "A region that a witness names was killed, lost, stopped or paused at that time or up to 5 s later.",
        "{region} was {done} at {at} s{until}.",
    ),
    "program-down": Hint(
        "A witness names a subscription, and a step ended or paused a program in a region that a witness names, at that"
        " time or up to 5 s later.",
        "{program} in {region} was {done} at {at} s{until}.",
    ),
    "link-fault": Hint(
        "A link between two regions that witnesses name, or any link of the only one, was cut, held or slowed then.",
        "The link {region} {arrow} {other_region} was {done} at {at} s{until}.",
    ),
    "store-away": Hint(
        "The configuration store of the cluster of a region that a witness names was unavailable then.",
        "The configuration store of {region} was unavailable at {at} s{until}.",
    ),
    "no-fault": Hint(
        "None of these faults was active between the first and 5 s after the last time that witnesses name.",
        "No fault of {where} was active between {since} s and {upto} s.",
    ),
    # Why an absent copy is not proven lost (`checks.check`).
    "log-unread": Hint(
        "The log of the region is missing, or a part of it cannot be read.",
        "the log of {region} is missing or damaged",
    ),
    "down-at-the-end": Hint(
        "The copy's region or its origin region was down when the history ended.",
        "{region} was down when the history ended",
    ),
    "link-down-at-the-end": Hint(
        "The link from the origin region was cut or held when the history ended.",
        "the link from {origin} to {region} was cut or held when the history ended",
    ),
    "on-the-way": Hint(
        "The message was acknowledged less than 2 s plus twice the longest latency before the logs were read.",
        "replication from {origin} to {region} may still be in progress",
    ),
    # Consequences of the loss of a region (`loss`, `replication_state`).
    "kept-in-lost-log": Hint(
        "The log of a lost region can be read and has messages that no remaining region stores.",
        "The log of {regions} still has {messages} that no remaining region stores: starting it again would recover"
        " them.",
    ),
    "snapshots-stopped": Hint(
        "A region was lost for good, the replication clusters of the topic's namespace still name it, and another"
        " fail-over would read messages again.",
        "No snapshot completes without {regions}, so this number grows with every consumed message, until the"
        " replication clusters of the namespace leave {them} out.",
    ),
}


def hint(name: str, **fields: object) -> str:
    """Return the text of a hint with its fields filled in."""
    return HINTS[name].text.format(**fields)


def count(number: int, noun: str = "message") -> str:
    """Return a number and its noun: `1 message`, `9,312 messages`, `2 copies`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def duration_text(seconds: float) -> str:
    """Return a duration with its unit: `47 ms`, `0.840 s`, `12.345 s`."""
    # Figures are rounded to 3 digits too, so a duration and its rounded figure have the same text.
    rounded = round(seconds, 3)
    return f"{rounded * 1000:.0f} ms" if rounded < 0.1 else f"{rounded:,.3f} s"
