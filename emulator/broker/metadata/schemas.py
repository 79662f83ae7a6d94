"""The schemas of a cluster's topics, as one of its regions reads and changes them (docs/components/schemas.md).

The cluster's configuration store has one path per schema version. To register a schema, a region writes the next
version number on condition that it is unused. Of two concurrent writes one fails, and its region retries after it has
read the other one's version.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from emulator.broker.metadata.policies import Policies
from emulator.broker.metadata.store import Metadata
from emulator.core.policies.schemas import (
    SCHEMA_AUTO_UPDATE,
    SCHEMA_COMPATIBILITY,
    SCHEMA_UPDATES,
    SCHEMA_VALIDATION,
    strategy_of,
)
from emulator.core.schemas.compatibility import CompatibilityStrategy, check_follows, check_form
from emulator.core.schemas.json_text import BadSchema, Incompatible
from emulator.core.schemas.key_value import halves
from emulator.core.schemas.versions import Version, Versions, identity_of
from emulator.errors import ProtocolError, ServerError, StorageError
from emulator.model.stored_keys import SchemaPath, parse_path
from emulator.model.values import Change, Schema, SchemaType, TopicName
from emulator.storage.configuration.contract import Conflict
from emulator.wire.protobuf import check_descriptors

logger = logging.getLogger(__name__)

OBEYS = (SCHEMA_COMPATIBILITY, SCHEMA_AUTO_UPDATE, SCHEMA_VALIDATION, SCHEMA_UPDATES)
SENTENCE_LENGTH_MAX = 1_000
_NONE = Versions()


def schema_key(topic: TopicName) -> str:
    """Return the topic name under which a schema is stored: partitions share the schemas of their topic."""
    whole = topic.partitioned or topic
    return f"{whole.full_namespace}/{whole.topic}"


class Schemas:
    """One region's access to the schemas of its cluster."""

    def __init__(
        self,
        metadata: Metadata,
        policies: Policies,
        wall_clock_ms: Callable[[], int],
        *,
        bytes_max: int,
        versions_max: int,
        check_follows: Callable[[Schema, Schema, CompatibilityStrategy], None] = check_follows,
    ) -> None:
        self._metadata = metadata
        self._policies = policies
        self._wall_clock_ms = wall_clock_ms
        self._bytes_max = bytes_max
        self._versions_max = versions_max
        self._check_follows = check_follows
        self._versions: dict[str, Versions] = {}
        """`schema_key` of a topic -> its versions, without empty ones."""

    def start(self) -> None:
        """Read and watch the schemas in the store, which is open."""
        prefix = SchemaPath.prefix()
        for change in self._metadata.list(prefix):
            self._changed(change)
        self._metadata.watch(prefix, self._changed)

    def _changed(self, change: Change) -> None:
        key = parse_path(change.path)
        if not isinstance(key, SchemaPath) or not (key.version.isascii() and key.version.isdecimal()):
            return
        number = int(key.version)
        versions = self._versions.setdefault(key.topic, Versions())
        try:
            if change.value is None:
                versions.remove(number)
            else:
                versions.put(Version.decode(number, change.value))
        except ValueError as problem:
            logger.warning(
                "the value of %s in the configuration store is invalid and ignored: %s", change.path, problem
            )
            versions.put(Version(number, None, 0))  # the version number stays used
        if not len(versions):
            del self._versions[key.topic]

    # Queries.

    def of(self, topic: TopicName) -> Versions:
        """Return all versions of a topic, deletions included."""
        return self._versions.get(schema_key(topic), _NONE)

    def newest(self, topic: TopicName) -> Version | None:
        """Return the topic's current schema; None if it has none, or it was deleted."""
        return self.of(topic).newest

    async def at(self, topic: TopicName, number: int) -> Version | None:
        """Return a version, even if another region has just registered it; None if it does not exist. StorageError when
        it is not known here and the store is unavailable."""
        found = self.of(topic).get(number)
        if found is None:
            await self._metadata.refresh()
            found = self.of(topic).get(number)
        return found

    def strategy(self, topic: TopicName) -> CompatibilityStrategy:
        policies = self._policies.of_topic(topic)
        return strategy_of(policies[SCHEMA_COMPATIBILITY], policies[SCHEMA_AUTO_UPDATE])

    def requires_schema(self, topic: TopicName) -> bool:
        """Whether a producer without a schema is rejected."""
        if not self._versions or self.newest(topic) is None:
            return False
        return self._policies.of_topic(topic)[SCHEMA_VALIDATION]

    def may_register(self, topic: TopicName) -> bool:
        """Whether clients may register new schemas of the topic."""
        return self._policies.of_topic(topic)[SCHEMA_UPDATES]

    # Registering.

    async def register(self, topic: TopicName, schema: Schema, *, may_add: bool = True) -> int:
        """Return the version number of a schema, and register the schema if it is new. ProtocolError
        (IncompatibleSchema) for an invalid schema, and for a new one that is incompatible, exceeds the maximum number
        of versions, or comes without `may_add`. StorageError."""
        self.check_form(schema)
        is_fresh = False
        while True:
            versions = self.of(topic)
            known = versions.find(schema)
            if known is not None:
                return known.number
            number = versions.next_number
            reason = await self._rejection_reason(topic, schema, may_add=may_add)
            if reason and is_fresh:
                raise _incompatible(reason)
            if reason:
                # Reject only after a refresh: another region may have registered the same schema.
                with contextlib.suppress(StorageError):
                    await self._metadata.refresh()
            elif await self._add(topic, Version(number, schema, self._wall_clock_ms())):
                logger.info("%s has schema %d, %s", schema_key(topic), number, schema.type.name)
                return number
            is_fresh = True

    async def _add(self, topic: TopicName, version: Version) -> bool:
        """Write a version. Return False if its number was used meanwhile. The mirror has the version with this number
        in both cases. StorageError."""
        path = SchemaPath.of(schema_key(topic), version.number)
        try:
            await self._metadata.put(path.text, version.encode(), expected=-1)
        except Conflict:
            await self._metadata.refresh()
            return False
        return True

    def check_form(self, schema: Schema) -> None:
        """Raise ProtocolError for a schema that is too large or not valid for its type."""
        texts = "".join(text for one in schema.properties.items() for text in one)
        size_bytes = len(schema.data) + len(texts.encode(errors="surrogatepass"))
        try:
            if size_bytes > self._bytes_max:
                raise BadSchema(f"{size_bytes:,} bytes; {self._bytes_max:,} are allowed (schema_bytes_max)")
            check_form(schema)
            for part in halves(schema) if schema.type is SchemaType.KEY_VALUE else (schema,):
                if part.type is SchemaType.PROTOBUF_NATIVE:
                    check_descriptors(part.data)
        except ValueError as problem:
            raise _incompatible(f"not a valid {schema.type.name} schema: {problem}") from None

    async def _rejection_reason(self, topic: TopicName, schema: Schema, *, may_add: bool) -> str:
        """Return why an unknown schema may not be added; empty if it may."""
        if not may_add:
            return "Schema not found and schema auto updating is disabled."
        versions, strategy = self.of(topic), self.strategy(topic)
        if len(versions) >= self._versions_max:
            return f"the topic has {len(versions):,} schema versions, the maximum (schema_versions_max)"
        present = versions.present()
        return await self._incompatibility(
            present if strategy.is_transitive else present[-1:], schema, strategy
        )

    async def check_consumer(self, topic: TopicName, schema: Schema) -> None:
        """Raise ProtocolError (IncompatibleSchema) when a consumer with this schema cannot read the topic, or the topic
        has no schema (PIP-44). With ALWAYS_COMPATIBLE only the form of the schema is checked."""
        self.check_form(schema)
        strategy = self.strategy(topic)
        if strategy is CompatibilityStrategy.ALWAYS_COMPATIBLE:
            return
        if self.newest(topic) is None:
            with contextlib.suppress(StorageError):
                await self._metadata.refresh()
        present = self.of(topic).present()
        if not present:
            raise _incompatible("Topic does not have schema to check")
        if strategy is CompatibilityStrategy.ALWAYS_INCOMPATIBLE and self.of(topic).find(schema) is not None:
            return
        effective = strategy.for_consumers
        reason = await self._incompatibility(
            present if effective.is_transitive else present[-1:], schema, effective
        )
        if reason:
            raise _incompatible(reason)

    async def why_incompatible(self, topic: TopicName, schema: Schema) -> str:
        """Return why a schema cannot be registered now; empty if it can, or is registered. ProtocolError for an invalid
        schema."""
        self.check_form(schema)
        if self.of(topic).find(schema) is not None:
            return ""
        return await self._rejection_reason(topic, schema, may_add=True)

    async def _incompatibility(
        self, present: list[Version], schema: Schema, strategy: CompatibilityStrategy
    ) -> str:
        """Compare a schema with these versions, newest first. Return why it is incompatible with one; empty if it is
        compatible with all."""
        identity = identity_of(schema)
        for version in reversed(present):
            if version.schema is None or version.identity == identity:
                continue
            try:
                self._check_follows(version.schema, schema, strategy)
            except Incompatible as problem:
                return f"Incompatible schema: version {version.number}: {problem}"
            except BadSchema as problem:
                return f"Incompatible schema: it cannot be compared with version {version.number}: {problem}"
            await asyncio.sleep(0)  # other tasks run between two comparisons
        return ""

    # Deleting.

    async def delete(self, topic: TopicName, *, force: bool = False) -> int:
        """Delete the topic's schema. Its versions stay readable for existing messages, unless `force` is set. Return
        the version number of the deletion, also of an earlier one; -1 if the topic never had a schema. StorageError."""
        while self.newest(topic) is not None:
            number = self.of(topic).next_number
            if await self._add(topic, Version(number, None, self._wall_clock_ms())):
                break
        numbers = self.of(topic).numbers()
        if force:
            for older in numbers[:-1]:  # the last number stays, so that none is used again (INV-41)
                await self._metadata.put(SchemaPath.of(schema_key(topic), older).text, None)
        return numbers[-1] if numbers else -1

    async def delete_in(self, namespace: str) -> None:
        """Delete the schemas of all topics of a namespace. StorageError."""
        for key in [key for key in self._versions if key.startswith(f"{namespace}/")]:
            await self.delete(TopicName("persistent", *key.split("/", 2)))


def _incompatible(sentence: str) -> ProtocolError:
    """Return the error, with a sentence of limited length, because clients choose the names in it."""
    return ProtocolError(ServerError.IncompatibleSchema, sentence[:SENTENCE_LENGTH_MAX])
