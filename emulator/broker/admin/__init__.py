"""The HTTP port of a region: its admin API."""
