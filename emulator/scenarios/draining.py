"""The step that waits until everything has arrived."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

from emulator.model.values import TopicName
from emulator.scenarios.run_context import Playing
from emulator.scenarios.topics import Survey, survey
from emulator.scenarios.workload import ConsumerPart, HostPart, Part, ProgramPart, TaskPart

CALM_LOOKS = 2
"""A drain is over when so many looks in a row find nothing left: regions are not all asked at one moment."""


class Draining:
    """Of one play."""

    def __init__(self, play: Playing) -> None:
        self._play = play

    async def drain(self, seconds: float) -> None:
        calm_looks = 0

        async def missing() -> str | None:
            nonlocal calm_looks
            reason = await self._first_undrained()
            calm_looks = 0 if reason else calm_looks + 1
            return reason or (
                "replication caught up only in the last look" if calm_looks < CALM_LOOKS else None
            )

        await self._play.until(seconds, missing)

    async def _first_undrained(self) -> str | None:
        """The first reason found why not everything has arrived; None when there is none."""
        for name, actor in self._play.actors.items():
            if actor.counts.publishing or actor.counts.pending:
                return f"{name} still publishes, {actor.counts.pending} publishes pending"
        regions = (await self._play.regions()).values()
        lost = {region.name for region in regions if region.state == "lost"}
        left = [region for region in regions if region.name not in lost]
        found = await survey(left, self._play.stage.read_topics)
        return next(chain(found.silent, self._undelivered(found, lost), self._unread(found)), None)

    def _undelivered(self, found: Survey, lost: Collection[str]) -> Iterator[str]:
        """What is owed to a lost region, and what only a lost region has, is not waited for."""
        for topic in sorted(
            {topic for one in self._play.actors.values() if one.counts.ok for topic in _written_to(one.part)}
        ):
            namespace = TopicName.parse(topic).full_namespace
            sharers = (
                each.regions for each in self._play.runtime.topology.namespaces if each.name == namespace
            )
            yield from found.strangers(topic, [name for name in next(sharers, ()) if name not in lost])
            yield from found.debts(topic, forgiven=lost)

    def _unread(self, found: Survey) -> Iterator[str]:
        for name, actor in self._play.actors.items():
            part = actor.part
            if isinstance(part, ConsumerPart | TaskPart) and name not in self._play.finished:
                for topic in part.read:
                    yield from found.unread(actor.counts.region, topic, part.subscription)
            if isinstance(part, ProgramPart) and name not in self._play.finished:
                for region, topic, subscription in self._play.program(name).readings():
                    yield from found.unread(region, topic, subscription)


def _written_to(part: Part) -> tuple[str, ...]:
    """Return the topics of an actor; those of a host with the one that it reports to."""
    reports = part.reports_to if isinstance(part, HostPart) else None
    return part.topics if reports is None else (*part.topics, reports)
