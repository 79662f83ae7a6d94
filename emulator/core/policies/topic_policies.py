"""The effective policies of a topic as one immutable object.

The object is resolved from what the broker, the namespace and the topic set, and shared by all topics for which these
are the same. A topic replaces it as a whole, so it never combines old and new policies.
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
    permissions,
    replicated_subscriptions,
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
    permissions,
    lifetime,
    schemas,
    replicated_subscriptions,
)

REGISTRY: Mapping[str, Policy[Any]] = {
    policy.name: policy for family in FAMILIES for policy in family.POLICIES
}


T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class TopicPolicies:
    """The effective value of every policy: `topic_policies[PUBLISH_RATE]`. Compares by identity."""

    _values: Mapping[str, Any]
    """Policy name -> value; never changed."""

    def __getitem__(self, policy: Policy[T]) -> T:
        value: T = self._values[policy.name]
        return value

    def or_setting(self, policy: Policy[T | None], settings: object) -> T:
        """Return the value of a policy; if it is not set, that of the field of the region's `settings` with its
        name."""
        value: T | None = self._values[policy.name]
        return getattr(settings, policy.name) if value is None else value

    def differs(self, other: TopicPolicies | None, *policies: Policy[Any]) -> bool:
        """Return whether one of these policies has another value in `other`, or `other` is None."""
        if other is None:
            return True
        changed = _changed(other, self)
        # `any` would cost several times as much, and each topic that is loaded needs this eight times.
        for policy in policies:  # noqa: SIM110
            if policy.name in changed:
                return True
        return False


@lru_cache(maxsize=16)
def _changed(old: TopicPolicies, new: TopicPolicies) -> frozenset[str]:
    """Return the names of the policies that differ. Computed once for all topics that change from `old` to `new`."""
    return frozenset(name for name, value in new._values.items() if value != old._values[name])


DEFAULTS: Final = TopicPolicies({policy.name: policy.default for policy in REGISTRY.values()})
"""The policies of a topic for which no scope sets any."""


def resolve(
    by_scope: Mapping[Scope, Mapping[str, Any]], invalid: Callable[[Policy[Any], ValueError], None]
) -> TopicPolicies:
    """Return the effective policies. `by_scope`: what each scope sets, as JSON by policy name.

    A policy with an invalid value at any scope gets its default; `invalid` is called with the policy and the error.
    """
    values = {policy.name: policy.default for policy in REGISTRY.values()}
    for policy in REGISTRY.values():
        if any(policy.name in set_ for set_ in by_scope.values()):
            try:
                values[policy.name] = effective(policy, by_scope)
            except ValueError as problem:
                invalid(policy, problem)
    return TopicPolicies(values)
