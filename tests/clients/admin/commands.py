"""Sample arguments for each command of pulsar-admin, and the objects that the commands require in the region."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

TOPIC = "persistent://public/default/orders"
PARTITIONED = "persistent://public/default/parts"
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
    "<namespace>": "public/default",
    "<clusterName>": "us",
    "<policyName>": "apart",
    "<packageName>": "function://public/default/f@v1",
    "<allocatorName>": "default",
    "--namespace": "public/default",
    "--namespaces": "public/default",
    "--primary": "b1",
    "--auto-failover-policy-type": "min_available",
    "--auto-failover-policy-params": "min_limit=1,usage_threshold=80",
    "--topic": TOPIC,
    "--subscription-name": "billing",
    "--sub-name": "billing",
    "--coordinator-id": "0",
    "--most-sig-bits": "0",
    "--least-sig-bits": "0",
    "--ledger-id": "1",
    "--entry-id": "0",
    "--bookie": "x",
    "--rack": "r",
    "--type": "function",
    "--description": "d",
    "--path": "{schema}",
    "--state": '{"key":"k","stringValue":"v"}',
    "--broker": "{broker}",
}
"""Values of required parameters; parameters that are not listed get the number 10 (options) or 1 (positions)."""
_OF_FUNCTION = "--tenant public --namespace default --name f"
MORE = {
    **{
        f"functions {verb}": _OF_FUNCTION
        for verb in ["delete", "get", "restart", "stop", "start", "status", "stats"]
    },
    **{
        f"{group} {verb}": _OF_FUNCTION
        for group in ("sources", "sinks")
        for verb in ["delete", "get", "restart", "stop", "start", "status"]
    },
    **{
        f"functions {verb}": f"{_OF_FUNCTION} --classname C --jar {{schema}} --inputs {TOPIC}"
        for verb in ("create", "update", "localrun")
    },
    **{
        f"sources {verb}": f"{_OF_FUNCTION} --classname C --archive {{schema}} -o {TOPIC}"
        for verb in ("create", "update", "localrun")
    },
    **{
        f"sinks {verb}": f"{_OF_FUNCTION} --classname C --archive {{schema}} --inputs {TOPIC}"
        for verb in ("create", "update", "localrun")
    },
    "functions querystate": f"{_OF_FUNCTION} --key k",
    "functions putstate": _OF_FUNCTION,
    "functions trigger": f"{_OF_FUNCTION} --trigger-value v",
    "functions upload": "--source-file {schema} --path f",
    "functions download": "--destination-file {schema}.received --path f",
    "packages download": "--path {schema}.received",
    "resource-quotas get": "--namespace public/default --bundle 0x00000000_0xffffffff",
    "transactions scale-transactionCoordinators": "--replicas 8",
    "persistent create-subscription": "--subscription third",
    "persistent unsubscribe": "--subscription spare",
    "persistent reset-cursor": "--time 1h",
    "persistent get-message-by-id": "",
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
"""Arguments for commands that require none but have no effect without one."""
_PASSING = "non-persistent://public/default/passing"
OF = {
    **{
        f"non-persistent {verb}": (_PASSING,)
        for verb in ("lookup", "stats", "stats-internal", "get-partitioned-topic-metadata")
    },
    "non-persistent create-partitioned-topic": ("non-persistent://public/default/passing-parts",),
    "persistent create-partitioned-topic": ("persistent://public/default/more-parts",),
    "persistent delete-partitioned-topic": ("persistent://public/default/more-parts",),
    "persistent update-partitioned-topic": ("persistent://public/default/other-parts",),
    "persistent delete": ("persistent://public/default/doomed",),
    "persistent terminate": ("persistent://public/default/ending-too",),
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
"""Positional arguments of commands that use other objects than SAMPLES."""
PARTITIONED_COMMANDS = frozenset(
    {
        "topics update-partitioned-topic",
        "topics get-partitioned-topic-metadata",
        "topics partitioned-stats",
        "topics partitioned-stats-internal",
        "topics partitioned-lookup",
        "topics create-missed-partitions",
        "persistent get-partitioned-topic-metadata",
        "persistent partitioned-stats",
        "persistent partitioned-stats-internal",
    }
)
LAST = (
    "truncate",
    "trim-topic",
    "unsubscribe",
    "delete",
    "delete-partitioned-topic",
    "delete-failure-domain",
    "delete-bookie-rack",
)
"""Verbs of commands that run last: they remove objects that other commands need."""
READY = (
    ("PUT", "/admin/v2/persistent/public/default/doomed", None),
    ("PUT", "/admin/v2/persistent/public/default/ending-too", None),
    ("PUT", "/admin/v2/persistent/public/default/other-parts/partitions", b"2"),
    ("PUT", "/admin/v2/non-persistent/public/default/passing", None),
    ("POST", "/admin/v2/bookies/racks-info/x?group=g", b'{"rack": "r"}'),
    ("POST", "/admin/v2/clusters/us/namespaceIsolationPolicies/apart", b"{}"),
    ("PUT", "/admin/v2/persistent/public/default/orders", None),
    ("PUT", "/admin/v2/persistent/public/default/ending", None),
    ("PUT", "/admin/v2/persistent/public/default/parts/partitions", b"2"),
    ("PUT", "/admin/v2/persistent/public/default/ending-parts/partitions", b"2"),
    (
        "PUT",
        "/admin/v2/persistent/public/default/orders/subscription/billing",
        b'{"ledgerId":-1,"entryId":-1}',
    ),
    ("PUT", "/admin/v2/persistent/public/default/orders/subscription/spare", b'{"ledgerId":-1,"entryId":-1}'),
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
    """A command of pulsar-admin, as the driver prints it: a leaf of the command tree."""

    path: str
    """Group and verb, such as `topics create`."""
    positions: tuple[str, ...]
    options: tuple[tuple[str, ...], ...]
    """All names of each option."""
    required: frozenset[str]
    """Required positions, and first names of required options."""

    @property
    def group(self) -> str:
        return self.path.partition(" ")[0]

    def words(self, names: Mapping[str, str]) -> list[str]:
        """Return the command with its arguments. `names`: placeholder -> value."""
        words = self.path.split()
        given = OF.get(self.path)
        for at, position in enumerate(self.positions):
            if position in self.required:
                default = PARTITIONED if self.path in PARTITIONED_COMMANDS else SAMPLES.get(position, "1")
                words.append(given[at] if given else default)
        more = MORE.get(self.path, "").split()
        for options in self.options:
            if options[0] in self.required and not set(options) & set(more):
                words += [options[0], _sample(options)]
        if not more and not any(options[0] in self.required for options in self.options):
            more = next(_optional(self.options), [])
        return [_filled(word, names) for word in words + more]


def _filled(word: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def _sample(names: tuple[str, ...]) -> str:
    return next((SAMPLES[name] for name in names if name in SAMPLES), "10")


def _optional(options: tuple[tuple[str, ...], ...]) -> Iterator[list[str]]:
    for names in options:
        for name in names:
            if name in OPTIONAL_SAMPLES:
                yield [name, *OPTIONAL_SAMPLES[name].split()]


def read_tree(text: str) -> list[Command]:
    """Parse the command tree that the driver prints. Commands that remove objects come last."""
    commands = []
    for line in text.splitlines():
        columns = line.split("\t")
        if len(columns) == 3:
            positions, options = columns[1].split(), columns[2].split()
            named = [tuple(one.removeprefix("!").split("/")) for one in options]
            needed = {one[1:].split("/")[0] for one in [*positions, *options] if one.startswith("!")}
            bare = tuple(one.removeprefix("!") for one in positions)
            commands.append(Command(columns[0], bare, tuple(named), frozenset(needed)))
    once = {one.path: one for one in commands}.values()  # the tree repeats a command for each alias
    return sorted(once, key=lambda one: one.path.split()[-1] in LAST)
