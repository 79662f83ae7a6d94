"""A host that owns topics, and waits for others: with our own client, on whatever loop and network that has. Real
processes (`host_actor.py`) and simulated hosts run this same program."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from emulator.client import Client
from emulator.scenarios.actor_history import Notes
from emulator.scenarios.claim import Claim
from emulator.scenarios.workload import Counts, HostPart


class HostAtWork:
    """All claims of one host, in one life."""

    def __init__(self, part: HostPart, client: Client, notes: Notes) -> None:
        self._part = part
        self._client = client
        self._notes = notes
        self._claims: dict[str, Claim] = {}
        self._leaving = False

    @property
    def counts(self) -> Counts:
        claims = self._claims.values()
        holds = tuple(claim.topic for claim in claims if claim.holds)
        waits = sum(claim.in_line for claim in claims)
        return Counts(
            region=self._part.region,
            connected=bool(holds or waits),
            asked=sum(claim.tally.asked for claim in claims),
            ok=sum(claim.tally.ok for claim in claims),
            failed=sum(claim.tally.failed for claim in claims),
            unknown=sum(claim.tally.unknown for claim in claims),
            publishing=bool(claims) and not self._leaving,
            holds=holds,
            waits=waits,
        )

    async def begin(self) -> None:
        """Ask for its share. Ends when each topic of it is its own, or it waits for it."""
        await self._claim(self._part.own)

    async def line_up(self) -> None:
        """Ask for all the others. Ends when it has a place in each line."""
        await self._claim(topic for topic in self._part.topics if topic not in self._claims)

    async def _claim(self, topics: Iterable[str]) -> None:
        claims = [Claim(self._part, topic, self._client, self._notes) for topic in topics]
        self._claims.update((claim.topic, claim) for claim in claims)
        await asyncio.gather(*(claim.settled.wait() for claim in claims))

    async def finish(self) -> None:
        """Out of every line first, so that nobody passes a topic to it; then out of office."""
        self._leaving = True
        in_line = [claim for claim in self._claims.values() if not claim.holds]
        await asyncio.gather(*(claim.leave() for claim in in_line))
        await asyncio.gather(*(claim.leave() for claim in self._claims.values()))
        await self._client.close()
