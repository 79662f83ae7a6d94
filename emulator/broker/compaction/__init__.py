"""Topic compaction: the newest message of each key, in a log of its own."""
