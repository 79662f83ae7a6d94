"""Policies, one file a family; `registry` has them all."""
