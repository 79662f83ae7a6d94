"""Schemas: the schema versions of a topic, and the compatibility of new schemas (docs/components/schemas.md)."""
