"""Replication from this region to the others: links, replicators and their state."""
