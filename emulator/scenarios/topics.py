"""The state of topics that regions report, as far as a scenario waits for it."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.runtimes.contract import RegionStatus

ANSWER_SECONDS = 2.0
"""A region that has not answered by then is taken to be silent."""


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """One topic in one region."""

    topic: str
    owed: Mapping[str, int]
    """Entries that each remote region has not confirmed yet."""
    unacknowledged: Mapping[str, int]
    """Messages that each subscription has not acknowledged yet."""
    why_not_replicated: Mapping[str, str]
    """For each subscription whose position does not follow to other regions: why, as a sentence."""


ReadTopics = Callable[[RegionStatus], Awaitable[list[TopicStatus]]]
"""Asks a running region for all its topics. OSError when it does not answer."""


async def read_topics_over_http(region: RegionStatus) -> list[TopicStatus]:
    """Ask the region's admin port."""
    body = await asyncio.to_thread(_get, f"{region.admin_url}/geoemu/v1/topics")
    return [topic_status(row) for row in json.loads(body)]


def topic_status(row: Mapping[str, Any]) -> TopicStatus:
    """What one row of `/geoemu/v1/topics` says."""
    subscriptions = row["subscriptions"]
    return TopicStatus(
        topic=row["topic"],
        owed={remote: link["backlog"] for remote, link in row["replication"].items()},
        unacknowledged={name: each["backlog"] for name, each in subscriptions.items()},
        why_not_replicated={
            name: each["why_not_replicated"]
            for name, each in subscriptions.items()
            if each.get("why_not_replicated")
        },
    )


def _get(url: str) -> bytes:
    # Regions are never behind the proxy that the environment may name.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=ANSWER_SECONDS) as answer:
        body: bytes = answer.read()
    return body


@dataclass(frozen=True, slots=True)
class ReplicationSurvey:
    """The answers of several regions, asked at about the same time."""

    silent: tuple[str, ...]
    """A sentence for each region that gave none."""
    topics: Mapping[str, Mapping[str, TopicStatus]]
    """By region, then by topic."""

    def debts(self, topic: str, *, forgiven: Collection[str] = ()) -> Iterator[str]:
        """What regions still owe each other, as sentences; but for what they owe those that are `forgiven`."""
        for region, known in self.topics.items():
            if topic in known:
                for remote, entries in known[topic].owed.items():
                    if entries and remote not in forgiven:
                        yield f"{entries} entries of {topic} not replicated from {region} to {remote}"

    def strangers(self, topic: str, regions: Iterable[str]) -> Iterator[str]:
        """Yield a sentence for each of these regions that does not know a topic."""
        return (
            f"{region} does not have topic {topic}" for region in regions if topic not in self.topics[region]
        )

    def unread(self, region: str, topic: str, subscription: str) -> Iterator[str]:
        """What a subscription has not acknowledged yet, as a sentence."""
        if region not in self.topics:
            yield f"{subscription} is consumed in {region}, which is lost: move its consumer"
        elif not self.knows(region, topic, subscription):
            yield f"{region} does not have subscription {subscription}"
        elif messages := self.topics[region][topic].unacknowledged[subscription]:
            yield f"{subscription} has not acknowledged {messages} messages in {region}"

    def excuses(self, subscription: str) -> Iterator[str]:
        """Why a subscription's position stays where it is, as its regions say."""
        for region, known in self.topics.items():
            for status in known.values():
                if reason := status.why_not_replicated.get(subscription):
                    yield f"reason from {region}: {reason}"

    def knows(self, region: str, topic: str, subscription: str) -> bool:
        status = self.topics.get(region, {}).get(topic)
        return status is not None and subscription in status.unacknowledged


async def survey(regions: Iterable[RegionStatus], read_topics: ReadTopics) -> ReplicationSurvey:
    """Ask all these regions at once."""
    silent: list[str] = []
    topics: dict[str, dict[str, TopicStatus]] = {}

    async def ask(region: RegionStatus) -> None:
        if region.state != "running":
            silent.append(f"{region.name} is {region.state}")
            return
        try:
            topics[region.name] = {status.topic: status for status in await read_topics(region)}
        except OSError as error:
            silent.append(f"{region.name} does not respond: {error}")

    await asyncio.gather(*map(ask, regions))
    return ReplicationSurvey(tuple(sorted(silent)), topics)
