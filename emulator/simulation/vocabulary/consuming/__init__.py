"""How messages are handed out and shared, and how fast."""
