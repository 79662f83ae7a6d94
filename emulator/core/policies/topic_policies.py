"""The policies of a topic as one frozen value.

A value is resolved once for what the broker, a namespace and a topic set, and shared by every topic for which these are
the same. A topic replaces its value as a whole, so it never combines old and new policies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

from emulator.core.policies import (
    consuming,
    lifetime,
    limits,
    schemas,
    stored_only,
    topics,
)
from emulator.core.policies.declaration import Policy, Scope, effective

FAMILIES = (
    topics,
    consuming,
    limits,
    stored_only,
    lifetime,
    schemas,
)

REGISTRY: Mapping[str, Policy[Any]] = {
    policy.name: policy for family in FAMILIES for policy in family.POLICIES
}


T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class TopicPolicies:
    """The value of every policy; `topic_policies[PUBLISH_RATE]` returns one."""

    _values: Mapping[str, Any]
    """By policy name; never changed."""

    def __getitem__(self, policy: Policy[T]) -> T:
        value: T = self._values[policy.name]
        return value

    def differs(self, other: TopicPolicies | None, *policies: Policy[Any]) -> bool:
        """Return whether one of these policies has another value in `other`; None: `other` has no values yet."""
        if other is None:
            return True
        changed = _changed(other, self)
        return any(policy.name in changed for policy in policies)


@lru_cache(maxsize=16)
def _changed(old: TopicPolicies, new: TopicPolicies) -> frozenset[str]:
    """Return the names of the policies that differ. Computed once for all topics that change from `old` to `new`."""
    return frozenset(name for name, value in new._values.items() if value != old._values[name])


DEFAULTS: Final = TopicPolicies({policy.name: policy.default for policy in REGISTRY.values()})
"""The value for a topic for which nothing is set."""


def resolve(
    places: Mapping[Scope, Mapping[str, Any]], invalid: Callable[[Policy[Any], ValueError], None]
) -> TopicPolicies:
    """Return what applies, given what each scope sets (by policy name, as JSON).

    A policy with an invalid value keeps its default; `invalid` is called with it and the problem.
    """
    values = {policy.name: policy.default for policy in REGISTRY.values()}
    for policy in REGISTRY.values():
        if any(policy.name in set_ for set_ in places.values()):
            try:
                values[policy.name] = effective(policy, places)
            except ValueError as problem:
                invalid(policy, problem)
    return TopicPolicies(values)
