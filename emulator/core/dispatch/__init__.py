"""Which consumer of a subscription receives which entry next. Contract: docs/components/dispatch.md.

types.py               types of dispatch
strategy.py            what all strategies share; why messages are not consumed
single_active.py       EXCLUSIVE, FAILOVER
multiple_consumers.py  what SHARED and KEY_SHARED have in common: redelivery, delayed entries, unacknowledged entries
delayed.py             entries that are not due yet
shared.py              SHARED; all chunks of a message to one consumer
key_shared.py          KEY_SHARED
consistent_hash.py     which consumer a key belongs to
dispatcher.py          which consumers may join, which strategy serves, what an acknowledgement does; strategies of
                       non-persistent topics
"""
