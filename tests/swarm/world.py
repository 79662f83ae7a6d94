"""A world with programs that faults can hit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emulator.simulation.world import World

if TYPE_CHECKING:
    from tests.swarm.actors.clients import Actor


class SwarmWorld(World):
    """Regions, links and clients of a generated run."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.actors: dict[str, Actor] = {}
        """Programs that work in it, by name."""
        self.healing = False
        """No fault is active any more: actors acknowledge at once."""
