"""Tenants, namespaces and policies of a cluster, and what applies to each topic of a region right now.

They live in the cluster's configuration store, one document a place:

    tenant/<tenant>                         {"adminRoles": [...], "allowedClusters": [...]}, or {}: all regions
    namespace/<tenant/ns>                   {"policies": {name: value}}
    topic-policies/<topic>                  {"policies": {name: value}}     in every region of the cluster
    region-topic-policies/<region>/<topic>  {"policies": {name: value}}     in one region; outranks the former
    broker-policies/all                     {"policies": {name: value}}

What a topic sets, its partitions set: they have no policies of their own.

The topology only seeds it: once a cluster, and never over what is there (P3). One watch a region; a value is worked out
when something changes, and reading it costs nothing.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from emulator.broker.metadata.store import Metadata
from emulator.config.region import NamespaceConfig
from emulator.core.metadata.event import policy_element
from emulator.core.metadata.merge import Overruled
from emulator.core.policies.declaration import Policy, Scope, effective
from emulator.core.policies.lifetime import MESSAGE_TTL, RETENTION, Retention
from emulator.core.policies.registry import REGISTRY
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
"""Paths whose documents contain policies. Documents at other paths (schemas, for example) are not read here."""


class Effective:
    """What applies to one topic, until `close`."""

    def __init__(self, policies: Policies, topic: TopicName) -> None:
        self._policies = policies
        self._topic = topic
        self.owner = str(topic.partitioned or topic)
        """Whose policies they are."""
        self._values: dict[str, Any] = {}
        self._callbacks: list[tuple[Policy[Any], Callable[[], None]]] = []
        self.refresh()

    def __getitem__(self, policy: Policy[T]) -> T:
        value: T = self._values[policy.name]
        return value

    def on_change(self, policy: Policy[Any], callback: Callable[[], None]) -> None:
        """Call it after the value changed, in the same step."""
        self._callbacks.append((policy, callback))

    def refresh(self) -> None:
        """Something that may apply was changed."""
        places = self._policies.places(self._topic)
        before, self._values = self._values, {}
        for policy in REGISTRY.values():
            self._values[policy.name] = _worked_out(policy, places, str(self._topic))
        for policy, callback in list(self._callbacks):
            if before[policy.name] != self._values[policy.name]:
                callback()

    def close(self) -> None:
        self._callbacks.clear()
        self._policies.forget(self)

    @property
    def namespace(self) -> str:
        return self._topic.full_namespace


class Policies:
    """One a region."""

    def __init__(self, metadata: Metadata, region: str) -> None:
        self._metadata = metadata
        self._region = region
        self._documents: dict[str, Mapping[str, Any]] = {}
        """What each path's document says of policies."""
        self._effective: dict[Effective, None] = {}

    async def start(self, tenants: Iterable[str], namespaces: Iterable[NamespaceConfig]) -> None:
        """Seed the store if nobody has, and follow it. The metadata is open. StorageError when seeding fails."""
        for change in self._metadata.list(""):
            if change.path.startswith(_WITH_POLICIES):
                self._read(change)
        self._metadata.watch("", self._changed)
        if self._metadata.get(SEEDED_PATH.text) is None:
            for tenant in tenants:
                await self._seed(TenantPath(tenant), {})
            for namespace in namespaces:
                await self._seed(NamespacePath(namespace.name), {"policies": _declared(namespace)})
            await self._seed(SEEDED_PATH, {})

    async def _seed(self, path: StoredKey, document: Mapping[str, Any]) -> None:
        with contextlib.suppress(Conflict, Overruled):  # P3: another region was quicker, or a person
            await self._metadata.put(path.text, _dumped(document), expected=-1, is_seed=True)

    # What there is.

    def tenants(self) -> list[str]:
        return self._names(TenantPath.prefix())

    def namespaces(self) -> list[str]:
        """`tenant/namespace`, sorted."""
        return self._names(NamespacePath.prefix())

    def _names(self, prefix: str) -> list[str]:
        found = [parse_path(change.path) for change in self._metadata.list(prefix)]
        return sorted(key.name for key in found if isinstance(key, TenantPath | NamespacePath))

    def has_namespace(self, name: str) -> bool:
        return NamespacePath(name).text in self._documents

    def of_namespace(self, name: str, policy: Policy[T]) -> T:
        """What applies to its topics, as far as they set nothing themselves."""
        places = {
            Scope.BROKER: self.set_at(BROKER_POLICIES_PATH),
            Scope.NAMESPACE: self.set_at(NamespacePath(name)),
        }
        value: T = _worked_out(policy, places, name)
        return value

    def now(self, topic: TopicName, policy: Policy[T]) -> T:
        """What applies to a topic at this moment."""
        value: T = _worked_out(policy, self.places(topic), str(topic))
        return value

    def of_topic(self, topic: TopicName) -> Effective:
        """What applies to a topic, kept up to date until it is closed."""
        found = Effective(self, topic)
        self._effective[found] = None
        return found

    def of_name(self, topic: str) -> Effective:
        """What applies to a topic now; nobody keeps it up to date."""
        return Effective(self, TopicName.parse(topic))

    def places(self, topic: TopicName) -> dict[Scope, Mapping[str, Any]]:
        return {
            Scope.BROKER: self.set_at(BROKER_POLICIES_PATH),
            Scope.NAMESPACE: self.set_at(NamespacePath(topic.full_namespace)),
            Scope.TOPIC: {
                **self.set_at(self.topic_place(topic, everywhere=True)),
                **self.set_at(self.topic_place(topic, everywhere=False)),
            },
        }

    def topic_place(self, topic: TopicName, *, everywhere: bool) -> StoredKey:
        """Where a topic's policies are: those of all regions of the cluster, or those of this one."""
        owner = str(topic.partitioned or topic)
        return TopicPoliciesPath(owner) if everywhere else RegionTopicPoliciesPath(self._region, owner)

    def set_at(self, path: StoredKey) -> Mapping[str, Any]:
        """What a place itself sets, by policy name, as JSON."""
        return self._documents.get(path.text, {})

    def forget(self, one: Effective) -> None:
        self._effective.pop(one, None)

    # Changing.

    async def set(self, place: StoredKey, policy: Policy[T], value: T | None) -> int:
        """Set a policy at a namespace, a topic or the broker; None: unset it (P2). Gives the revision. StorageError."""
        return await self.change(place, policy, lambda present: value)

    async def change(
        self, place: StoredKey, policy: Policy[T], changed: Callable[[T | None], T | None]
    ) -> int:
        """The same with a value that depends on what is set there, whoever else changes it. ProtocolError when its
        namespace was deleted meanwhile: a change of it must not bring it back."""

        def change(present: bytes | None) -> bytes:
            if present is None and isinstance(place, NamespacePath):
                raise ProtocolError(ServerError.TopicNotFound, "Namespace does not exist")
            document = json.loads(present) if present is not None else {}
            policies = dict(document.get("policies", {}))
            before = policies.pop(policy.name, None)
            value = changed(None if before is None else policy.codec.decode(before))
            if value is not None:
                policies[policy.name] = policy.codec.encode(value)
            return _dumped({**document, "policies": policies})

        return await self._metadata.update(place.text, change, touched=(policy_element(policy.name),))

    # Following.

    def _changed(self, change: Change) -> None:
        if not change.path.startswith(_WITH_POLICIES):
            return
        self._read(change)
        key = parse_path(change.path)
        for one in list(self._effective):
            match key:
                case NamespacePath(name) if name == one.namespace:
                    one.refresh()
                case TopicPoliciesPath(topic) if topic == one.owner:
                    one.refresh()
                case RegionTopicPoliciesPath(region, topic) if (region, topic) == (self._region, one.owner):
                    one.refresh()
                case BrokerPoliciesPath():
                    one.refresh()

    def _read(self, change: Change) -> None:
        if change.value is None:
            self._documents.pop(change.path, None)
            return
        try:
            policies = json.loads(change.value).get("policies", {})
        except (ValueError, AttributeError):
            logger.warning(
                "the value of %s in the configuration store is not a document and is ignored", change.path
            )
            policies = {}
        self._documents[change.path] = policies if isinstance(policies, dict) else {}


def _declared(namespace: NamespaceConfig) -> dict[str, Any]:
    """What a topology says of a namespace, as policies."""
    policies: dict[str, Any] = {
        "replication_clusters": list(namespace.regions),
        "deduplication": namespace.deduplication,
    }
    if namespace.keep_alive_interval_ms:
        policies["keep_alive_interval_ms"] = namespace.keep_alive_interval_ms
    if namespace.exclusive_home:
        policies["exclusive_home"] = namespace.exclusive_home
    retention = Retention(namespace.retention_minutes, namespace.retention_megabytes)
    if retention.lets_go:
        policies[RETENTION.name] = RETENTION.codec.encode(retention)
    if namespace.message_ttl_seconds:
        policies[MESSAGE_TTL.name] = namespace.message_ttl_seconds
    return policies


def _worked_out(policy: Policy[T], places: Mapping[Scope, Mapping[str, Any]], of: str) -> T:
    try:
        return effective(policy, places)
    except ValueError as problem:
        logger.warning("policy %s of %s is invalid and ignored: %s", policy.name, of, problem)
        return policy.default


def _dumped(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()
