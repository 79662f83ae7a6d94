"""Call every method of the Java admin client against a region and record the outcome of each.

python -m tests.clients.admin.methods           # prints the methods that were not accepted
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.broker.admin import resource
from emulator.broker.admin.resource import Operation
from tests.broker.admin.served import Served, served
from tests.clients.admin.commands import PARTITIONED, READY, TOPIC
from tests.clients.admin.resident import Resident, resident
from tests.clients.admin.walking import make_ready, publish_some
from tests.clients.driving import java_program

HERE = Path(__file__).parent
ACCEPTED, REFUSED, FAILED = "ok", "refused", "failed"
VALUES: Mapping[str, str] = {
    "topic": TOPIC,
    "sourceTopic": TOPIC,
    "shadowTopic": "persistent://public/default/shadow",
    "namespace": "public/default",
    "tenant": "public",
    "property": "public",
    "cluster": "us",
    "clusterIds": "us",
    "clusters": "us",
    "allowedClusters": "us",
    "replication_clusters": "us",
    "allowed_clusters": "us",
    "peerClusterNames": "venus",
    "brokerId": "{broker}",
    "broker": "{broker}",
    "subName": "billing",
    "subscription": "billing",
    "subscriptionName": "billing",
    "bundle": "0x00000000_0xffffffff",
    "bundleRange": "0x00000000_0xffffffff",
    "resourcegroup": "small",
    "resourcegroupname": "small",
    "domainName": "d",
    "configName": "brokerDeduplicationEnabled",
    "configValue": "true",
    "entryFilterNames": "",
    "migrated": "false",
    "encryptionRequired": "false",
    "numPartitions": "4",
    "retentionTimeInMinutes": "10",
    "retentionSizeInMB": "10",
    "relativeToPublishRate": "false",
    "shadowTopics": "none",
    "type": "STRING",
    "initialPosition": "earliest",
    "messagePosition": "1",
    "ledgerId": "{ledger}",
    "entryId": "0",
    "version": "0",
    "coordinatorId": "0",
    "bookkeeperEnsemble": "3",
    "bookkeeperWriteQuorum": "2",
    "bookkeeperAckQuorum": "2",
    "maxTopicsPerNamespace": "10000",
    "numBundles": "1",
    "topicType": "non-partitioned",
    "strategy": "FULL",
    "subscription_types_enabled": "Shared",
    "packageName": "function://public/default/x@v1",
    "fileName": "{file}",
    "sourceFile": "{file}",
    "destinationFile": "{file}",
    "path": "{file}",
    "triggerFile": "{file}",
}
"""Values of parameters and of their fields, by name; the driver chooses other values by type."""
NEW_TOPIC, NEW_PARTITIONED = (
    {"topic": f"persistent://public/default/{one}-{{k}}"} for one in ("new", "new-parts")
)
DOOMED = "persistent://public/default/doomed"
OF_PARTITIONED = {"topic": PARTITIONED}
PASSING = {"topic": "non-persistent://public/default/passing"}
OF_METHODS: Mapping[str, Mapping[str, str]] = {
    "namespaces.createNamespace": {"namespace": "public/new-{k}"},
    "namespaces.deleteNamespace": {"namespace": "public/doomed"},
    "namespaces.getNamespaces": {"tenant": "public", "cluster": "us"},
    "namespaces.setSchemaAutoUpdateCompatibilityStrategy": {"strategy": "Full"},
    "tenants.createTenant": {"tenant": "new-{k}"},
    "tenants.deleteTenant": {"tenant": "doomed"},
    "properties.createProperty": {"property": "older-{k}"},
    "properties.deleteProperty": {"property": "doomed"},
    "clusters.createCluster": {"cluster": "new-{k}"},
    "clusters.updateCluster": {"cluster": "venus"},
    "clusters.deleteCluster": {"cluster": "doomed"},
    "resourcegroups.createResourceGroup": {"name": "new-{k}"},
    "resourcegroups.updateResourceGroup": {"name": "small"},
    "topics.createPartitionedTopic": NEW_PARTITIONED,
    "topics.createNonPartitionedTopic": NEW_TOPIC,
    "topics.deletePartitionedTopic": {"topic": f"{DOOMED}-parts"},
    "topics.delete": {"topic": DOOMED},
    "topics.terminateTopic": {"topic": DOOMED},
    "topics.terminatePartitionedTopic": {"topic": f"{DOOMED}-parts"},
    "topics.createSubscription": {"subscriptionName": "new-{k}"},
    "topics.updatePartitionedTopic": {**OF_PARTITIONED, "numPartitions": "1{k}"},
    "topics.getPartitionedStats": OF_PARTITIONED,
    "topics.getPartitionedInternalStats": OF_PARTITIONED,
    "topics.createMissedPartitions": OF_PARTITIONED,
    "topics.getShadowSource": {"shadowTopic": TOPIC},
    "topics.getSubscriptionDispatchRate": {"namespace": TOPIC},
    "lookups.lookupPartitionedTopic": OF_PARTITIONED,
    "nonPersistentTopics.createPartitionedTopic": {"topic": "non-persistent://public/default/new-parts"},
    "nonPersistentTopics.unload": PASSING,
    "nonPersistentTopics.getStats": PASSING,
    "nonPersistentTopics.getInternalStats": PASSING,
}
"""Values for single methods, by `group.name`; they override VALUES. `{k}`: number of the overload of a name."""
ROWS = (
    *READY,
    ("PUT", "/admin/v2/persistent/public/default/doomed-parts/partitions", b"2"),
    ("PUT", "/admin/v2/clusters/doomed", b"{}"),
    ("PUT", "/admin/v2/tenants/doomed", b'{"allowedClusters": ["us"]}'),
    ("PUT", "/admin/v2/namespaces/public/doomed", None),
    ("POST", "/admin/v2/clusters/us/namespaceIsolationPolicies/x", b"{}"),
)
"""Requests (method, path, body) that create the objects which the methods require."""
TAKES_AWAY = re.compile(
    r"\.(delete|remove|revoke|terminate|truncate|trim|unsubscribe|clear|unload|reset|skip|expire|disable)"
)
"""Methods that remove objects: they run last, and ROWS is applied again before each."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of calling a method."""

    method: str
    kind: str
    """ACCEPTED; REFUSED: the region returned an error; FAILED: the client did not send a request."""
    status: int
    reason: str


