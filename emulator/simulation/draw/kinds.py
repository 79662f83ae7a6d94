"""The kinds of simulated runs that `geoemu simulate` knows: how each is drawn, and what it tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

from emulator.simulation.draw.anything import swarm
from emulator.simulation.draw.of_words import (
    carry,
    change_metadata,
    change_metadata_published_first,
    hold_key,
    over_wide_links,
    pass_by,
    rank,
    trim,
    with_policies,
    with_right_clocks,
)
from emulator.simulation.draw.small import drill, quiet
from emulator.simulation.names import seed_name
from emulator.simulation.plan import Plan
from emulator.simulation.vocabulary.consuming import (
    compacting,
    delaying,
    giving_up,
    labelling,
    limiting,
    sticking,
)
from emulator.simulation.vocabulary.lifetime import (
    deleting,
    expiring,
    finishing,
    idling,
    keeping_away,
    resting,
    retaining,
    switching,
)
from emulator.simulation.vocabulary.proposals import changing_metadata
from emulator.simulation.vocabulary.publishing import complying, cutting_up, encrypting, owning
from emulator.simulation.vocabulary.spread import spreading
from emulator.simulation.vocabulary.word import Word


class Kind(NamedTuple):
    about: str
    """Printed by `--list`."""
    draw: Callable[[int, Random], Plan]


def _policies_of(word: Word) -> Callable[[int, Random], Plan]:
    return partial(with_policies, word)


KINDS: dict[str, Kind] = {
    "swarm": Kind("random workloads and faults", swarm),
    "failover": Kind("three regions, one kill, one cut link", drill),
    "no-faults": Kind("three regions, no faults", quiet),
    "chunking": Kind("large messages in chunks", partial(over_wide_links, cutting_up.WORD)),
    "compaction": Kind("topic compaction", partial(with_right_clocks, compacting.WORD, compacting.TOPIC)),
    "dead-letter": Kind("redelivered messages, dead letters, retry letters", _policies_of(giving_up.WORD)),
    "delayed-delivery": Kind(
        "messages with a delivery time", partial(with_right_clocks, delaying.WORD, delaying.TOPIC)
    ),
    "encryption": Kind("end-to-end encrypted messages", partial(over_wide_links, encrypting.WORD)),
    "expiry": Kind("expired and evicted messages, topics deleted by force", _policies_of(expiring.WORD)),
    "inactive-topic": Kind(
        "replication of topics that become inactive while links break", _policies_of(resting.WORD)
    ),
    "metadata-sync": Kind("policies and partitions of several clusters (PIP-136)", change_metadata),
    changing_metadata.PUBLISHED_FIRST: Kind(
        "the same with metadata_order: upstream", change_metadata_published_first
    ),
    "non-persistent": Kind("non-persistent topics", pass_by),
    "partition-growth": Kind(
        "growing partitioned topics, topic lists, patterns, table views", _policies_of(spreading.WORD)
    ),
    "partitioned-exclusive": Kind(
        "exclusive producers of partitioned topics, compacted", _policies_of(owning.WORD)
    ),
    "priority-levels": Kind("consumers with priority levels", rank),
    "quota-block": Kind("backlog quotas that block producers", _policies_of(keeping_away.WORD)),
    "rate-limits": Kind(
        "limits of producers, consumers and subscriptions; rates", _policies_of(limiting.WORD)
    ),
    "replication-status": Kind(
        "subscriptions whose replication is turned off and on", _policies_of(switching.WORD)
    ),
    "retention": Kind("retention by age and size", partial(over_wide_links, retaining.WORD)),
    "schema-compatibility": Kind("schema compatibility strategies", _policies_of(complying.WORD)),
    "sticky-ranges": Kind(
        "Key_Shared consumers with sticky ranges or out of order",
        partial(with_right_clocks, sticking.WORD, sticking.TOPIC),
    ),
    "subscription-expiry": Kind("expiry and deletion of unused subscriptions", _policies_of(idling.WORD)),
    "subscription-properties": Kind("properties of subscriptions", _policies_of(labelling.WORD)),
    "subscription-retention": Kind("replicated subscriptions over trimmed or expired messages", carry),
    "topic-deletion": Kind("topics deleted in one of their regions", _policies_of(deleting.WORD)),
    "topic-termination": Kind(
        "terminated topics, deletion without force, inactive topics", _policies_of(finishing.WORD)
    ),
    "transaction-key": Kind("programs that share a transaction key", hold_key),
    "trimming": Kind("retention of zero: acknowledged messages are trimmed", trim),
}
"""By the name that `geoemu simulate` takes."""


def draw(kind: str, seed: int) -> Plan:
    """Return the plan of this kind and seed. KeyError for an unknown kind."""
    return KINDS[kind].draw(seed, Random(f"{seed_name(kind)}/{seed}"))
