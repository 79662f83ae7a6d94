"""The HTTP port of a region."""
