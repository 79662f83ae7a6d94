"""Non-persistent topics (docs/components/non-persistent.md)."""
