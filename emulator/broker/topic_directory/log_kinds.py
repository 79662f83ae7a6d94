"""The kinds of logs in a region's store, by their names."""

from __future__ import annotations

from enum import Enum

from emulator.model.values import TopicName


class LogKind(Enum):
    """The purpose of a log; the value is the prefix of its name."""

    MESSAGES = "persistent"
    COMPACTED_VIEW = "compacted"
    """The newest message of each key of a topic. No client publishes to it."""
    INTERNAL = "internal"
    """The region's own: no client sees it."""


def kind_of(log_name: str) -> LogKind | None:
    """None: it is not a log of a region."""
    domain, separator, rest = log_name.partition("://")
    if not separator or domain not in {kind.value for kind in LogKind}:
        return None
    try:
        TopicName.parse(f"persistent://{rest}")
    except ValueError:
        return None
    return LogKind(domain)
