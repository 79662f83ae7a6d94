"""Compute which topics a host owns at first, and its priority for each of the others. Pure functions.

M hosts share N topics (the uptime checkers of PIP-440). Host i of M begins with every Mth topic, and waits for all the
others. The rule decides which host takes over a topic when its owner dies:

    a number    the same for each topic; 0 for all: the host that waited longest takes over every topic
    balanced    the topics of a host go to each of the others in turn
    random      each host has a number for each topic (rendezvous hashing of both names, so always the same)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

PriorityRule = int | Literal["balanced", "random"]
DRAWN_MAX = 1_000_000


def topics_named(base: str, count: int | None) -> tuple[str, ...]:
    """`orders`, or `orders-1` to `orders-<count>`."""
    return (base,) if count is None else tuple(f"{base}-{number}" for number in range(1, count + 1))


def hosts_named(name: str, count: int | None) -> tuple[str, ...]:
    """The same with hosts."""
    return topics_named(name, count)


def own_topics(topics: Sequence[str], host_index: int, host_count: int) -> tuple[str, ...]:
    """The share that a host begins with."""
    return tuple(topics[host_index::host_count])


def priorities(
    rule: PriorityRule, host: str, host_index: int, host_count: int, topics: Sequence[str]
) -> tuple[int, ...]:
    """A host's priority for each topic."""
    if rule == "balanced":
        return tuple(_balanced(host_index, host_count, index) for index in range(len(topics)))
    if rule == "random":
        return tuple(_drawn(host, topic) for topic in topics)
    return tuple(rule for _ in topics)


def _balanced(host_index: int, host_count: int, topic_index: int) -> int:
    """The others line up behind a topic's own host in a ring, and each next topic of that host begins the ring one
    further. Its own host comes before all others."""
    behind = (host_index - topic_index) % host_count
    if behind == 0:
        return host_count
    turn = topic_index // host_count
    return host_count - 1 - (behind - 1 - turn) % (host_count - 1)


def _drawn(host: str, topic: str) -> int:
    digest = hashlib.blake2b(f"{host}\n{topic}".encode(), digest_size=8).digest()
    return 1 + int.from_bytes(digest, "big") % DRAWN_MAX
