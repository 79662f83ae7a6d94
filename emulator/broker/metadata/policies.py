"""Tenants, namespaces and policies of a cluster, and the effective policies of each topic of a region.

The cluster's configuration store has one document per path:

    tenant/<tenant>                         {"adminRoles": [...], "allowedClusters": [...]}, or {}: all regions
    namespace/<tenant/ns>                   {"policies": {name: value}}
    topic-policies/<topic>                  {"policies": {name: value}}     in every region of the cluster
    region-topic-policies/<region>/<topic>  {"policies": {name: value}}     in one region; outranks the former
    broker-policies/all                     {"policies": {name: value}}

Partitions have the policies of their topic, and none of their own.

The topology only seeds the store: once per cluster, and without overwriting existing values (PO3).

    change in the store ─▶ Policies drops cached results ─▶ PolicyRollout, in steps: resolve ─▶ Topic.apply
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from emulator.broker.metadata.policy_rollout import PolicyFollower, PolicyRollout
from emulator.broker.metadata.store import Metadata
from emulator.config.region import NamespaceConfig
from emulator.core.metadata.event import policy_element
from emulator.core.metadata.merge import Overruled
from emulator.core.policies.declaration import Policy, Scope
from emulator.core.policies.lifetime import MESSAGE_TTL, RETENTION, Retention
from emulator.core.policies.topic_policies import TopicPolicies, resolve
from emulator.errors import ProtocolError, ServerError
from emulator.model.stored_keys import (
    BROKER_POLICIES_PATH,
    SEEDED_PATH,
    BrokerPoliciesPath,
    NamespacePath,
    RegionTopicPoliciesPath,
    StoredKey,
    TenantPath,
    TopicPoliciesPath,
    parse_path,
)
from emulator.model.values import Change, TopicName
from emulator.storage.configuration.contract import Conflict

logger = logging.getLogger(__name__)

T = TypeVar("T")

_WITH_POLICIES = (
    NamespacePath.prefix(),
    TopicPoliciesPath.prefix(),
    RegionTopicPoliciesPath.prefix(),
    BrokerPoliciesPath.prefix(),
)
"""Prefixes of the paths whose documents contain policies; this module does not read other documents."""


class Policies:
    """The policies of a cluster, as one region reads, changes and applies them."""

    def __init__(self, metadata: Metadata, region: str, configured: Mapping[str, Any] | None = None) -> None:
        """`configured`: policies that apply to all topics of this region where the store sets none."""
        self._metadata = metadata
        self._region = region
        self._configured = configured or {}
        self._documents: dict[str, Mapping[str, Any]] = {}
        """Path -> the policies in its document, by name, as JSON."""
        self.existing: dict[str, None] = {}
        """The namespaces that exist, as `tenant/namespace`; only this class changes it."""
        self._paths_by_topic: dict[str, set[str]] = {}
        """Full name of a topic -> paths of the documents with its policies, those for other regions included."""
        self._resolved: dict[tuple[str, str], TopicPolicies] = {}
        """(existing namespace, topic) -> effective policies; topic is "" for topics without policies of their own."""
        self._followers: dict[str, dict[PolicyFollower, str]] = {}
        """Namespace -> its loaded topics, each with the topic name under which its policies are stored."""
        self._rollout = PolicyRollout(self.of_topic)

    async def start(
        self,
        tenants: Iterable[str],
        namespaces: Iterable[NamespaceConfig],
        tenant_admins: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        """Read and watch the open store, and seed it if no region has seeded it. `tenant_admins`: tenant -> its admin
        roles. StorageError when seeding fails."""
        for change in self._metadata.list(""):
            if change.path.startswith(_WITH_POLICIES):
                self._read_document(change)
        self._metadata.watch("", self._changed)
        if self._metadata.get(SEEDED_PATH.text) is None:
            for tenant in tenants:
                admins = list((tenant_admins or {}).get(tenant, ()))
                await self._seed(TenantPath(tenant), {"adminRoles": admins} if admins else {})
            for namespace in namespaces:
                await self._seed(
                    NamespacePath(namespace.name), {"policies": _policies_from_topology(namespace)}
                )
            await self._seed(SEEDED_PATH, {})

    async def _seed(self, path: StoredKey, document: Mapping[str, Any]) -> None:
        try:
            await self._metadata.put(path.text, _encode(document), expected=-1, is_seed=True)
        except (Conflict, Overruled):  # PO3: another region or a user was faster
            if self._metadata.get(path.text) is None:
                # This region must not serve before it has what the other one seeded.
                await self._metadata.refresh()

    # Queries.

    def tenants(self) -> list[str]:
        return self._names(TenantPath.prefix())

    def namespaces(self) -> list[str]:
        """Return the namespaces as `tenant/namespace`, sorted."""
        return self._names(NamespacePath.prefix())

    def _names(self, prefix: str) -> list[str]:
        found = [parse_path(change.path) for change in self._metadata.list(prefix)]
        return sorted(key.name for key in found if isinstance(key, TenantPath | NamespacePath))

    def has_namespace(self, name: str) -> bool:
        return name in self.existing

    def of_namespace(self, name: str, policy: Policy[T]) -> T:
        """Return the value of a policy for the topics of a namespace that do not set it themselves."""
        found = self._resolved.get((name, ""))
        return (found or self._resolve(name, None))[policy]

    def of_topic(self, topic: TopicName) -> TopicPolicies:
        """Return the effective policies of a topic."""
        if not self._paths_by_topic and (found := self._resolved.get((topic.full_namespace, ""))):
            return found
        has_own_policies = (topic.partitioned or topic).text in self._paths_by_topic
        return self._resolve(topic.full_namespace, topic if has_own_policies else None)

    def _resolve(self, namespace: str, topic: TopicName | None) -> TopicPolicies:
        policy_topic = (topic.partitioned or topic).text if topic is not None else ""
        found = self._resolved.get((namespace, policy_topic))
        if found is not None:
            return found
        by_scope = {
            Scope.BROKER: {**self._configured, **self.stored_policies(BROKER_POLICIES_PATH)},
            Scope.NAMESPACE: self.stored_policies(NamespacePath(namespace)),
        }
        if topic is not None:
            by_scope[Scope.TOPIC] = {
                **self.stored_policies(self.topic_policies_path(topic, everywhere=True)),
                **self.stored_policies(self.topic_policies_path(topic, everywhere=False)),
            }

        def invalid(policy: Policy[Any], problem: ValueError) -> None:
            logger.warning(
                "policy %s of %s is invalid and ignored: %s", policy.name, policy_topic or namespace, problem
            )

        found = resolve(by_scope, invalid)
        if self.has_namespace(namespace):
            self._resolved[namespace, policy_topic] = found
        return found

    # Loaded topics.

    def attach(self, topic: PolicyFollower) -> None:
        """Apply the current policies to a topic that was loaded, and every later change until `detach`."""
        topic.apply(None, self.of_topic(topic.name))
        followers = self._followers.setdefault(topic.name.full_namespace, {})
        followers[topic] = (topic.name.partitioned or topic.name).text

    def detach(self, topic: PolicyFollower) -> None:
        """Stop applying policies to a topic that is unloaded."""
        namespace = topic.name.full_namespace
        followers = self._followers.get(namespace, {})
        followers.pop(topic, None)
        if not followers:
            self._followers.pop(namespace, None)
        self._rollout.discard(topic)

    def topic_policies_path(self, topic: TopicName, *, everywhere: bool) -> StoredKey:
        """Return the path of a topic's policies: for all regions of the cluster (`everywhere`), or for this region."""
        policy_topic = (topic.partitioned or topic).text
        return (
            TopicPoliciesPath(policy_topic)
            if everywhere
            else RegionTopicPoliciesPath(self._region, policy_topic)
        )

    def stored_policies(self, path: StoredKey) -> Mapping[str, Any]:
        """Return the policies in the document at a path, by name, as JSON."""
        return self._documents.get(path.text, {})

    def documents_with(self, policy: Policy[tuple[str, ...]], region: str) -> list[StoredKey]:
        """Return the paths of all documents of namespaces and topics in which a policy lists a region besides
        others."""
        found = [parse_path(path) for path, stored in self._documents.items() if policy.name in stored]
        return [
            path
            for path in found
            if path is not None
            and region in (names := self.stored_value(path, policy) or ())
            and len(names) > 1
        ]

    def stored_value(self, path: StoredKey, policy: Policy[Any]) -> Any:
        """Return a policy in the document at a path, as JSON; None for one that is not set, or invalid."""
        stored = self.stored_policies(path).get(policy.name)
        return None if _decode_value(path.text, policy, stored) is None else stored

    # Changes.

    async def set(self, path: StoredKey, policy: Policy[T], value: T | None) -> int:
        """Set a policy of a namespace, a topic or the broker; None unsets it (PO2). Return the revision once the change
        is durable and applied to the loaded topics of this region. ProtocolError as in `change`, StorageError."""
        return await self.change(path, policy, lambda present: value)

    async def change(
        self, path: StoredKey, policy: Policy[T], compute: Callable[[T | None], T | None]
    ) -> int:
        """Set a policy atomically to the value that `compute` returns for the current one (None: not set, or invalid).
        ProtocolError when the namespace does not exist: a change must not create it. StorageError."""

        def change(present: bytes | None) -> bytes:
            if present is None and isinstance(path, NamespacePath):
                raise ProtocolError(ServerError.TopicNotFound, "Namespace does not exist")
            document = {} if present is None else _decode_document(path.text, present)
            policies = _policies_in(document)
            value = compute(_decode_value(path.text, policy, policies.pop(policy.name, None)))
            if value is not None:
                policies[policy.name] = policy.codec.encode(value)
            return _encode({**document, "policies": policies})

        revision = await self._metadata.update(path.text, change, touched=(policy_element(policy.name),))
        await self._rollout.finished()
        return revision

    # Following.

    def _changed(self, change: Change) -> None:
        if not change.path.startswith(_WITH_POLICIES):
            return
        self._read_document(change)
        match parse_path(change.path):
            case BrokerPoliciesPath():
                self._resolved.clear()
                self._rollout.begin([topic for topics in self._followers.values() for topic in topics])
            case NamespacePath(name):
                self._resolved = {key: value for key, value in self._resolved.items() if key[0] != name}
                self._rollout.begin(self._followers.get(name, ()))
            case TopicPoliciesPath(topic):
                self._topic_changed(topic)
            case RegionTopicPoliciesPath(region, topic) if region == self._region:
                self._topic_changed(topic)

    def _topic_changed(self, policy_topic: str) -> None:
        """Apply changed policies of a topic, and of its partitions."""
        try:
            namespace = TopicName.parse(policy_topic).full_namespace
        except ValueError:
            return  # no topic has this name
        self._resolved.pop((namespace, policy_topic), None)
        followers = self._followers.get(namespace, {})
        self._rollout.begin([topic for topic, name in followers.items() if name == policy_topic])

    def _read_document(self, change: Change) -> None:
        match parse_path(change.path):
            case TopicPoliciesPath(topic) | RegionTopicPoliciesPath(_, topic):
                self._note_path(topic, change)
            case NamespacePath(name) if change.value is not None:
                self.existing[name] = None
            case NamespacePath(name):
                self.existing.pop(name, None)
        if change.value is None:
            self._documents.pop(change.path, None)
            return
        self._documents[change.path] = _policies_in(_decode_document(change.path, change.value))

    def _note_path(self, topic: str, change: Change) -> None:
        paths = self._paths_by_topic.setdefault(topic, set())
        if change.value is not None:
            paths.add(change.path)
            return
        paths.discard(change.path)
        if not paths:
            del self._paths_by_topic[topic]


