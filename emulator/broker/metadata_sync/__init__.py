"""Sync of metadata events between clusters, in a region (docs/components/metadata-sync.md)."""
