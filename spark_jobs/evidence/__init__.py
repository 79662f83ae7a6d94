"""Readers of what regions store, independent of the broker's own code: bytes in, values out, no engine.

A check that read them with the code that wrote them would share its defects. The verdict and the checkers of
tests/swarm use the same readers.

cursors.py               positions of subscriptions
grants.py                exclusive access
metadata_fold.py         which documents metadata events mean
transaction_journals.py  transaction keys
"""
