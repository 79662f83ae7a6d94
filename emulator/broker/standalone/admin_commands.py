"""The commands of `bin/pulsar-admin` in the image for Testcontainers, and the request of the admin API that each sends.

Test set-ups run these in the container. All other commands are refused by `admin_program`, which sends the requests.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

from emulator.model.values import NON_PERSISTENT, PERSISTENT

Option = tuple[tuple[str, ...], dict[str, Any]]
"""The names of an option, and how argparse reads it."""
LATEST, EARLIEST = ({"ledgerId": value, "entryId": value, "partitionIndex": -1} for value in (2**63 - 1, -1))


@dataclass(frozen=True, slots=True)
class AdminRequest:
    method: str
    target: str
    body: Any = None


@dataclass(frozen=True, slots=True)
class AdminCommand:
    """One command of pulsar-admin."""

    method: str
    path: str
    """Below /admin/v2, with `{subject}` and the names of options."""
    subject: str = ""
    """What the argument names: tenant, namespace, topic or cluster; empty: there is no argument."""
    options: tuple[Option, ...] = ()
    query: Mapping[str, str] | None = None
    """Parameter -> name of the option that sets it."""
    body: Callable[[argparse.Namespace], Any] | None = None

    def request(self, options: argparse.Namespace) -> AdminRequest:
        """Return the request of a parsed command. Raises ValueError for a name that cannot be one."""
        values = {name: quote(str(value), safe="") for name, value in vars(options).items()}
        if self.subject:
            values["subject"] = SUBJECTS[self.subject](options.subject)
        asked = {parameter: getattr(options, name) for parameter, name in (self.query or {}).items()}
        query = urlencode(
            {name: str(value).lower() for name, value in asked.items() if value not in (None, False)}
        )
        target = f"/admin/v2{self.path.format(**values)}{f'?{query}' if query else ''}"
        return AdminRequest(self.method, target, self.body(options) if self.body else None)


def _tenant(text: str) -> str:
    if not text or "/" in text:
        raise ValueError(f"{text!r} is no tenant")
    return quote(text, safe="")


def _namespace(text: str) -> str:
    parts = text.split("/")
    if len(parts) != 2 or not all(parts):
        raise ValueError(f"{text!r} is no namespace: write TENANT/NAMESPACE")
    return "/".join(quote(part, safe="") for part in parts)


def _topic(text: str) -> str:
    """Return the path of a topic: domain, tenant, namespace and name; Pulsar's defaults for those that are left out."""
    domain, separator, name = text.rpartition("://")
    domain = domain if separator else PERSISTENT
    parts = name.split("/", 2)
    if len(parts) == 1:
        parts = ["public", "default", *parts]
    if domain not in (PERSISTENT, NON_PERSISTENT) or len(parts) != 3 or not all(parts):
        raise ValueError(f"{text!r} is no topic: write persistent://TENANT/NAMESPACE/TOPIC, or TOPIC")
    return "/".join((domain, *(quote(part, safe="") for part in parts)))


def _schema(text: str) -> str:
    """Return the path of a topic's schema: without the domain."""
    return _topic(text).partition("/")[2]


SUBJECTS: Final[Mapping[str, Callable[[str], str]]] = {
    "tenant": _tenant,
    "namespace": _namespace,
    "topic": _topic,
    "topic of a schema": _schema,
    "cluster": _tenant,
}


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _position(text: str) -> dict[str, int]:
    if text in ("latest", "earliest"):
        return LATEST if text == "latest" else EARLIEST
    ledger, separator, entry = text.partition(":")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not latest, earliest or LEDGER:ENTRY")
    return {"ledgerId": int(ledger), "entryId": int(entry), "partitionIndex": -1}


_FORCE: Final[Option] = (("-f", "--force"), {"action": "store_true"})
_SUBSCRIPTION: Final[Option] = (("-s", "--subscription"), {"required": True})
_PARTITIONS: Final[Option] = (("-p", "--partitions"), {"required": True, "type": int})
_CLUSTERS: Final[Option] = (("-c", "--clusters"), {"type": _names, "default": None})
_FORCED: Final = {"force": "force"}
_PERSISTENT_TOPICS: Final = "/persistent/{subject}"


def _replication(options: argparse.Namespace) -> Any:
    return {"replication_clusters": options.clusters} if options.clusters else None


