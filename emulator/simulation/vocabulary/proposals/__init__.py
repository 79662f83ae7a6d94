"""Worlds of what the proposals add: transaction keys, metadata of several clusters."""
