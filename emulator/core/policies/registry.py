"""All policies there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emulator.core.policies import (
    consuming,
    creation,
    inactivity,
    lifetime,
    limits,
    schemas,
    stored_only,
    subscribing,
    topics,
)
from emulator.core.policies.declaration import Policy

FAMILIES = (
    topics,
    creation,
    consuming,
    inactivity,
    limits,
    stored_only,
    lifetime,
    schemas,
    subscribing,
)

REGISTRY: Mapping[str, Policy[Any]] = {
    policy.name: policy for family in FAMILIES for policy in family.POLICIES
}
