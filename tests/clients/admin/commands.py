"""What each command of pulsar-admin is given, and what stands ready for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

TOPIC = "persistent://public/default/orders"
PARTITIONED = "persistent://public/default/parts"
OTHER_GROUPS = {
    "functions": "Pulsar Functions are not part of an emulated region.",
    "functions-worker": "Pulsar Functions are not part of an emulated region.",
    "sources": "Pulsar IO is not part of an emulated region.",
    "sinks": "Pulsar IO is not part of an emulated region.",
    "packages": "Packages are for Pulsar Functions, which are not part of an emulated region.",
    "bookies": "A region keeps its log in one store of its own: there are no bookies.",
    "proxy-stats": "A region is asked directly: there is no proxy.",
    "ns-isolation-policy": "A region is one broker: nothing is kept apart.",
    "resource-quotas": "A region is one broker: no load is balanced.",
    "broker-stats": "Load reports are for balancing load; `/metrics` has the figures.",
    "non-persistent": "Pulsar has it under `topics`, too.",
    "persistent": "Pulsar has it under `topics`, too.",
    "documents": "It prints help.",
    "transactions": "It has a page of its own where transactions are offered.",
}
"""Groups of commands that are not walked, and why."""
SAMPLES = {
    "<tenant>": "public",
    "<cluster>": "us",
    "<namespaceName>": "public/default",
    "<topicName>": TOPIC,
    "<topic>": TOPIC,
    "<resourceGroupName>": "small",
    "<params>": "public",
    "--subscription": "billing",
    "--sub": "billing",
    "--role": "ada",
    "--roles": "ada",
    "--actions": "produce",
    "--config": "brokerDeduplicationEnabled",
    "--clusters": "us",
    "--partitions": "4",
    "--count": "1",
    "--types": "Shared",
    "--policy": "producer_request_hold",
    "--limit": "10M",
    "--time": "10m",
    "--size": "10M",
    "--ttl": "60",
    "--messageTTL": "60",
    "--maxNum": "10",
    "--interval": "60",
    "--threshold": "1M",
    "--max-inactive-duration": "10m",
    "--delete-mode": "delete_when_no_subscriptions",
    "--strategy": "BACKWARD",
    "--compatibility": "BACKWARD",
    "--driver": "filesystem",
    "--bucket": "b",
    "--primary-group": "one",
    "--subscription-auth-mode": "None",
    "--lag": "1m",
    "--key": "k",
    "--value": "v",
    "--properties": "k=v",
    "--resource-group-name": "small",
    "--entry-filters-name": "mine",
    "--group": "g",
    "--url": "127.0.0.1:8080",
    "--size-threshold": "1M",
    "--datetime": "2020-01-01T00:00:00Z",
    "--expireTime": "3600",
    "--ledgerId": "1",
    "--entryId": "0",
    "--domain-name": "d",
    "--peer-clusters": "venus",
    "--cluster": "us",
    "--brokers": "b1",
    "--bundle": "0x00000000_0xffffffff",
}
"""What parameters are given that a command must have; a number for those that are not here."""
MORE = {
    "brokers update-dynamic-config": "--value true",
    "tenants create": "--allowed-clusters us",
    "tenants update": "--allowed-clusters us",
    "clusters create": "--url http://mars:8080",
    "clusters update": "--url http://mars:8080",
    "namespaces create": "--clusters us",
    "namespaces clear-backlog": "-force",
    "namespaces split-bundle": "--bundle 0x00000000_0xffffffff",
    "topics set-delayed-delivery": "--enable --time 1s",
    "topics reset-cursor": "--time 1h",
    "topics expire-messages": "--expireTime 3600",
    "topics update-properties": "--property a=b",
    "topics remove-properties": "--key a",
    "topics update-subscription-properties": "--property a=b",
    "topics get-message-by-id": "",
    "topics set-replicated-subscription-status": "--enable",
    "topics set-persistence": "-e 2",
    "topicPolicies set-persistence": "-e 2",
    "namespaces set-persistence": "-e 2",
    "topicPolicies set-backlog-quota": "--limit 10M --policy producer_request_hold",
    "topicPolicies set-inactive-topic-policies": "-d -t 10m -m delete_when_no_subscriptions",
    "topics set-inactive-topic-policies": "-d -t 10m -m delete_when_no_subscriptions",
    "namespaces set-inactive-topic-policies": "-d -t 10m -m delete_when_no_subscriptions",
    "topics create-subscription": "--subscription another",
    "namespaces set-backlog-quota": "--limit 10M --policy producer_request_hold",
    "namespaces set-subscription-expiration-time": "--time 60",
    "namespaces get-topic-positions": "--bundle 0x00000000_0xffffffff",
    "namespaces set-schema-autoupdate-strategy": "--compatibility Full",
    "namespaces set-schema-compatibility-strategy": "--compatibility FULL",
    "namespaces set-encryption-required": "--disable",
    "schemas upload": "--filename {schema}",
    "schemas compatibility": "--filename {schema}",
}
OPTIONAL_SAMPLES = {
    "--enable": "",
    "--msg-dispatch-rate": "10",
    "--msg-publish-rate": "10",
    "--subscribe-rate": "10",
    "--bookkeeper-ensemble": "1",
    "--enable-delete-while-inactive": "",
}
"""What a command is given that must have nothing, and does nothing without any."""
OF = {
    "tenants create": ("acme",),
    "tenants update": ("acme",),
    "tenants delete": ("acme",),
    "clusters create": ("mars",),
    "clusters update": ("mars",),
    "clusters delete": ("mars",),
    "namespaces create": ("public/new",),
    "namespaces delete": ("public/new",),
    "resourcegroups create": ("large",),
    "resourcegroups update": ("large",),
    "resourcegroups delete": ("large",),
    "topics create": ("persistent://public/default/new",),
    "topics delete": ("persistent://public/default/new",),
    "topics create-partitioned-topic": ("persistent://public/default/new-parts",),
    "topics delete-partitioned-topic": ("persistent://public/default/new-parts",),
    "topics terminate": ("persistent://public/default/ending",),
    "topics partitioned-terminate": ("persistent://public/default/ending-parts",),
}
"""Commands that are about something else than the samples."""
PARTITIONED_COMMANDS = frozenset(
    {
        "topics update-partitioned-topic",
        "topics get-partitioned-topic-metadata",
        "topics partitioned-stats",
        "topics partitioned-stats-internal",
        "topics partitioned-lookup",
        "topics create-missed-partitions",
    }
)
LAST = (
    "truncate",
    "trim-topic",
    "unsubscribe",
    "delete",
    "delete-partitioned-topic",
    "delete-failure-domain",
)
"""Words of commands that come last in their group: they take away what others need."""
READY = (
    ("PUT", "/admin/v2/persistent/public/default/orders", None),
    ("PUT", "/admin/v2/persistent/public/default/ending", None),
    ("PUT", "/admin/v2/persistent/public/default/parts/partitions", b"2"),
    ("PUT", "/admin/v2/persistent/public/default/ending-parts/partitions", b"2"),
    (
        "PUT",
        "/admin/v2/persistent/public/default/orders/subscription/billing",
        b'{"ledgerId":-1,"entryId":-1}',
    ),
    ("PUT", "/admin/v2/resourcegroups/small", b"{}"),
    ("PUT", "/admin/v2/clusters/venus", b"{}"),
    ("POST", "/admin/v2/clusters/us/failureDomains/d", b'{"brokers": ["b1"]}'),
    (
        "POST",
        "/admin/v2/schemas/public/default/orders/schema",
        b'{"type": "STRING", "schema": "", "properties": {}}',
    ),
    ("POST", "/admin/v2/persistent/public/default/orders/permissions/ada", b'["consume"]'),
)


@dataclass(frozen=True, slots=True)
class Command:
    """A leaf of the command tree."""

    path: str
    """`topics create`."""
    positions: tuple[str, ...]
    options: tuple[tuple[str, ...], ...]
    """All names of each."""
    required: frozenset[str]
    """First names of options, and positions, that must be there."""

    @property
    def group(self) -> str:
        return self.path.partition(" ")[0]

    def words(self, schema_file: str) -> list[str]:
        """The command with arguments."""
        words = self.path.split()
        given = OF.get(self.path)
        for at, position in enumerate(self.positions):
            if position in self.required:
                default = PARTITIONED if self.path in PARTITIONED_COMMANDS else SAMPLES.get(position, "1")
                words.append(given[at] if given else default)
        more = MORE.get(self.path, "").format(schema=schema_file).split()
        for names in self.options:
            if names[0] in self.required and not set(names) & set(more):
                words += [names[0], _sample(names)]
        if not more and not any(names[0] in self.required for names in self.options):
            more = next(_optional(self.options), [])
        return words + more


def _sample(names: tuple[str, ...]) -> str:
    return next((SAMPLES[name] for name in names if name in SAMPLES), "10")


def _optional(options: tuple[tuple[str, ...], ...]) -> Iterator[list[str]]:
    for names in options:
        for name in names:
            if name in OPTIONAL_SAMPLES:
                yield [name, *OPTIONAL_SAMPLES[name].split()]


def read_tree(text: str) -> list[Command]:
    """From what the driver says; commands that take something away last."""
    commands = []
    for line in text.splitlines():
        columns = line.split("\t")
        if len(columns) == 3:
            positions, options = columns[1].split(), columns[2].split()
            named = [tuple(one.removeprefix("!").split("/")) for one in options]
            needed = {one[1:].split("/")[0] for one in [*positions, *options] if one.startswith("!")}
            bare = tuple(one.removeprefix("!") for one in positions)
            commands.append(Command(columns[0], bare, tuple(named), frozenset(needed)))
    once = {one.path: one for one in commands}.values()  # aliases come again
    return sorted(once, key=lambda one: one.path.split()[-1] in LAST)