@dataclass(slots=True)
class Calls:
    """The outcomes of calling all methods."""

    outcomes: list[Outcome] = field(default_factory=list)
    ignored: set[tuple[str, str]] = field(default_factory=set)
    """(method as `group.name`, query parameter) of each parameter that the client sends and the region ignores."""


class Driver:
    """The Java admin client in a running program."""

    def __init__(self, program: Resident) -> None:
        self._program = program

    def methods(self) -> list[str]:
        return self._program.ask("list").split("\t")

    def call(self, method: str, values: Mapping[str, str]) -> Outcome:
        request = "\t".join(["call", method, *(f"{name}={one}" for name, one in values.items())])
        kind, *rest = self._program.ask(request).split("\t")
        status = int(rest[0]) if kind == REFUSED else 0
        return Outcome(method, kind, status, " ".join(rest[1:] if kind == REFUSED else rest))


@contextmanager
def java_admin(us: Served) -> Iterator[Driver]:
    """Build and start the driver of the Java admin client. Skip the test without Java, or without Maven to build it."""
    source, main = HERE / "MethodsDriver.java", "MethodsDriver"
    java = java_program("java-admin", HERE / "methods-pom.xml", source, main)
    with resident(*java, f"http://127.0.0.1:{us.admin_port}") as program:
        yield Driver(program)


def every_call() -> Calls:
    """Call each method once, with values for all its parameters and for all their fields."""
    found = Calls()
    with served() as us, tempfile.TemporaryDirectory() as folder, java_admin(us) as driver:
        make_ready(us, ROWS)
        publish_some(us)
        names = _placeholders(us, Path(folder))
        overloads: Counter[str] = Counter()
        for method in sorted(driver.methods(), key=lambda one: bool(TAKES_AWAY.search(one))):
            if TAKES_AWAY.search(method):
                make_ready(us, ROWS)
            name = _name_of(method)
            overloads[name] += 1
            values = {**VALUES, **OF_METHODS.get(name, {})}
            filled = {one: of.format(k=overloads[name], **names) for one, of in values.items()}
            with _ignored() as ignored:
                found.outcomes.append(driver.call(method, filled))
            found.ignored |= {(name, one) for one in ignored}
    return found


def _name_of(method: str) -> str:
    """Return the method's group and name, such as `topics.delete`, without its parameter types."""
    group, _, name = method.replace("(true)", "").partition("(")[0].partition(".")
    return f"{group}.{name}"


def _placeholders(us: Served, folder: Path) -> dict[str, str]:
    file = folder / "file"
    file.write_text("x")
    last = us.get("/admin/v2/persistent/public/default/orders/lastMessageId")
    (broker,) = us.get("/admin/v2/brokers")
    return {"file": str(file), "ledger": str(last["ledgerId"]), "broker": broker}


@contextmanager
def _ignored() -> Iterator[set[str]]:
    """Collect the query parameters that the region receives inside the block and that its operations do not declare."""
    names: set[str] = set()
    parse = resource.parse_query

    def noted(operation: Operation, query: str) -> dict[str, Any]:
        given = {one.partition("=")[0] for one in query.split("&") if one}
        names.update(given - {parameter.name for parameter in operation.query})
        return parse(operation, query)

    resource.parse_query = noted
    try:
        yield names
    finally:
        resource.parse_query = parse


def main() -> None:
    found = every_call()
    for one in found.outcomes:
        if one.kind != ACCEPTED:
            print(f"{one.method}: {one.kind} {one.status or ''} {one.reason}")
    for method, name in sorted(found.ignored):
        print(f"{method}: ignored {name}")
    print(len(found.outcomes), "methods")


if __name__ == "__main__":
    main()
