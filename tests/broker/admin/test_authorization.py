"""The matrix of authorization: every kind of role × every path, method and command × the own and another tenant.

`required-permissions.txt` states the permission of each path and method, and `commands_on` that of each command, both
by the checks of Pulsar's broker. HELD states the permissions of each role. The answers come from the gates of a running
region: `Admin.begin` and `dispatch`, without executing what they permit.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from emulator.broker.admin.resources import TABLE
from emulator.broker.admin.server import Admin
from emulator.broker.authentication.http_gate import PUBLIC_PATHS
from emulator.broker.authentication.sender import Sender
from emulator.broker.authorization import TrustLevel
from emulator.broker.connection import commands
from emulator.broker.connection.connection import ClientConnection
from emulator.broker.connection.dispatch import CommandTable, Execution, dispatch
from emulator.broker.connection.requirements import PARTICIPANTS_MAX
from emulator.config.region import NamespaceConfig
from emulator.config.security import AuthenticationConfig, AuthorizationConfig, SecurityConfig
from emulator.core.authorization.rule import Permission
from emulator.model.principals import NO_PRINCIPAL, Principal
from emulator.net.http_server import HttpError, RequestHead
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.protobuf import decode_command
from tests.broker.admin.served import Served, served

PAGE: Final = Path(__file__).with_name("required-permissions.txt")
TENANTS: Final = ("acme", "rival")
PERMISSIONS: Final = {
    "namespace_auth": {
        "producer": ["produce"],
        "consumer": ["consume"],
        "proxy": ["produce", "consume"],
        "runner": ["functions", "sources", "sinks", "packages"],
    },
    "topic_auth": {
        "persistent://acme/ns/orders": {"topic-producer": ["produce"], "topic-consumer": ["consume"]},
        "non-persistent://acme/ns/orders": {"topic-producer": ["produce"], "topic-consumer": ["consume"]},
    },
    "subscription_auth_roles": {"reserved": ["another"]},
}
"""Permissions of acme/ns; rival/ns has none. Each namespace has a topic `orders`, each tenant an admin."""
SECURITY: Final = SecurityConfig(
    authentication=AuthenticationConfig(anonymous_role="guest"),
    authorization=AuthorizationConfig(
        superusers=("root",),
        proxy_roles=("proxy", "spare-proxy"),
        tenant_admins={tenant: (f"admin-{tenant}",) for tenant in TENANTS},
    ),
)

EVERY_ROLE: Final = "PUBLIC ANY_ROLE "
HELD: Final[dict[Principal, tuple[str, str]]] = {
    Principal("root"): (" ".join(Permission.__members__),) * 2,
    Principal("admin-acme"): (
        EVERY_ROLE + "TENANT_ADMIN NAMESPACE_CONSUME PRODUCE CONSUME LOOKUP",
        EVERY_ROLE,
    ),
    Principal("admin-rival"): (
        EVERY_ROLE,
        EVERY_ROLE + "TENANT_ADMIN NAMESPACE_CONSUME PRODUCE CONSUME LOOKUP",
    ),
    Principal("producer"): (EVERY_ROLE + "PRODUCE LOOKUP", EVERY_ROLE),
    Principal("consumer"): (EVERY_ROLE + "NAMESPACE_CONSUME CONSUME LOOKUP", EVERY_ROLE),
    Principal("topic-producer"): (EVERY_ROLE + "PRODUCE LOOKUP", EVERY_ROLE),
    Principal("topic-consumer"): (EVERY_ROLE + "CONSUME LOOKUP", EVERY_ROLE),
    Principal("runner"): (EVERY_ROLE, EVERY_ROLE),
    Principal("stranger"): (EVERY_ROLE, EVERY_ROLE),
    Principal("guest"): (EVERY_ROLE, EVERY_ROLE),
    NO_PRINCIPAL: ("PUBLIC", "PUBLIC"),
    # A proxy, alone or for a role, has what both have; its own role is granted produce and consume.
    Principal("proxy"): ("PUBLIC", "PUBLIC"),
    Principal("proxy", "spare-proxy"): ("PUBLIC", "PUBLIC"),
    Principal("proxy", "root"): (EVERY_ROLE + "NAMESPACE_CONSUME PRODUCE CONSUME LOOKUP", EVERY_ROLE),
    Principal("proxy", "producer"): (EVERY_ROLE + "PRODUCE LOOKUP", EVERY_ROLE),
    Principal("proxy", "stranger"): (EVERY_ROLE, EVERY_ROLE),
    Principal("spare-proxy", "root"): (EVERY_ROLE, EVERY_ROLE),
    Principal("stranger", "root"): (EVERY_ROLE, EVERY_ROLE),
    Principal("root", "stranger"): (EVERY_ROLE, EVERY_ROLE),
}
"""Principal -> the permissions that it has in acme, and in rival."""


def required_permissions() -> dict[tuple[str, str], Permission]:
    """Return the permission of each (method, path) in PAGE."""
    found: dict[tuple[str, str], Permission] = {}
    heading = None
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            heading = Permission[line[3:].partition(":")[0]]
        elif line and not line.startswith("#"):
            method, path = line.split()
            assert heading is not None
            assert (method, path) not in found, f"{line} occurs twice"
            found[method, path] = heading
    return found


REQUIRED: Final = required_permissions()


@pytest.fixture(scope="module")
def region() -> Iterator[Served]:
    """A region with authorization and two tenants."""
    namespaces = tuple(
        NamespaceConfig(f"{tenant}/ns", ("us",), policies=policies)
        for tenant, policies in (("acme", {"permissions": PERMISSIONS}), ("rival", {}))
    )
    with served(tenants=TENANTS, namespaces=namespaces, security=SECURITY) as us:
        yield us


def test_the_table_has_exactly_the_rows_of_the_admin_api() -> None:
    rows = {(method, row.path) for row in TABLE.resources for method in row.operations}
    assert rows == set(REQUIRED)


@pytest.mark.parametrize("principal", HELD, ids=lambda one: "+".join(filter(None, one)) or "none")
def test_a_role_may_send_these_requests(region: Served, principal: Principal) -> None:
    admin = Admin(region.region, {})
    admin._context.authenticate = lambda head: Sender(TrustLevel.CLIENT, principal)
    for tenant, held in zip(TENANTS, HELD[principal], strict=True):
        for (method, path), permission in REQUIRED.items():
            answer = answer_of(admin, method, filled(path, tenant))
            # Paths that name no tenant have the same answer for both; superusers alone have SUPERUSER.
            assert (answer is None) is (permission.name in held.split()), (principal, method, path, answer)
            if answer is not None:
                in_403 = permission in (Permission.TENANT_ADMIN, Permission.NAMESPACE_CONSUME)
                assert answer == (403 if in_403 else 401), (method, path)


def answer_of(admin: Admin, method: str, path: str) -> int | None:
    """Return the status of a refusal; None if the request would be executed."""
    try:
        admin.begin(RequestHead(method, path, {"host": "127.0.0.1"}))
    except HttpError as problem:
        return problem.status
    return None


def filled(path: str, tenant: str) -> str:
    """Return a path of a row with names instead of its placeholders."""
    values = {"tenant": tenant, "namespace": "ns", "topic": "orders", "domain": "persistent"}
    return "/".join(values.get(one[1:-1], "1") if one.startswith("{") else one for one in path.split("/"))


# Commands.


class Listening(ClientConnection):
    """A connection that records what it answers, and whether a command passed the gate."""

    def __init__(self, region: Any) -> None:
        rows = tuple(
            replace(row, handle=self._passed, stage=Execution.INLINE, estimate_bytes=0)
            for row in commands.COMMANDS
        )
        super().__init__(region, CommandTable(rows, {}))
        self.answers: list[bytes] = []
        self.passed = 0

    def _passed(self, *command: object) -> None:
        self.passed += 1

    def answer(self, data: bytes) -> None:
        self.answers.append(data)


COORDINATORS: Final = "persistent://pulsar/system/transaction_coordinator_assign"
Row = tuple[int, str, Any, str]


def commands_on(tenant: str) -> list[Row]:
    """Return (type, field, command, the permission that it requires) on the topic of a tenant."""
    name = f"persistent://{tenant}/ns/orders"
    txn = {"txnid_least_bits": 1, "txnid_most_bits": 0, "request_id": 1}
    type_ = pb.BaseCommand
    reserved = "TENANT_ADMIN" if tenant == "acme" else "CONSUME"
    schema = pb.Schema(name="", schema_data=b"", type=0)
    subscription = [pb.Subscription(topic=name, subscription="any")]
    return [
        (type_.LOOKUP, "lookupTopic", pb.CommandLookupTopic(topic=name, request_id=1), "LOOKUP"),
        (
            type_.LOOKUP,
            "lookupTopic",
            pb.CommandLookupTopic(topic=f"{COORDINATORS}-partition-0", request_id=1),
            "ANY_ROLE",
        ),
        (
            type_.PARTITIONED_METADATA,
            "partitionMetadata",
            pb.CommandPartitionedTopicMetadata(topic=name, request_id=1),
            "LOOKUP",
        ),
        (
            type_.PARTITIONED_METADATA,
            "partitionMetadata",
            pb.CommandPartitionedTopicMetadata(topic=COORDINATORS, request_id=1),
            "ANY_ROLE",
        ),
        (
            type_.GET_TOPICS_OF_NAMESPACE,
            "getTopicsOfNamespace",
            pb.CommandGetTopicsOfNamespace(namespace=f"{tenant}/ns", request_id=1),
            "NAMESPACE_CONSUME",
        ),
        (
            type_.WATCH_TOPIC_LIST,
            "watchTopicList",
            pb.CommandWatchTopicList(
                namespace=f"{tenant}/ns", request_id=1, watcher_id=1, topics_pattern=".*"
            ),
            "NAMESPACE_CONSUME",
        ),
        (
            type_.PARTITIONED_METADATA,
            "partitionMetadata",
            pb.CommandPartitionedTopicMetadata(topic=f"{COORDINATORS}-partition-0", request_id=1),
            "SUPERUSER",
        ),
        (
            type_.LOOKUP,
            "lookupTopic",
            pb.CommandLookupTopic(topic=f"{COORDINATORS}-other", request_id=1),
            "SUPERUSER",
        ),
        (type_.GET_SCHEMA, "getSchema", pb.CommandGetSchema(topic=name, request_id=1), "LOOKUP"),
        (
            type_.GET_OR_CREATE_SCHEMA,
            "getOrCreateSchema",
            pb.CommandGetOrCreateSchema(topic=name, request_id=1, schema=schema),
            "PRODUCE",
        ),
        (
            type_.PRODUCER,
            "producer",
            pb.CommandProducer(topic=name, request_id=1, producer_id=1),
            "PRODUCE",
        ),
        (
            type_.PRODUCER,
            "producer",
            pb.CommandProducer(topic=name, request_id=1, producer_id=1, initial_subscription_name="any"),
            "PRODUCE CONSUME",
        ),
        *(
            (
                type_.SUBSCRIBE,
                "subscribe",
                pb.CommandSubscribe(
                    topic=name, request_id=1, consumer_id=1, subType=1, subscription=subscription_name
                ),
                permission,
            )
            for subscription_name, permission in (("any", "CONSUME"), ("reserved", reserved))
        ),
        (
            type_.TC_CLIENT_CONNECT_REQUEST,
            "tcClientConnectRequest",
            pb.CommandTcClientConnectRequest(tc_id=0, request_id=1),
            "ANY_ROLE",
        ),
        (type_.NEW_TXN, "newTxn", pb.CommandNewTxn(tc_id=0, request_id=1), "ANY_ROLE"),
        (type_.END_TXN, "endTxn", pb.CommandEndTxn(**txn, txn_action=pb.COMMIT), "ANY_ROLE"),
        (
            type_.ADD_PARTITION_TO_TXN,
            "addPartitionToTxn",
            pb.CommandAddPartitionToTxn(**txn, partitions=[name]),
            "PRODUCE",
        ),
        (type_.ADD_PARTITION_TO_TXN, "addPartitionToTxn", pb.CommandAddPartitionToTxn(**txn), "ANY_ROLE"),
        (
            type_.ADD_SUBSCRIPTION_TO_TXN,
            "addSubscriptionToTxn",
            pb.CommandAddSubscriptionToTxn(**txn, subscription=subscription),
            "CONSUME",
        ),
    ]


def test_every_command_that_requires_a_permission_is_in_the_matrix() -> None:
    sent = {row[0] for row in commands_on("acme")}
    assert sent == {row.type for row in commands.COMMANDS if row.requires is not None}


@pytest.mark.parametrize("principal", HELD, ids=lambda one: "+".join(filter(None, one)) or "none")
def test_a_role_may_send_these_commands(region: Served, principal: Principal) -> None:
    async def check() -> None:
        for tenant, held in zip(TENANTS, HELD[principal], strict=True):
            for type_, field, message, permissions in commands_on(tenant):
                connection = Listening(region.region)
                connection.raise_trust(TrustLevel.CLIENT, principal)
                sent = pb.BaseCommand(type=type_, **{field: message})
                dispatch(connection, [(type_, sent.SerializeToString(), b"")], 0)
                permitted = set(permissions.split()) <= set(held.split())
                assert connection.passed == permitted, (principal, tenant, message)
                assert error_in(connection.answers) == (None if permitted else pb.AuthorizationError)

    asyncio.run_coroutine_threadsafe(check(), region.loop).result(10)


@pytest.mark.parametrize("role", ["root", "admin-acme", "guest", ""])
def test_a_tenant_that_does_not_exist(region: Served, role: str) -> None:
    """As in Pulsar, authenticated roles learn that it does not exist."""

    async def code() -> int | None:
        connection = Listening(region.region)
        connection.raise_trust(TrustLevel.CLIENT, Principal(role))
        body = pb.CommandPartitionedTopicMetadata(topic="persistent://absent/ns/orders", request_id=1)
        sent = pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA, partitionMetadata=body)
        dispatch(connection, [(sent.type, sent.SerializeToString(), b"")], 0)
        return error_in(connection.answers)

    admin = Admin(region.region, {})
    admin._context.authenticate = lambda head: Sender(TrustLevel.CLIENT, Principal(role))
    expected = {"root": (None, None), "": (pb.AuthorizationError, 403)}.get(role, (pb.TopicNotFound, 404))
    path = "/admin/v2/namespaces/absent/ns/permissions"
    answers = asyncio.run_coroutine_threadsafe(code(), region.loop).result(10), answer_of(admin, "GET", path)
    assert answers == expected
    creation = answer_of(admin, "PUT", "/admin/v2/tenants/absent")
    assert creation == (None if role == "root" else 401), "for superusers"


def test_a_command_with_very_many_participants_is_refused_before_they_are_checked(region: Served) -> None:
    async def check() -> None:
        topics = ["persistent://acme/ns/orders"] * (PARTICIPANTS_MAX + 1)
        connection = Listening(region.region)
        connection.raise_trust(TrustLevel.CLIENT, Principal("producer"))
        body = pb.CommandAddPartitionToTxn(
            txnid_least_bits=1, txnid_most_bits=0, request_id=1, partitions=topics
        )
        sent = pb.BaseCommand(type=pb.BaseCommand.ADD_PARTITION_TO_TXN, addPartitionToTxn=body)
        dispatch(connection, [(sent.type, sent.SerializeToString(), b"")], 0)
        assert (connection.passed, error_in(connection.answers)) == (0, pb.NotAllowedError)

    asyncio.run_coroutine_threadsafe(check(), region.loop).result(10)


def error_in(answers: list[bytes]) -> int | None:
    """Return the code of the only answer, an error; None if there is no answer."""
    if not answers:
        return None
    (frame,) = answers
    command = decode_command(frame[8:])
    ((_, body),) = [one for one in command.ListFields() if one[0].name != "type"]
    return int(body.error if hasattr(body, "error") and not hasattr(body, "error_code") else body.error_code)


@pytest.mark.parametrize("trust", [TrustLevel.PEER, TrustLevel.CONTROL])
def test_regions_and_the_control_of_the_run_may_do_everything(region: Served, trust: TrustLevel) -> None:
    admin = Admin(region.region, {})
    admin._context.authenticate = lambda head: Sender(trust, NO_PRINCIPAL)
    assert all(answer_of(admin, method, filled(path, "acme")) is None for method, path in REQUIRED)


def test_a_name_that_hides_another_topic_is_refused_before_it_is_authorized(region: Served) -> None:
    admin = Admin(region.region, {})
    admin._context.authenticate = lambda head: Sender(TrustLevel.CLIENT, Principal("admin-acme"))
    for tenant in ("acme%2F..", "acme%2Fns", "rival", "..", "acme%00"):
        path = f"/admin/v2/persistent/{tenant}/ns/orders"
        with pytest.raises(HttpError) as problem:
            admin.begin(RequestHead("DELETE", path, {"host": "127.0.0.1"}))
        assert problem.value.status in (403, 404, 412), path


class TestGrants:
    """Grants through the admin API, of a role that is an admin of one tenant, and what they permit afterwards."""

    PERMISSIONS = "/admin/v2/namespaces/acme/ns/permissions"

    def test_a_grant_applies_to_the_next_request_and_so_does_its_revocation(self, region: Served) -> None:
        admin, stats = Admin(region.region, {}), "/admin/v2/persistent/acme/ns/orders/stats"
        admin._context.authenticate = lambda head: Sender(TrustLevel.CLIENT, Principal(head.headers["role"]))

        def status(role: str) -> int | None:
            try:
                admin.begin(RequestHead("GET", stats, {"host": "127.0.0.1", "role": role}))
            except HttpError as problem:
                return problem.status
            return None

        assert status("newcomer") == 401
        self.execute(region, admin, "POST", f"{self.PERMISSIONS}/newcomer", b'["consume"]')
        assert status("newcomer") is None
        self.execute(region, admin, "DELETE", f"{self.PERMISSIONS}/newcomer")
        assert status("newcomer") == 401

    def test_permissions_on_several_topics_need_an_admin_of_each_tenant(self, region: Served) -> None:
        admin = Admin(region.region, {})
        admin._context.authenticate = lambda head: Sender(TrustLevel.CLIENT, Principal(head.headers["role"]))
        for tenant, expected in (("acme", None), ("rival", 403)):
            body = json.dumps(
                [{"topic": f"persistent://{tenant}/ns/bills", "role": "x", "actions": ["consume"]}]
            ).encode()
            for verb in ("grant", "revoke"):
                path = f"/admin/v2/namespaces/{verb}PermissionsOnTopics"
                assert self.execute(region, admin, "POST", path, body) == expected, (tenant, verb)

    @staticmethod
    def execute(region: Served, admin: Admin, method: str, path: str, body: bytes = b"") -> int | None:
        """Execute a request of the admin of acme. Return the status of a refusal."""

        async def run() -> int | None:
            headers = {"host": "127.0.0.1", "role": "admin-acme"}
            if body:
                headers |= {"content-type": "application/json", "content-length": str(len(body))}
            try:
                await admin.begin(RequestHead(method, path, headers))(body)
            except HttpError as problem:
                return problem.status
            return None

        return asyncio.run_coroutine_threadsafe(run(), region.loop).result(10)


def test_the_paths_without_authentication_are_those_without_a_permission() -> None:
    public = {path for (_, path), permission in REQUIRED.items() if permission is Permission.PUBLIC}
    assert {path.rstrip("/") for path in PUBLIC_PATHS} == public
