"""Regions that were removed for good, because they will not return: `geoemu region remove`.

The record of a removal is a path of the cluster's configuration store, which all regions of the cluster follow:

    removed ──▶ links to it are closed and not opened again; its connections are closed and refused
            ──▶ it is taken out of `replication_clusters` and `allowed_clusters` of all namespaces and topics

Each cluster has its own store, so the removal is requested in one region of each cluster.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from emulator.broker.environment import RegionServices
from emulator.core.policies.topics import ALLOWED_CLUSTERS, REPLICATION_CLUSTERS
from emulator.errors import ProtocolError, ServerError
from emulator.model.reasons import NO_REASON, Cause, Reason
from emulator.model.stored_keys import RemovedRegionPath, parse_path
from emulator.model.values import Change

if TYPE_CHECKING:
    from emulator.broker.connection.connection import ClientConnections
    from emulator.broker.metadata.policies import Policies
    from emulator.broker.metadata.store import Metadata
    from emulator.broker.replication.link import PeerLink

logger = logging.getLogger(__name__)

TIME_MS_MAX: Final = 253_402_300_799_000
"""The end of the year 9999, in ms since 1970."""


class RegionWithPeers(RegionServices, Protocol):
    """The region, as this module needs it."""

    metadata: Metadata
    policies: Policies
    clients: ClientConnections
    peers: dict[str, PeerLink]


class Removal(NamedTuple):
    """The record of a removal."""

    at_ms: int
    """Time by the clock of the region that made it, in ms since 1970."""
    by: str
    """The region that received the request."""

    @classmethod
    def parse(cls, value: bytes) -> Removal:
        """Return a stored record. A damaged one is still a removal, whose time and region are unknown: 0 and empty."""
        try:
            raw = json.loads(value)
            at_ms, by = raw["at_ms"], raw["by"]
            if type(at_ms) is int and 0 <= at_ms <= TIME_MS_MAX and isinstance(by, str):
                return cls(at_ms, by)
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        return cls(0, "")

    @property
    def time(self) -> str:
        return datetime.fromtimestamp(self.at_ms / 1000, UTC).isoformat(timespec="seconds")


class RemovedRegions:
    """The removed regions, as one region knows them from its cluster's store."""

    def __init__(self, region: RegionWithPeers) -> None:
        self._region = region
        self._removed: dict[str, Removal] = {}

    def start(self) -> None:
        """Apply the stored removals and follow later ones. Called when the store is open, before links are opened."""
        for change in self._region.metadata.list(RemovedRegionPath.prefix()):
            self._changed(change)
        self._region.metadata.watch(RemovedRegionPath.prefix(), self._changed)

    def __contains__(self, name: object) -> bool:
        return name in self._removed

    def of(self, name: str) -> Removal | None:
        """Return the removal of a region; None: it is not removed."""
        return self._removed.get(name)

    def why(self, name: str) -> Reason:
        """Return why there is no link to a region; empty: it is not removed."""
        removal = self._removed.get(name)
        return NO_REASON if removal is None else Cause.LINK_REMOVED(region=name, time=removal.time)

    def check_accepted(self, name: str) -> None:
        """Raise ProtocolError, which ends the connection, for a removed region that connects."""
        removal = self._removed.get(name)
        if removal is not None:
            raise ProtocolError(
                ServerError.NotAllowedError,
                f"region {name} was removed at {removal.time} and is refused by region "
                f"{self._region.config.region}; its removal must be revoked before it may return",
                closes_connection=True,
            )

    # Changes.

    async def remove(self, name: str) -> int:
        """Remove a region, and take it out of all policies of this cluster. Return the number of changed documents; no
        effect on one that is removed already, except that policies are completed. ProtocolError, StorageError."""
        region = self._region
        path = RemovedRegionPath(name).text
        if region.metadata.get(path) is None:
            removal = Removal(region.environment.wall_clock_ms(), region.config.region)
            await region.metadata.put(path, json.dumps(removal._asdict()).encode())
        changed = 0
        for policy in (REPLICATION_CLUSTERS, ALLOWED_CLUSTERS):
            for document in region.policies.documents_with(policy, name):
                await region.policies.change(document, policy, lambda present: _without(present, name))
                changed += 1
        return changed

    async def revoke(self, name: str) -> None:
        """Revoke the removal: links are opened again. Policies stay as they are. StorageError."""
        await self._region.metadata.put(RemovedRegionPath(name).text, None)

    def _changed(self, change: Change) -> None:
        key = parse_path(change.path)
        if not isinstance(key, RemovedRegionPath):
            return
        if change.value is None:
            if self._removed.pop(key.name, None) is not None and key.name in self._region.peers:
                self._region.peers[key.name].set_removed(NO_REASON)
            return
        self._removed[key.name] = Removal.parse(change.value)
        logger.warning("region %s was removed: its links are refused", key.name)
        if key.name in self._region.peers:
            self._region.peers[key.name].set_removed(self.why(key.name))
            for connection in list(self._region.clients.connections):
                if connection.peer is not None and connection.peer.region == key.name:
                    connection.abort()


def _without(present: tuple[str, ...] | None, name: str) -> tuple[str, ...] | None:
    """Return the list without a region. A list of only this region stays: an empty one is not valid."""
    kept = tuple(one for one in present or () if one != name)
    return kept or present
