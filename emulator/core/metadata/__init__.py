"""Metadata events between clusters (PIP-136), the rules: what an event is, which one wins, what everybody has.

event.py           an event and its stamp; the one gate for what comes from outside
elements.py        a document as elements, each of which is a path of its own in the order of events
record.py          what is known of one document: the winner of each element, tombstones, who lost
precedence.py      which of two events wins: the proposal's rule, and upstream's
merge.py           one transaction of a cluster's store: a change made here, events that came from elsewhere
version_vector.py  what each cluster has of each source, what it misses, which tombstones may go
losses.py          clusters that are declared lost, and come back
messages.py        the messages of the event topic
mirror.py          the configuration store as one region knows it
"""