def _policies_from_topology(namespace: NamespaceConfig) -> dict[str, Any]:
    """Return the policies that the topology declares for a namespace, by name, as JSON."""
    policies: dict[str, Any] = {"replication_clusters": list(namespace.regions)}
    if namespace.deduplication is not None:
        policies["deduplication"] = namespace.deduplication
    if namespace.keep_alive_interval_ms:
        policies["keep_alive_interval_ms"] = namespace.keep_alive_interval_ms
    if namespace.exclusive_home:
        policies["exclusive_home"] = namespace.exclusive_home
    retention = Retention(namespace.retention_minutes, namespace.retention_megabytes)
    if retention.is_limited:
        policies[RETENTION.name] = RETENTION.codec.encode(retention)
    if namespace.message_ttl_seconds:
        policies[MESSAGE_TTL.name] = namespace.message_ttl_seconds
    return policies | namespace.policies


def _decode_document(path: str, stored: bytes) -> dict[str, Any]:
    """Return the document at a path; empty, with a warning, for a value that is not a JSON object."""
    try:
        document = json.loads(stored)
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    logger.warning("the value of %s in the configuration store is not a document and is ignored", path)
    return {}


def _policies_in(document: Mapping[str, Any]) -> dict[str, Any]:
    policies = document.get("policies")
    return dict(policies) if isinstance(policies, dict) else {}


def _decode_value(path: str, policy: Policy[T], stored: Any) -> T | None:
    """Return the value of a policy; None, with a warning, for an invalid one."""
    if stored is None:
        return None
    try:
        return policy.codec.decode(stored)
    except ValueError as problem:
        logger.warning("policy %s at %s is invalid and ignored: %s", policy.name, path, problem)
        return None


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()
