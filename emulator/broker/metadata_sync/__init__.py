"""Metadata events between clusters, as a region takes part in them (docs/components/metadata-sync.md)."""
