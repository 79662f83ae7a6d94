"""A region's synchronisation of metadata events with other clusters (docs/components/metadata-sync.md)."""
