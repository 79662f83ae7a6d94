"""What a story wants of the regions that play it, whatever the topology says."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

from pydantic import Field

from emulator.scenarios.written import Written
from emulator.topology import Topology


class WantedSettings(Written):
    """Knobs of the brokers, as in the `settings` of a topology. Left out: as the topology says."""

    metadata_sync_hybrid_clocks: bool | None = None
    """Order changes of metadata by hybrid logical clocks, or by plain ones."""
    metadata_sync_requires_event_topic: bool | None = None
    """Refuse changes of metadata while the event topic takes no messages."""
    metadata_sync_clock_ahead_ms_max: Annotated[int, Field(ge=0)] | None = None
    """How far in the future a change of metadata may have been made."""

    def obeyed_by(self, topology: Topology) -> Topology:
        """The topology with regions that were told so."""
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


AS_DECLARED: Final = WantedSettings()
"""Of a story that wants nothing."""
