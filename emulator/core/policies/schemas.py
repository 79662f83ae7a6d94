"""Policies of schemas: compatibility strategy, validation, and who may register a schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emulator.core.policies.codecs import BOOLEAN, one_of
from emulator.core.policies.declaration import Codec, Policy, Scope
from emulator.core.schemas.compatibility import AUTO_UPDATE, DEFAULT, CompatibilityStrategy


def _strategy(value: Any) -> CompatibilityStrategy:
    if not isinstance(value, str) or value not in CompatibilityStrategy.__members__:
        raise ValueError(f"{value!r} is none of {', '.join(CompatibilityStrategy.__members__)}")
    return CompatibilityStrategy[value]


def _nearest_defined(values: Sequence[CompatibilityStrategy]) -> CompatibilityStrategy:
    """Return the strategy of the narrowest scope that sets one; UNDEFINED counts as unset."""
    return next(
        (value for value in reversed(values) if value is not CompatibilityStrategy.UNDEFINED),
        CompatibilityStrategy.UNDEFINED,
    )


STRATEGY: Codec[CompatibilityStrategy] = Codec(
    _strategy, lambda value: value.name, {"type": "string", "enum": list(CompatibilityStrategy.__members__)}
)

SCHEMA_COMPATIBILITY: Policy[CompatibilityStrategy] = Policy(
    name="schema_compatibility_strategy",
    at_namespace="schemaCompatibilityStrategy",
    at_topic="schemaCompatibilityStrategy",
    codec=STRATEGY,
    default=CompatibilityStrategy.UNDEFINED,
    unset="UNDEFINED",
    scopes=frozenset(Scope),
    obeyed_by="emulator.broker.metadata.schemas",
    merge=_nearest_defined,
    doc=(
        "Compatibility strategy for new schema versions. UNDEFINED or unset: "
        "`schema_auto_update_compatibility_strategy`, or FULL if that is unset, too."
    ),
)
SCHEMA_AUTO_UPDATE: Policy[str] = Policy(
    name="schema_auto_update_compatibility_strategy",
    at_namespace="schemaAutoUpdateCompatibilityStrategy",
    codec=one_of(*AUTO_UPDATE),
    default="",
    scopes=frozenset({Scope.NAMESPACE}),
    obeyed_by="emulator.broker.metadata.schemas",
    doc="Older form of `schema_compatibility_strategy`, used if that is unset or UNDEFINED.",
)
SCHEMA_VALIDATION: Policy[bool] = Policy(
    name="schema_validation_enforced",
    at_namespace="schemaValidationEnforced",
    at_topic="schemaValidationEnforced",
    codec=BOOLEAN,
    default=False,
    unset=False,
    scopes=frozenset(Scope),
    obeyed_by="emulator.broker.metadata.schemas",
    doc="Whether a producer without a schema is rejected if the topic has one.",
)
SCHEMA_UPDATES: Policy[bool] = Policy(
    name="is_allow_auto_update_schema",
    at_namespace="isAllowAutoUpdateSchema",
    codec=BOOLEAN,
    default=True,
    unset=True,
    scopes=frozenset({Scope.BROKER, Scope.NAMESPACE}),
    obeyed_by="emulator.broker.metadata.schemas",
    doc=(
        "Whether producers and consumers may register new schemas. False: only the admin API and other "
        "regions may."
    ),
)

POLICIES = (SCHEMA_COMPATIBILITY, SCHEMA_AUTO_UPDATE, SCHEMA_VALIDATION, SCHEMA_UPDATES)


def strategy_of(set_strategy: CompatibilityStrategy, older_name: str) -> CompatibilityStrategy:
    """Return the effective strategy, given the values of SCHEMA_COMPATIBILITY and SCHEMA_AUTO_UPDATE."""
    if set_strategy is not CompatibilityStrategy.UNDEFINED:
        return set_strategy
    return AUTO_UPDATE.get(older_name, DEFAULT)
