"""Policies, in one module per family; `topic_policies.REGISTRY` contains all of them."""
