"""A topic of a region: its log, those that publish to it, and what may be read of it."""
