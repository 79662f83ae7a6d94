"""The simulated world of a generated run, with client programs that can be targets of faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emulator.simulation.world import World

if TYPE_CHECKING:
    from tests.swarm.actors.clients import Actor


class SwarmWorld(World):
    """The regions, links and client programs of a generated run."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.actors: dict[str, Actor] = {}
        """Client programs by name."""
        self.healing = False
        """Whether all faults have ended. Actors then acknowledge every message at once."""
