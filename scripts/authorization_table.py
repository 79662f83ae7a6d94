"""The page of docs/reference/ on authorization: which role may send which commands and requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from emulator.broker.admin.resources import SUBJECTS
from emulator.broker.admin.server import REFUSED_WITH_401
from emulator.broker.authorization import TrustLevel
from emulator.broker.connection.commands import COMMANDS
from emulator.core.authorization.grants import Grants
from emulator.core.authorization.rule import (
    AccessPolicies,
    Permission,
    SpecialRoles,
    refusal,
    topic_target,
)
from emulator.model.principals import NO_PRINCIPAL, Principal
from emulator.model.values import TopicName

TOPIC: Final = TopicName.parse("persistent://acme/shop/orders")
SPECIAL: Final = SpecialRoles(superusers=("super",), proxies=("proxy",))
POLICIES: Final = AccessPolicies(
    admins=("admin",),
    grants=Grants(
        by_role={
            "producer": frozenset({"produce"}),
            "consumer": frozenset({"consume"}),
            "proxy": frozenset({"produce"}),
        },
        by_topic={str(TOPIC): {"reader": frozenset({"consume"})}},
    ),
)
ROLES: Final = {
    "superuser": Principal("super"),
    "admin of the tenant": Principal("admin"),
    "produce on the namespace": Principal("producer"),
    "consume on the namespace": Principal("consumer"),
    "consume on the topic": Principal("reader"),
    "any other role": Principal("other"),
    "proxy with produce, for a superuser": Principal("proxy", "super"),
    "proxy with produce, for a role with consume": Principal("proxy", "consumer"),
    "no role": NO_PRINCIPAL,
}
"""Description -> a principal with these permissions on TOPIC."""


def lines() -> Iterator[str]:
    """Return the lines of the page."""
    yield "In a region with authorization ([SECURITY.md](../SECURITY.md)). The rules are Pulsar's."
    yield from [
        "",
        "## Roles",
        "",
        "What a role has permission for, on a topic and on its namespace and tenant.",
        "",
    ]
    yield f"| role | {' | '.join(one.value for one in Permission)} |"
    yield "|---" * (len(Permission) + 1) + "|"
    target = topic_target(TOPIC)
    for name, principal in ROLES.items():
        reasons = [refusal(principal, one, target, SPECIAL, POLICIES) for one in Permission]
        yield f"| {name} | {' | '.join('yes' if reason is None else '–' for reason in reasons)} |"
    yield from ["", "## Commands of the binary protocol", ""]
    yield "Permissions are checked when a producer or consumer attaches, not for each message."
    yield ""
    yield from ["| command | permission |", "|---|---|"]
    for row in COMMANDS:
        if row.trust is TrustLevel.CLIENT:
            needs = "none of its own" if row.requires is None else row.requires.doc
            yield f"| {row.name} | {needs} |"
    yield from [
        "",
        "## Requests of the admin API",
        "",
        "Each path with its permission: [admin-api.md](admin-api.md).",
        "",
    ]
    yield from ["| permission | methods and paths | refused with |", "|---|---|---|"]
    counts: dict[Permission, int] = defaultdict(int)
    for resources in SUBJECTS.values():
        for resource in resources:
            for operation in resource.operations.values():
                counts[resource.permission_of(operation)] += 1
    for permission in Permission:
        status = 401 if permission in REFUSED_WITH_401 else 403
        yield f"| {permission.value} | {counts[permission]} | {'–' if permission is Permission.PUBLIC else status} |"