COMMANDS: Final[Mapping[str, AdminCommand]] = {
    "brokers healthcheck": AdminCommand("GET", "/brokers/health"),
    "clusters list": AdminCommand("GET", "/clusters"),
    "clusters get": AdminCommand("GET", "/clusters/{subject}", "cluster"),
    "tenants list": AdminCommand("GET", "/tenants"),
    "tenants get": AdminCommand("GET", "/tenants/{subject}", "tenant"),
    "tenants create": AdminCommand(
        "PUT",
        "/tenants/{subject}",
        "tenant",
        (
            (("-c", "--allowed-clusters"), {"type": _names, "default": None, "dest": "clusters"}),
            (("-r", "--admin-roles"), {"type": _names, "default": []}),
        ),
        body=lambda options: {"allowedClusters": options.clusters, "adminRoles": options.admin_roles},
    ),
    "tenants delete": AdminCommand("DELETE", "/tenants/{subject}", "tenant", (_FORCE,), _FORCED),
    "namespaces list": AdminCommand("GET", "/namespaces/{subject}", "tenant"),
    "namespaces create": AdminCommand(
        "PUT",
        "/namespaces/{subject}",
        "namespace",
        (_CLUSTERS, (("-b", "--bundles"), {"type": int, "default": None})),
        body=_replication,
    ),
    "namespaces delete": AdminCommand("DELETE", "/namespaces/{subject}", "namespace", (_FORCE,), _FORCED),
    "namespaces policies": AdminCommand("GET", "/namespaces/{subject}", "namespace"),
    "namespaces topics": AdminCommand("GET", "/namespaces/{subject}/topics", "namespace"),
    "namespaces get-clusters": AdminCommand("GET", "/namespaces/{subject}/replication", "namespace"),
    "namespaces set-clusters": AdminCommand(
        "POST",
        "/namespaces/{subject}/replication",
        "namespace",
        ((("-c", "--clusters"), {"type": _names, "required": True}),),
        body=lambda options: options.clusters,
    ),
    "topics list": AdminCommand("GET", _PERSISTENT_TOPICS, "namespace"),
    "topics list-partitioned-topics": AdminCommand("GET", f"{_PERSISTENT_TOPICS}/partitioned", "namespace"),
    "topics create": AdminCommand("PUT", "/{subject}", "topic"),
    "topics delete": AdminCommand("DELETE", "/{subject}", "topic", (_FORCE,), _FORCED),
    "topics create-partitioned-topic": AdminCommand(
        "PUT", "/{subject}/partitions", "topic", (_PARTITIONS,), body=lambda options: options.partitions
    ),
    "topics update-partitioned-topic": AdminCommand(
        "POST", "/{subject}/partitions", "topic", (_PARTITIONS,), body=lambda options: options.partitions
    ),
    "topics delete-partitioned-topic": AdminCommand(
        "DELETE", "/{subject}/partitions", "topic", (_FORCE,), _FORCED
    ),
    "topics get-partitioned-topic-metadata": AdminCommand("GET", "/{subject}/partitions", "topic"),
    "topics stats": AdminCommand("GET", "/{subject}/stats", "topic"),
    "topics stats-internal": AdminCommand("GET", "/{subject}/internalStats", "topic"),
    "topics partitioned-stats": AdminCommand("GET", "/{subject}/partitioned-stats", "topic"),
    "topics last-message-id": AdminCommand("GET", "/{subject}/lastMessageId", "topic"),
    "topics subscriptions": AdminCommand("GET", "/{subject}/subscriptions", "topic"),
    "topics create-subscription": AdminCommand(
        "PUT",
        "/{subject}/subscription/{subscription}",
        "topic",
        (
            _SUBSCRIPTION,
            (("-m", "--messageId"), {"type": _position, "default": LATEST, "dest": "position"}),
            (("-r", "--replicated"), {"action": "store_true"}),
        ),
        {"replicated": "replicated"},
        body=lambda options: options.position,
    ),
    "topics unsubscribe": AdminCommand(
        "DELETE", "/{subject}/subscription/{subscription}", "topic", (_SUBSCRIPTION, _FORCE), _FORCED
    ),
    "topics skip-all": AdminCommand(
        "POST", "/{subject}/subscription/{subscription}/skip_all", "topic", (_SUBSCRIPTION,)
    ),
    "topics unload": AdminCommand("PUT", "/{subject}/unload", "topic"),
    "topics compact": AdminCommand("PUT", "/{subject}/compaction", "topic"),
    "topics terminate": AdminCommand("POST", "/{subject}/terminate", "topic"),
    "schemas get": AdminCommand("GET", "/schemas/{subject}/schema", "topic of a schema"),
    "schemas delete": AdminCommand("DELETE", "/schemas/{subject}/schema", "topic of a schema"),
}
"""Group and name of a command -> its request."""
