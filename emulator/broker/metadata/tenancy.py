"""Creates and deletes tenants and namespaces while the regions of their cluster run.

A tenant and its namespaces are separate documents, which are not changed atomically together. So `create_namespace`
checks after its write that the tenant still exists, and `delete_tenant` that no namespace was created meanwhile. If the
check fails, the change is undone and an error raised. A namespace that is being deleted is in `closing` instead.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from emulator.broker.metadata.schemas import Schemas
from emulator.broker.metadata.store import Metadata
from emulator.broker.topic_directory.directory import TopicDirectory
from emulator.broker.topic_directory.partitions import PartitionedTopics
from emulator.model.stored_keys import (
    NamespacePath,
    RegionTopicPoliciesPath,
    StoredKey,
    TenantPath,
    TopicPoliciesPath,
    parse_path,
)
from emulator.model.values import TopicName
from emulator.storage.configuration.contract import ABSENT, ConfigurationRows, Conflict


class NotFound(Exception):
    """The tenant or namespace does not exist."""


class AlreadyExists(Exception):
    """A tenant or namespace of this name already exists."""


class NotEmpty(Exception):
    """The tenant or namespace is not empty, or the namespace is being deleted."""


class LimitReached(Exception):
    """A limit of tenants or namespaces is reached."""


class Tenant(NamedTuple):
    """The properties of a tenant in Pulsar's admin API."""

    admin_roles: tuple[str, ...] = ()
    allowed_clusters: tuple[str, ...] | None = None
    """Regions that the tenant's namespaces may name; None allows all, including later ones."""


class CountLimit(NamedTuple):
    """A limit of the number of documents."""

    prefix: str
    """Of the documents' paths."""
    count_max: int
    """0: no limit."""
    sentence: str
    """Text of the error."""

    def check(self, count: int) -> None:
        """Raise LimitReached if there is no room for one document more."""
        if count >= self.count_max:
            raise LimitReached(self.sentence)

    def check_rows(self, rows: ConfigurationRows) -> None:
        self.check(rows.count(self.prefix))


