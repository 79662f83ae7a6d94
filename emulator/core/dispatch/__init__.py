"""Dispatch of the entries of a subscription to its consumers. Contract: docs/components/dispatch.md.

types.py               types of dispatch
strategy.py            base of all strategies; why messages are not consumed
single_active.py       EXCLUSIVE, FAILOVER
multiple_consumers.py  base of SHARED and KEY_SHARED: redelivery, delayed entries, unacknowledged entries
delayed.py             entries that are not due yet
shared.py              SHARED: round robin; all chunks of a message go to one consumer
key_shared.py          KEY_SHARED
consistent_hash.py     assignment of keys to consumers
dispatcher.py          admission of consumers, choice of the strategy, acknowledgements; strategies for non-persistent
                       topics
"""
