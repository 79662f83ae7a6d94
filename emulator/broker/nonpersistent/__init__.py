"""Topics that keep nothing (docs/rooms/non-persistent.md)."""
