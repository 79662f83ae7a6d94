"""Policies that permit roles to use the topics of a namespace. They apply in regions with authorization."""

from __future__ import annotations

from typing import Any, Final

from emulator.core.authorization.grants import (
    NO_GRANTS,
    OF_NAMESPACE,
    OF_SUBSCRIPTION,
    OF_TOPIC,
    Grants,
    grants_as_json,
    parse_grants,
)
from emulator.core.policies.codecs import one_of
from emulator.core.policies.declaration import Codec, Policy, Scope

_OBEYED_BY: Final = "emulator.broker.authorizer"
_OBJECT: Final = {"type": "object"}
_GRANTS: Codec[Grants] = Codec(
    parse_grants,
    grants_as_json,
    {"type": "object", "properties": dict.fromkeys((OF_NAMESPACE, OF_TOPIC, OF_SUBSCRIPTION), _OBJECT)},
)
PREFIX: Final = "Prefix"
"""Value of SUBSCRIPTION_AUTH_MODE: the name of a subscription must begin with the role of its consumers."""

PERMISSIONS: Policy[Grants] = Policy(
    name="permissions",
    at_namespace="permissions",
    codec=_GRANTS,
    default=NO_GRANTS,
    scopes=frozenset({Scope.NAMESPACE}),
    obeyed_by=_OBEYED_BY,
    doc="Permissions by role: on the namespace, on topics and on subscriptions.",
    own_rows=True,
)
SUBSCRIPTION_AUTH_MODE: Policy[Any] = Policy(
    name="subscription_auth_mode",
    at_namespace="subscriptionAuthMode",
    codec=one_of("None", PREFIX),
    default="None",
    unset="None",
    scopes=frozenset({Scope.NAMESPACE}),
    obeyed_by=_OBEYED_BY,
    doc="`Prefix`: the names of subscriptions must begin with the role of their consumers.",
)

POLICIES: tuple[Policy[Any], ...] = (PERMISSIONS, SUBSCRIPTION_AUTH_MODE)
