"""Metadata events between clusters, as a region takes part in them (docs/rooms/metadata-sync.md)."""
