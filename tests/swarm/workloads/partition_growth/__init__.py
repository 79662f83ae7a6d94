"""Partitions that grow, lists, patterns and table views."""
