"""Topics that keep nothing (docs/components/non-persistent.md)."""
