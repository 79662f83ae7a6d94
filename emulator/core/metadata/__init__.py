"""Rules of metadata synchronisation between clusters (PIP-136): events, which one wins, what each cluster has.

event.py           an event, its stamp and the elements of a document; the one gate for events from other clusters
record.py          one document: which of two events wins, the winner of each element, tombstones, rejected changes
merge.py           one transaction of a cluster's store: a local change, events of other clusters
version_vector.py  what each cluster has of each source, what it misses, which tombstones may be deleted; changes that
                   are published before they are applied
stored.py          rows of the configuration store; excluded paths, clusters that are declared lost
messages.py        messages of the event topic, and which events are published next
mirror.py          the configuration store as one region knows it
"""
