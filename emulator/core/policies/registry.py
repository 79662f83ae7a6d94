"""All policies there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emulator.core.policies import (
    compaction,
    consuming,
    creation,
    inactivity,
    lifetime,
    limits,
    regions,
    schemas,
    subscribing,
    topics,
)
from emulator.core.policies import stored_only as kept
from emulator.core.policies.declaration import Policy

FAMILIES = (
    topics,
    creation,
    compaction,
    consuming,
    inactivity,
    limits,
    kept,
    lifetime,
    regions,
    schemas,
    subscribing,
)

REGISTRY: Mapping[str, Policy[Any]] = {
    policy.name: policy for family in FAMILIES for policy in family.POLICIES
}
