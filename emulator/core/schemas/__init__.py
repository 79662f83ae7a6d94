"""Schemas: the versions of a topic, and which schema may follow which (docs/components/schemas.md)."""
