"""Rules of metadata synchronisation between clusters (PIP-136): events, which one wins, what each cluster has.

event.py           an event, its stamp and the elements of a document; the one gate for events from other clusters
record.py          one document: which of two events wins, the winner of each element, tombstones, rejected changes
merge.py           one transaction of a cluster's store: a local change, events of other clusters
version_vector.py  what each cluster has of each source, what it misses, which tombstones may be deleted
pending_changes.py changes that are stored but not published yet
exclusions.py      clusters that are declared lost, and what happens when one comes back
messages.py        messages of the event topic
outbox.py          which events are published next
mirror.py          the configuration store as one region knows it
"""
