"""The rule of authorization, with Pulsar's answers as a table."""

from __future__ import annotations

import pytest

from emulator.core.authorization.grants import Grants
from emulator.core.authorization.rule import (
    AccessPolicies,
    Permission,
    SpecialRoles,
    Target,
    refusal,
    topic_target,
)
from emulator.model.principals import NO_PRINCIPAL, Principal
from emulator.model.values import TopicName

ORDERS = TopicName.parse("persistent://acme/shop/orders")
PARTITION = TopicName.parse("persistent://acme/shop/orders-partition-3")
BILLS = TopicName.parse("persistent://acme/shop/bills")
SPECIAL = SpecialRoles(superusers=("root",), proxies=("edge", "edge-2"))
POLICIES = AccessPolicies(
    admins=("boss",),
    grants=Grants(
        by_role={
            "writer": frozenset({"produce"}),
            "reader": frozenset({"consume"}),
            "edge": frozenset({"produce"}),
            "runner": frozenset({"functions", "packages"}),
        },
        by_topic={str(ORDERS): {"clerk": frozenset({"consume"})}},
        by_subscription={"audit": frozenset({"auditor"}), "open": frozenset()},
    ),
)


def permits(principal: Principal, permission: Permission, target: Target, **changes: object) -> bool:
    return refusal(principal, permission, target, SPECIAL, POLICIES._replace(**changes)) is None  # type: ignore[arg-type]


LETTER_OF = {
    "S": Permission.SUPERUSER,
    "A": Permission.TENANT_ADMIN,
    "N": Permission.NAMESPACE_CONSUME,
    "P": Permission.PRODUCE,
    "C": Permission.CONSUME,
    "L": Permission.LOOKUP,
    "R": Permission.ANY_ROLE,
    "0": Permission.PUBLIC,
}


@pytest.mark.parametrize(
    ("principal", "topic", "permitted"),
    [
        (Principal("root"), ORDERS, "SANPCLR0"),
        (Principal("boss"), ORDERS, "ANPCLR0"),
        (Principal("writer"), ORDERS, "PLR0"),
        (Principal("reader"), ORDERS, "NCLR0"),
        (Principal("clerk"), ORDERS, "CLR0"),
        (Principal("clerk"), PARTITION, "CLR0"),
        (Principal("clerk"), BILLS, "R0"),
        (Principal("runner"), ORDERS, "R0"),
        (Principal("other"), ORDERS, "R0"),
        (NO_PRINCIPAL, ORDERS, "0"),
        # A proxy needs the permission as well as the client for which it acts.
        (Principal("edge"), ORDERS, "0"),
        (Principal("edge", "edge"), ORDERS, "0"),
        (Principal("edge", "edge-2"), ORDERS, "0"),
        (Principal("edge", "writer"), ORDERS, "PLR0"),
        (Principal("edge", "root"), ORDERS, "PLR0"),
        (Principal("edge", "reader"), ORDERS, "LR0"),
        (Principal("edge-2", "root"), ORDERS, "R0"),
        # A role that is no proxy gains nothing from the role for which it claims to act.
        (Principal("other", "root"), ORDERS, "R0"),
        (Principal("root", "writer"), ORDERS, "PLR0"),
        (Principal("", "root"), ORDERS, "0"),
    ],
)
def test_a_role_has_these_permissions(principal: Principal, topic: TopicName, permitted: str) -> None:
    target = topic_target(topic)
    found = {letter for letter, one in LETTER_OF.items() if permits(principal, one, target)}
    assert found == set(permitted)


def test_the_admins_of_a_tenant_are_no_admins_of_the_region() -> None:
    assert not permits(Principal("boss"), Permission.TENANT_ADMIN, Target())


@pytest.mark.parametrize(
    ("role", "subscription", "prefix", "permitted"),
    [
        ("reader", "any", False, True),
        ("reader", "audit", False, False),
        ("auditor", "audit", False, False),  # in the list, but without consume
        ("reader", "open", False, True),  # an empty list restricts nothing
        ("reader", "reader-1", True, True),
        ("reader", "any", True, False),
        ("boss", "audit", True, True),
        ("root", "audit", True, True),
    ],
)
def test_a_subscription_may_be_restricted(
    role: str, subscription: str, prefix: bool, permitted: bool
) -> None:
    target = topic_target(ORDERS, subscription)
    assert permits(Principal(role), Permission.CONSUME, target, needs_role_prefix=prefix) is permitted


def test_a_listed_role_with_consume_may_use_the_subscription() -> None:
    grants = POLICIES.grants._replace(by_role={"auditor": frozenset({"consume"})})
    assert permits(Principal("auditor"), Permission.CONSUME, topic_target(ORDERS, "audit"), grants=grants)


@pytest.mark.parametrize(
    ("pattern", "role", "matches"),
    [
        ("team-*", "team-a", True),
        ("*-team", "a-team", True),
        ("*", "any", True),
        ("team-*", "a-team", False),
        ("te*am", "team", False),
    ],
)
def test_wildcards_match_only_where_they_are_enabled(pattern: str, role: str, matches: bool) -> None:
    policies = AccessPolicies(grants=Grants(by_role={pattern: frozenset({"produce"})}))
    for wildcards in (True, False):
        special = SpecialRoles(wildcards=wildcards)
        reason = refusal(Principal(role), Permission.PRODUCE, topic_target(ORDERS), special, policies)
        assert (reason is None) is (matches and wildcards)


def test_a_wildcard_is_not_a_superuser() -> None:
    special = SpecialRoles(superusers=("root*",), wildcards=True)
    assert refusal(Principal("rooted"), Permission.SUPERUSER, Target(), special) is not None


def test_a_refusal_names_the_role_and_what_it_lacks() -> None:
    reason = refusal(Principal("clerk"), Permission.LOOKUP, topic_target(BILLS), SPECIAL, POLICIES)
    assert reason == "role clerk lacks produce and consume on persistent://acme/shop/bills"
