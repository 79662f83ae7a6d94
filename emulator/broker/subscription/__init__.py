"""A subscription of a topic: its cursor, its consumers, and its position in other regions (PIP-33)."""
