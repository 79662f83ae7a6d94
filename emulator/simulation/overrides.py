"""Replacements for the production components of a simulated run: mutants are functions of these."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from emulator.broker.components import SHIPPED, Components
from emulator.broker.topic.topic import Topic
from emulator.client import Client
from emulator.simulation.disk import SimulatedDisk
from emulator.simulation.evidence import scan_once
from emulator.simulation.remote_log import RemoteLog

SIMULATED = SHIPPED.with_replaced(scan_entry=scan_once)


@dataclass(frozen=True, slots=True)
class Overrides:
    """What every region of a world is made of."""

    components: Components = SIMULATED
    """Rules and state machines of the broker: those that ship."""
    topic: type[Topic] = Topic
    disk: type[SimulatedDisk] = SimulatedDisk
    remote_log: type[RemoteLog] = RemoteLog
    client: type[Client] = Client
    """Of every program."""

    def with_parts(self, **changes: Any) -> Overrides:
        """The same with other parts of the broker, by the names of their fields."""
        return replace(self, components=self.components.with_replaced(**changes))


AS_SHIPPED = Overrides()
