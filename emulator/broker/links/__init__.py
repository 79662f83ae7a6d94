"""Emulation of links: between regions, and between clients and their region."""
