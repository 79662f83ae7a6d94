"""Which consumer of a subscription receives which entry next. Contract: docs/components/dispatch.md.

types.py            types of dispatch
strategy.py         what all strategies share
single_active.py    EXCLUSIVE, FAILOVER
shared.py           SHARED
chunk_affinity.py   SHARED: all chunks of a message to one consumer
delayed.py          entries that are not due yet
key_shared.py       KEY_SHARED
consistent_hash.py  which consumer a key belongs to
at_most_once.py     strategies of non-persistent topics
waits.py            why messages are not consumed
dispatcher.py       which consumers may join, which strategy serves, what an acknowledgement does
"""

from emulator.core.dispatch.consistent_hash import KeySharing
from emulator.core.dispatch.dispatcher import Dispatcher, StrategyFactory, strategy_for
from emulator.core.dispatch.key_shared import KeyShared
from emulator.core.dispatch.shared import Shared
from emulator.core.dispatch.single_active import SingleActive
from emulator.core.dispatch.strategy import DispatchStrategy
from emulator.core.dispatch.types import (
    Candidate,
    ConsumerState,
    Delivery,
    DispatchLimits,
    Read,
    SubscriptionType,
    Wake,
)

__all__ = [
    "Candidate",
    "ConsumerState",
    "Delivery",
    "DispatchLimits",
    "DispatchStrategy",
    "Dispatcher",
    "KeyShared",
    "KeySharing",
    "Read",
    "Shared",
    "SingleActive",
    "StrategyFactory",
    "SubscriptionType",
    "Wake",
    "strategy_for",
]
