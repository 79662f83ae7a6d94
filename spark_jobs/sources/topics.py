"""Names of topics: as regions store them, and as the history writes them."""

from __future__ import annotations

import re
from collections.abc import Collection

_SYSTEM_TOPIC = re.compile(r"[a-z-]+://(pulsar/system/|[^/]+/[^/]+/__)")

_PARTITION = re.compile(r"-partition-\d+$")


def history_topic(log_topic: str, history_topics: Collection[str]) -> str | None:
    """The history's name of a topic that is stored as `log_topic`: of a partition the partitioned topic, unless the
    history names partitions itself. None for system topics, which are not checked."""
    if _SYSTEM_TOPIC.match(log_topic):
        return None
    whole = _PARTITION.sub("", log_topic)
    return whole if whole in history_topics else log_topic
