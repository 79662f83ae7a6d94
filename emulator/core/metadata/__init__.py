"""Rules of metadata synchronisation between clusters (PIP-136): events, merging, version vectors.

event.py           an event, its stamp and the elements of a document; validation of events from other clusters
record.py          one document: which of two events wins, the winner of each element, tombstones, rejected changes
merge.py           one transaction of a cluster's store: a local change, events of other clusters
version_vector.py  which events of each origin a cluster has; which tombstones may be removed; changes that are
                   published before they are applied
stored.py          rows of the configuration store; excluded paths, clusters that are declared lost
messages.py        messages of the event topic, and which events are published next
mirror.py          a region's copy of the configuration store
"""
