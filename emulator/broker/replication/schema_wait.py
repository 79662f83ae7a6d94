"""Holds a replicator at an entry until the version of its schema in the remote region is known."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from emulator.broker.replication.entry_forms import RemoteSchemaVersions
from emulator.broker.replication.replicator_state import RETRY_SECONDS, RETRY_SECONDS_MAX
from emulator.core.replication.progress import ReplicatorLifecycle
from emulator.core.schemas.versions import version_number
from emulator.errors import ProtocolError, StorageError
from emulator.model.reasons import Cause

if TYPE_CHECKING:
    from emulator.broker.topic.view import TopicView

logger = logging.getLogger(__name__)

RESPONSE_SECONDS = 30.0
"""Maximum time that the replicator waits for a schema version of the remote region."""


class SchemaWait:
    """The schema versions that one replicator knows in the remote region, and its wait for an unknown one."""

    def __init__(
        self,
        topic: TopicView,
        remote: str,
        lifecycle: ReplicatorLifecycle,
        versions: RemoteSchemaVersions,
        resume: Callable[[], None],
    ) -> None:
        """`resume` is called when the wait is over."""
        self.versions = versions
        self._topic = topic
        self._remote = remote
        self._lifecycle = lifecycle
        self._resume = resume

    def begin(self, version: bytes) -> None:
        """Pause at an entry whose schema version in the remote region is not known yet, and request it."""
        why = Cause.SCHEMA_ASKED(region=self._remote, number=version_number(version))
        self._topic.region.spawn(self._learn(version, self._lifecycle.begin_hold(why)))

    async def _learn(self, version: bytes, hold: int) -> None:
        delay_seconds = RETRY_SECONDS
        while self._lifecycle.is_held(hold):
            try:
                async with asyncio.timeout(RESPONSE_SECONDS):
                    await self.versions.learn(version)
            except (ProtocolError, StorageError, TimeoutError) as problem:
                if self._lifecycle.is_held(hold):
                    # Retried: policies change, and so do the schemas of the other region.
                    why_not = Cause.SCHEMA_REFUSED(
                        region=self._remote,
                        number=version_number(version),
                        topic=self._topic.full_name,
                        message=str(problem) or f"no response within {RESPONSE_SECONDS:g} s",
                    )
                    if self._lifecycle.why_not != why_not:
                        self._lifecycle.why_not = why_not
                        logger.warning("%s", why_not)
                await asyncio.sleep(delay_seconds)
                delay_seconds = min(delay_seconds * 2, RETRY_SECONDS_MAX)
            else:
                if self._lifecycle.end_hold(hold):
                    self._resume()
                return
