"""The newest message of each key of a topic, in a log of its own."""
