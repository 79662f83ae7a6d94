"""What a scenario asks of the admin ports of regions: calls of the file, and the state of topics that it waits for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from emulator.net.http import NoHttpResponse, call
from emulator.net.network import SocketNetwork
from emulator.runtimes.contract import RegionStatus

if TYPE_CHECKING:
    from emulator.scenarios.format.conditions import AdminCondition
    from emulator.scenarios.format.steps import AdminCall

ANSWER_CHARACTERS = 200
"""Length of the excerpt of an unexpected response."""

CallRegion = Callable[[RegionStatus, str, str, Any], Awaitable[tuple[int, bytes]]]
"""(region, method, path, body as JSON) -> status and body of the admin port's answer. OSError when there is none."""


async def call_over_http(region: RegionStatus, method: str, path: str, body: Any) -> tuple[int, bytes]:
    """On real sockets."""
    url = urlsplit(region.admin_url)
    target = url.path + path
    try:
        answer = await call(SocketNetwork(), url.hostname or "", url.port or 0, method, target, body)
    except NoHttpResponse as silence:
        raise OSError(str(silence)) from None
    return answer.status, answer.body


async def unexpected_responses(
    call_region: CallRegion, regions: Mapping[str, RegionStatus], calls: tuple[AdminCall, ...]
) -> list[str]:
    """Make all calls at the same time; a sentence for each that was not answered as it should be."""
    found = await asyncio.gather(*(_unwelcome(call_region, regions[one.region], one) for one in calls))
    return [sentence for sentence in found if sentence is not None]


async def _unwelcome(call_region: CallRegion, region: RegionStatus, call: AdminCall) -> str | None:
    try:
        status, body = await call_region(region, call.method, call.path, call.body)
    except OSError as silence:
        return f"{call.region} did not respond to {call.method} {call.path}: {silence}"
    if status in call.status or (not call.status and 200 <= status < 300):
        return None
    said = body.decode(errors="replace")[:ANSWER_CHARACTERS]
    return f"{call.region} responded to {call.method} {call.path} with {status} {said}".rstrip()


async def unmet_condition(
    call_region: CallRegion, region: RegionStatus, condition: AdminCondition
) -> str | None:
    """None: the region says it."""
    try:
        status, body = await call_region(region, "GET", condition.get, None)
        said = json.loads(body) if status == 200 and body else None
    except (OSError, ValueError) as problem:
        return f"no value from {condition.region}: {problem}"
    if status in (200, 204) and _contains(said, condition.value):
        return None
    return f"{condition.region} returned {status} {json.dumps(said)[:ANSWER_CHARACTERS]}"


def _contains(said: Any, wanted: Any) -> bool:
    if isinstance(said, dict) and isinstance(wanted, dict):
        return all(name in said and said[name] == value for name, value in wanted.items())
    return bool(said == wanted)


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """One topic in one region."""

    topic: str
    backlogs: Mapping[str, int]
    """Entries that each remote region has not confirmed yet."""
    unacknowledged: Mapping[str, int]
    """Messages that each subscription has not acknowledged yet."""
    why_not_replicated: Mapping[str, str]
    """For each subscription whose position does not follow to other regions: why, as a sentence."""


ReadTopics = Callable[[RegionStatus], Awaitable[list[TopicStatus]]]
"""Asks a running region for all its topics. OSError when it does not answer."""


async def read_topics_over_http(region: RegionStatus) -> list[TopicStatus]:
    """Ask the region's admin port."""
    status, body = await call_over_http(region, "GET", "/geoemu/v1/topics", None)
    if status != HTTPStatus.OK:
        raise OSError(f"HTTP Error {status}: {HTTPStatus(status).phrase}")
    return [topic_status(row) for row in json.loads(body)]


def topic_status(row: Mapping[str, Any]) -> TopicStatus:
    """What one row of `/geoemu/v1/topics` says."""
    subscriptions = row["subscriptions"]
    return TopicStatus(
        topic=row["topic"],
        backlogs={remote: link["backlog"] for remote, link in row["replication"].items()},
        unacknowledged={name: each["backlog"] for name, each in subscriptions.items()},
        why_not_replicated={
            name: each["why_not_replicated"]
            for name, each in subscriptions.items()
            if each.get("why_not_replicated")
        },
    )


@dataclass(frozen=True, slots=True)
class ReplicationSurvey:
    """The answers of several regions, asked at about the same time."""

    silent: tuple[str, ...]
    """A sentence for each region without a response."""
    topics: Mapping[str, Mapping[str, TopicStatus]]
    """By region, then by topic."""

    def unreplicated(self, topic: str, *, except_to: Collection[str] = ()) -> Iterator[str]:
        """Yield a sentence for each region with entries that another one has not confirmed, `except_to` some."""
        for region, known in self.topics.items():
            if topic in known:
                for remote, entries in known[topic].backlogs.items():
                    if entries and remote not in except_to:
                        yield f"{entries} entries of {topic} not replicated from {region} to {remote}"

    def missing_topics(self, topic: str, regions: Iterable[str]) -> Iterator[str]:
        """Yield a sentence for each of these regions that does not know a topic."""
        return (
            f"{region} does not have topic {topic}" for region in regions if topic not in self.topics[region]
        )

    def unacknowledged_in(self, region: str, topic: str, subscription: str) -> Iterator[str]:
        """Yield a sentence if a subscription has unacknowledged messages in a region."""
        if region not in self.topics:
            yield f"{subscription} is consumed in {region}, which is lost: move its consumer"
        elif not self.knows(region, topic, subscription):
            yield f"{region} does not have subscription {subscription}"
        elif messages := self.topics[region][topic].unacknowledged[subscription]:
            yield f"{subscription} has not acknowledged {messages} messages in {region}"

    def reasons(self, subscription: str) -> Iterator[str]:
        """Yield the reasons that regions give why a subscription's position is not replicated."""
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
