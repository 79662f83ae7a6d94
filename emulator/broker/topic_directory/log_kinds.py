"""What the logs of a region's store are for, by their names."""

from __future__ import annotations

from enum import Enum

from emulator.model.values import TopicName


class LogKind(Enum):
    """What a log of the store is for; the value is how its name begins."""

    MESSAGES = "persistent"
    COMPACTED_VIEW = "compacted"
    """The newest message of each key of a topic. Nobody publishes to it."""
    INTERNAL = "internal"
    """The region's own: no client sees it."""


def kind_of(log_name: str) -> LogKind | None:
    """None: it is no log of ours."""
    domain, separator, rest = log_name.partition("://")
    if not separator or domain not in {kind.value for kind in LogKind}:
        return None
    try:
        TopicName.parse(f"persistent://{rest}")
    except ValueError:
        return None
    return LogKind(domain)
