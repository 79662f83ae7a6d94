"""A topic of a region: its log, its producers and its readable messages."""
