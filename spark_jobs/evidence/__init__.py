"""Decoders of the values that regions store, independent of the engines and, except for the format of keys, of the
broker's code.

A check that used the broker's code would share its defects. The verdict and the checkers of tests/swarm use the same
decoders.

cursors.py               positions of subscriptions
grants.py                exclusive access
metadata_fold.py         the documents that result from metadata events
positions.py             the positions that a log can have
transaction_journals.py  transaction keys
"""
