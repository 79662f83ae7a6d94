"""Broker settings that a scenario overrides in the regions that run it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

from pydantic import Field

from emulator.config.topology import Topology
from emulator.scenarios.types import FormatModel


class SettingsOverride(FormatModel):
    """Broker settings that override the `settings` of the topology."""

    metadata_sync_hybrid_clocks: bool | None = None
    """Order metadata events by hybrid logical clocks instead of wall clocks."""
    metadata_sync_requires_event_topic: bool | None = None
    """Reject metadata changes while the event topic accepts no messages."""
    metadata_sync_clock_ahead_ms_max: Annotated[int, Field(ge=0)] | None = None
    """How far ahead of the local clock the time of a metadata event may be."""

    def obeyed_by(self, topology: Topology) -> Topology:
        """Return the topology with these settings of its regions."""
        wanted = self.model_dump(exclude_none=True)
        return replace(
            topology,
            clusters=tuple(
                replace(
                    cluster,
                    regions=tuple(
                        replace(region, settings=replace(region.settings, **wanted))
                        for region in cluster.regions
                    ),
                )
                for cluster in topology.clusters
            ),
        )


AS_DECLARED: Final = SettingsOverride()
"""Of a scenario that overrides nothing."""
