"""Which consumer of a subscription gets which entry next. The contract of this room: docs/components/dispatch.md.

contract.py        the words
strategy.py        what all strategies share
single_active.py   EXCLUSIVE, FAILOVER
shared.py          SHARED
key_shared.py      KEY_SHARED
keys.py            which consumer a key belongs to
dispatcher.py      who may join, which strategy serves, what an acknowledgement does
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
