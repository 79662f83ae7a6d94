"""Who may publish to a topic, who is next and why, in sentences."""

from __future__ import annotations

from typing import Final

from emulator.broker.topic.producer import Producer
from emulator.broker.topic.topic import Topic

NAMED_MAX: Final = 20
"""So many of those who wait, or of those they wait for, are named."""


def access_sentences(topic: Topic) -> list[str]:
    """How it is: owner, epoch, who waits in which order, the last change. Empty for a topic that never had an owner."""
    access = topic.access
    owner, line = access.owner, access.line
    if access.epoch is None and owner is None and not line and not access.home:
        return []
    said = []
    if access.home:
        said.append(f"clients publish in {access.home} only")
    if owner is not None and topic.producers.get(owner.producer_name) is owner:
        said.append(f"{_named(owner)} owns it in epoch {access.epoch}")
    elif owner is not None:
        said.append(f"{_named(owner)} is being given it")
    elif access.awaited is not None:
        said.append(f"it is kept for {access.awaited!r}, which had it in epoch {access.epoch}")
    else:
        said.append(
            "nobody owns it" + (f"; the newest epoch is {access.epoch}" if access.epoch is not None else "")
        )
    if line:
        more = f" and {len(line) - NAMED_MAX:,} more" if len(line) > NAMED_MAX else ""
        said.append(f"{len(line):,} wait: " + ", ".join(_place(one) for one in line[:NAMED_MAX]) + more)
    if access.standing.last_change:
        said.append(f"last change: {access.standing.last_change}")
    return said


def why_somebody_waits(topic: Topic) -> tuple[str, list[str]]:
    """Why those who wait have to, and what has to happen; empty when nobody waits."""
    access = topic.access
    line = access.line
    if not line:
        return "", []
    first = line[0].producer_name
    if access.home:
        return f"{first!r} waits, as clients publish in {access.home} only", [
            "the policy exclusive_home to change"
        ]
    if access.awaited is not None:
        return f"{first!r} waits, as the former owner may come back", [
            f"{access.awaited!r}, or its patience to be over"
        ]
    if access.owner is not None:
        return f"{first!r} waits for exclusive access", [f"{access.owner.producer_name!r} to leave"]
    shared = sorted(name for name, one in topic.producers.items() if one.source_region is None)
    more = f" and {len(shared) - NAMED_MAX:,} more" if len(shared) > NAMED_MAX else ""
    names = ", ".join(shared[:NAMED_MAX]) + more
    return f"{first!r} waits for exclusive access", [f"shared producers to leave: {names}"]


def _named(producer: Producer) -> str:
    return f"{producer.producer_name!r} ({producer.access_mode.label}, {producer.connection.address})"


def _place(producer: Producer) -> str:
    priority = f" (priority {producer.queue_priority})" if producer.queue_priority else ""
    return f"{producer.producer_name!r}{priority}"