class Tenancy:
    """Tenants and namespaces of a cluster, as one region creates and deletes them."""

    def __init__(
        self, metadata: Metadata, directory: TopicDirectory, partitioned: PartitionedTopics, schemas: Schemas
    ) -> None:
        self._metadata = metadata
        self._directory = directory
        self._partitioned = partitioned
        self._schemas = schemas
        self.closing: set[str] = set()
        """Namespaces that this region is deleting; it creates no topics in them."""
        self._creating = asyncio.Lock()
        """Held while a tenant or namespace with a limit is created: where a change is published before it is made, the
        check in its transaction would come too late."""

    # Tenants.

    def tenant(self, name: str) -> Tenant:
        """Return a tenant. NotFound when it does not exist."""
        document = self._document(TenantPath(name))
        if document is None:
            raise NotFound("Tenant does not exist")
        allowed = document.get("allowedClusters")
        roles = document.get("adminRoles")
        admins = [one for one in roles if isinstance(one, str) and one] if isinstance(roles, list) else []
        return Tenant(tuple(admins), None if allowed is None else tuple(allowed))

    def admin_roles(self, tenant: str) -> tuple[str, ...] | None:
        """Return the admin roles of a tenant; None if it does not exist."""
        try:
            return self.tenant(tenant).admin_roles
        except NotFound:
            return None

    async def create_tenant(self, name: str, tenant: Tenant, count_max: int = 0) -> None:
        """Create a tenant. AlreadyExists; LimitReached if there are `count_max` (0: no limit); StorageError."""
        limit = CountLimit(TenantPath.prefix(), count_max, "Exceed the maximum number of tenants")
        try:
            await self._create(TenantPath(name).text, _encode_tenant(tenant), limit)
        except Conflict:
            raise AlreadyExists("Tenant already exist") from None

    async def _create(self, path: str, document: bytes, limit: CountLimit) -> None:
        """Set a path without a value. Conflict if it has one; LimitReached."""
        if not limit.count_max:
            await self._metadata.put(path, document, ABSENT)
            return
        async with self._creating:
            present = self._metadata.get(path)
            if present is not None:
                raise Conflict(path, ABSENT, present)
            limit.check(len(self._metadata.list(limit.prefix)))
            await self._metadata.put(path, document, ABSENT, check=limit.check_rows)

    async def change_tenant(self, name: str, tenant: Tenant) -> None:
        """Replace the properties of a tenant. NotFound, StorageError."""

        def replaced(present: bytes | None) -> bytes:
            if present is None:
                raise NotFound("Tenant does not exist")
            return _encode_tenant(tenant)

        await self._metadata.update(TenantPath(name).text, replaced)

    async def delete_tenant(self, name: str, *, force: bool) -> None:
        """Delete a tenant; with `force` its namespaces, too. NotFound, NotEmpty, ProtocolError, StorageError."""
        present = self._metadata.get(TenantPath(name).text)
        if present is None:
            raise NotFound("Tenant does not exist")
        for namespace in self.namespaces(name):
            if not force:
                raise NotEmpty("The tenant still has active namespaces")
            await self.delete_namespace(namespace, force=True)
        await self._metadata.put(TenantPath(name).text, None)
        if self.namespaces(name):  # created meanwhile
            await self._metadata.update(
                TenantPath(name).text, lambda now: present.value if now is None else now
            )
            raise NotEmpty("The tenant still has active namespaces")

    # Namespaces.

    def namespaces(self, tenant: str) -> list[str]:
        """Return the full names of a tenant's namespaces, sorted."""
        keys = [parse_path(change.path) for change in self._metadata.list(NamespacePath.prefix())]
        names = [key.name for key in keys if isinstance(key, NamespacePath)]
        return sorted(name for name in names if name.startswith(f"{tenant}/"))

    async def create_namespace(self, name: str, policies: Mapping[str, Any], count_max: int = 0) -> None:
        """Create a namespace. `policies`: by name, as JSON. AlreadyExists; NotFound for its tenant; LimitReached if the
        tenant has `count_max` (0: no limit); StorageError."""
        tenant = name.partition("/")[0]
        self.tenant(tenant)
        document = json.dumps({"policies": dict(policies)}, sort_keys=True).encode()
        sentence = f"Exceed the maximum number of namespace in tenant :{tenant}"
        limit = CountLimit(NamespacePath(f"{tenant}/").text, count_max, sentence)
        try:
            await self._create(NamespacePath(name).text, document, limit)
        except Conflict:
            raise AlreadyExists("Namespace already exists") from None
        if self._metadata.get(TenantPath(tenant).text) is None:
            await self._metadata.put(NamespacePath(name).text, None)
            raise NotFound("Tenant does not exist")

    async def delete_namespace(self, name: str, *, force: bool) -> None:
        """Delete a namespace, its topics' policies and schemas; with `force` its topics, too. NotFound, NotEmpty,
        ProtocolError, StorageError."""
        if self._metadata.get(NamespacePath(name).text) is None:
            raise NotFound("Namespace does not exist")
        if name in self.closing:
            raise NotEmpty("The namespace is being deleted")
        self.closing.add(name)
        try:
            await self.delete_topics(name, force=force)
            await self._metadata.put(NamespacePath(name).text, None)
            await self._delete_paths(self._policies_paths(name))
            await self._schemas.delete_in(name)
        finally:
            self.closing.discard(name)

    async def delete_topics(self, name: str, *, force: bool) -> None:
        """Delete all topics of a namespace. NotEmpty when it has topics and `force` is not set. ProtocolError,
        StorageError."""
        while True:
            topics, partitioned = self._topics_of(name), self._partitioned.names(name)
            if not topics and not partitioned:
                return
            if not force:
                raise NotEmpty("Cannot delete non empty namespace")
            for topic in partitioned:
                await self._partitioned.delete(TopicName.parse(topic), force=True)
            for topic in self._topics_of(name):
                await self._directory.delete(topic, force=True)

    def _topics_of(self, namespace: str) -> list[str]:
        return [*self._directory.names(namespace), *self._directory.non_persistent_names(namespace)]

    def _policies_paths(self, namespace: str) -> list[StoredKey]:
        """Return the paths of the policies of a namespace's topics, for all regions."""
        found: list[StoredKey] = []
        for prefix in (TopicPoliciesPath.prefix(), RegionTopicPoliciesPath.prefix()):
            for change in self._metadata.list(prefix):
                key = parse_path(change.path)
                if not isinstance(key, TopicPoliciesPath | RegionTopicPoliciesPath):
                    continue
                if TopicName.parse(key.topic).full_namespace == namespace:
                    found.append(key)
        return found

    async def _delete_paths(self, paths: Collection[StoredKey]) -> None:
        for path in paths:
            await self._metadata.put(path.text, None)

    def _document(self, path: StoredKey) -> Mapping[str, Any] | None:
        change = self._metadata.get(path.text)
        if change is None or change.value is None:
            return None
        try:
            document = json.loads(change.value)
        except ValueError:
            return {}
        return document if isinstance(document, dict) else {}


def _encode_tenant(tenant: Tenant) -> bytes:
    document: dict[str, Any] = {"adminRoles": list(tenant.admin_roles)}
    if tenant.allowed_clusters is not None:
        document["allowedClusters"] = list(tenant.allowed_clusters)
    return json.dumps(document, sort_keys=True).encode()
