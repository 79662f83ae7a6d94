"""Every kind of world that `geoemu simulate` knows: how it is drawn, and what it is about."""

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
    """For who chooses among them."""
    draw: Callable[[int, Random], Plan]


def _policies_of(word: Word) -> Callable[[int, Random], Plan]:
    return partial(with_policies, word)


KINDS: dict[str, Kind] = {
    "swarm": Kind("anything", swarm),
    "drill": Kind("three regions, one kill, one cut", drill),
    "quiet": Kind("three regions, nothing goes wrong", quiet),
    "carry": Kind("replicated subscriptions over what was trimmed or has expired", carry),
    "change-metadata": Kind("policies and partitions of several clusters", change_metadata),
    changing_metadata.PUBLISHED_FIRST: Kind(
        "the same, published before it is set, as the proposal has it", change_metadata_published_first
    ),
    "compact": Kind(
        "a topic that is compacted", partial(with_right_clocks, compacting.WORD, compacting.TOPIC)
    ),
    "comply": Kind("schemas that a strategy keeps out", _policies_of(complying.WORD)),
    "cut-up": Kind("large messages in pieces", partial(over_wide_links, cutting_up.WORD)),
    "delay": Kind("messages that are due later", partial(with_right_clocks, delaying.WORD, delaying.TOPIC)),
    "delete-here": Kind("topics deleted in one of their regions", _policies_of(deleting.WORD)),
    "encrypt": Kind("messages that no region can read", partial(over_wide_links, encrypting.WORD)),
    "expire": Kind(
        "messages that expire or are evicted, topics that are deleted", _policies_of(expiring.WORD)
    ),
    "finish": Kind("topics that end", _policies_of(finishing.WORD)),
    "give-up": Kind("messages that come again, and dead letters", _policies_of(giving_up.WORD)),
    "hold-key": Kind("programs that share a transaction key", hold_key),
    "idle": Kind("subscriptions that nobody uses", _policies_of(idling.WORD)),
    "inactive-topic": Kind("topics that become inactive while links break", _policies_of(resting.WORD)),
    "keep-away": Kind("quotas that keep producers away", _policies_of(keeping_away.WORD)),
    "label": Kind("notes on subscriptions", _policies_of(labelling.WORD)),
    "limit": Kind("limits of who uses a topic, and rates", _policies_of(limiting.WORD)),
    "own-all": Kind("partitioned topics with one owner, compacted", _policies_of(owning.WORD)),
    "pass-by": Kind("topics that keep nothing", pass_by),
    "rank": Kind("consumers with levels of priority", rank),
    "replication-status": Kind(
        "subscriptions that are replicated in one region and not in another", _policies_of(switching.WORD)
    ),
    "retain": Kind("retention by age and size", partial(over_wide_links, retaining.WORD)),
    "spread": Kind("partitions that grow, lists, patterns, table views", _policies_of(spreading.WORD)),
    "stick-to-ranges": Kind(
        "consumers that say which keys they take", partial(with_right_clocks, sticking.WORD, sticking.TOPIC)
    ),
    "trim": Kind("logs that keep nothing which is acknowledged", trim),
}
"""By the name that `geoemu simulate` takes."""


def draw(kind: str, seed: int) -> Plan:
    """The plan of that kind which the seed stands for. KeyError when there is no such kind."""
    return KINDS[kind].draw(seed, Random(f"{kind}/{seed}"))
