"""What a connection remembers while a region proves itself."""

from __future__ import annotations

from dataclasses import dataclass

from emulator.broker.replication.peer_auth import Challenge
from emulator.wire.commands import Connect


@dataclass(frozen=True, slots=True)
class Handshake:
    """Between the CONNECT of a region and its proof."""

    greeting: Connect
    challenge: Challenge
