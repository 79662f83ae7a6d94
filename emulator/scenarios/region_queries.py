"""Requests of a scenario to the admin ports of regions: admin calls and conditions of the file, and states of
topics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from emulator.errors import RuntimeFailure
from emulator.model.protocol_events import ProtocolState
from emulator.net.control import read_control
from emulator.net.http import RESPONSE_SECONDS, NoHttpResponse, call
from emulator.net.tls import network_with
from emulator.run.directory import refuse_unknown
from emulator.runtimes.contract import RegionStatus, Runtime

if TYPE_CHECKING:
    from emulator.scenarios.format.conditions import AdminCondition
    from emulator.scenarios.format.steps import AdminCall

ANSWER_CHARACTERS = 200
"""Maximum length of the excerpt of an unexpected response, in characters."""

CallRegion = Callable[[RegionStatus, str, str, Any], Awaitable[tuple[int, bytes]]]
"""Calls a region's admin port: (region, method, path, JSON body) -> (status, body) of the response. Raises OSError if
there is no response."""


async def call_over_http(
    region: RegionStatus, method: str, path: str, body: Any, *, seconds: float = RESPONSE_SECONDS
) -> tuple[int, bytes]:
    """Call the region's admin port over a real socket. Raises OSError if there is no response within `seconds`."""
    url = urlsplit(region.admin_url)
    target = url.path + path
    try:
        response = await call(
            network_with(region.tls),
            url.hostname or "",
            url.port or 0,
            method,
            target,
            body,
            seconds=seconds,
            authorization=read_control(region.control),
        )
    except NoHttpResponse as error:
        raise OSError(str(error)) from None
    return response.status, response.body


async def unexpected_responses(
    call_region: CallRegion, regions: Mapping[str, RegionStatus], calls: tuple[AdminCall, ...]
) -> list[str]:
    """Make all calls concurrently, and return a sentence for each call without the expected response."""
    found = await asyncio.gather(
        *(_unexpected_response(call_region, regions[one.region], one) for one in calls)
    )
    return [sentence for sentence in found if sentence is not None]


async def _unexpected_response(call_region: CallRegion, region: RegionStatus, call: AdminCall) -> str | None:
    try:
        status, body = await call_region(region, call.method, call.path, call.body)
    except OSError as error:
        return f"{call.region} did not respond to {call.method} {call.path}: {error}"
    if status in call.status or (not call.status and 200 <= status < 300):
        return None
    excerpt = body.decode(errors="replace")[:ANSWER_CHARACTERS]
    return f"{call.region} responded to {call.method} {call.path} with {status} {excerpt}".rstrip()


async def unmet_condition(
    call_region: CallRegion, region: RegionStatus, condition: AdminCondition
) -> str | None:
    """Return why the condition does not hold, as a sentence; None if the region returned the expected value."""
    try:
        status, body = await call_region(region, "GET", condition.get, None)
        returned = json.loads(body) if status == 200 and body else None
    except (OSError, ValueError) as problem:
        return f"no value from {condition.region}: {problem}"
    if status in (200, 204) and _contains(returned, condition.value):
        return None
    return f"{condition.region} returned {status} {json.dumps(returned)[:ANSWER_CHARACTERS]}"


def _contains(returned: Any, expected: Any) -> bool:
    """Return whether the values are equal; of objects, at any depth, only the fields of `expected` are compared."""
    if isinstance(returned, dict) and isinstance(expected, dict):
        return all(name in returned and _contains(returned[name], value) for name, value in expected.items())
    return bool(returned == expected)


WAIT_MS = 1_000
"""Longest wait of one request for a protocol state; below the time in which a response is expected."""
RETRY_SECONDS = 0.05
"""Delay before a region that did not respond is asked again."""
GRACE_SECONDS = 0.2
"""Time after the deadline for the response with the last count."""
GetRegion = Callable[[], Awaitable[RegionStatus]]


class StateWait:
    """Waits until a region has reached a protocol state. A region that is down is asked again until it returns; it then
    counts from zero."""

    def __init__(self, call_region: CallRegion, get_region: GetRegion, state: ProtocolState) -> None:
        """`get_region`: returns the current status of the region."""
        self._call_region = call_region
        self._get_region = get_region
        self._state = state
        self._region: RegionStatus | None = None
        self._start: int | None = None
        """Number of the region's start that counted `counted`; None: it has not responded yet."""
        self._before = 0
        """Number of events before the wait, if only later ones count."""
        self.counted = 0
        """Number of events that the region had counted when it responded last."""
        self._deadline = 0.0
        """Loop time at which the wait ends."""

    async def run(self, seconds: float) -> bool:
        """Wait up to `seconds`, and return whether the state was reached. RuntimeFailure if the region rejects the
        request."""
        self._deadline = asyncio.get_running_loop().time() + seconds
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._deadline + GRACE_SECONDS):
                self._region = await self._get_region()
                await self._count_before()
                while self.counted < self._state.count and self._remaining_ms():
                    await self._ask(self._remaining_ms())
        if self.counted < self._state.count:
            await self._refresh()
        return self.counted >= self._state.count

    async def _refresh(self) -> None:
        """Get the state of the region at the deadline, for `describe`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                self._region = await self._get_region()

    def _remaining_ms(self) -> int:
        remaining_ms = (self._deadline - asyncio.get_running_loop().time()) * 1000
        return max(0, min(WAIT_MS, round(remaining_ms)))

    async def _count_before(self) -> None:
        """Get the number of events before the wait, without waiting for more. A region that is down has none."""
        assert self._region is not None
        was_up = self._region.state in ("running", "paused")
        while self._start is None and self._remaining_ms():
            await self._ask(0)
        if self._state.from_now and was_up:
            self._before, self.counted = self.counted, 0

    async def _ask(self, wait_ms: int) -> None:
        """Send one request, and note the number in its response."""
        assert self._region is not None
        count = self._before + self._state.count
        query = {"count": count, "wait_ms": wait_ms, "topic": self._state.topic or ""}
        target = f"/geoemu/v1/protocol-events/{self._state.event}?{urlencode(query)}"
        try:
            status, body = await self._call_region(self._region, "GET", target, None)
        except OSError:
            await asyncio.sleep(RETRY_SECONDS)
            self._region = await self._get_region()
            return
        if status != HTTPStatus.OK:
            excerpt = body.decode(errors="replace")[:ANSWER_CHARACTERS]
            raise RuntimeFailure(f"{self._region.name} responded to GET {target} with {status} {excerpt}")
        response = json.loads(body)
        if response["start"] != self._start:
            self._start, self._before = response["start"], 0
        self.counted = response["count"] - self._before

    def describe(self) -> str:
        """Return the number of events counted so far, as a sentence."""
        region, state = self._region, self._state
        where = "" if region is None else f" in {region.name}"
        condition = "" if region is None or region.state == "running" else f" ({region.state})"
        return f"{state.name} is {self.counted} of {state.count}{state.of_topic}{where}{condition}"


async def await_state(runtime: Runtime, region: str, state: ProtocolState, seconds: float) -> int:
    """Wait until a region of a run has reached a state, and return its number of events. Raises RuntimeFailure with
    this number after `seconds`; Refused for a region that is not in the run."""
    refuse_unknown("region", region, runtime.topology.region_names)

    async def get_region() -> RegionStatus:
        return next(one for one in (await runtime.status()).regions if one.name == region)

    wait = StateWait(call_over_http, get_region, state)
    if not await wait.run(seconds):
        raise RuntimeFailure(f"{wait.describe()} after {seconds:g} s")
    return wait.counted


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """The replication state of one topic in one region."""

    topic: str
    backlogs: Mapping[str, int]
    """For each remote region, the number of entries that it has not acknowledged."""
    unacknowledged: Mapping[str, int]
    """For each subscription, its backlog in messages."""
    why_not_replicated: Mapping[str, str]
    """For each subscription whose position is not replicated, the reason as a sentence."""
    last_entry: int = -1
    """Entry id of the last entry of the log; -1: there is none."""


ReadTopics = Callable[[RegionStatus], Awaitable[list[TopicStatus]]]
"""Requests the status of all topics from a running region. Raises OSError if there is no response."""


async def read_topics_over_http(region: RegionStatus) -> list[TopicStatus]:
    """Request the status of all topics from the region's admin port. Raises OSError if there is no response."""
    status, body = await call_over_http(region, "GET", "/geoemu/v1/topics", None)
    if status != HTTPStatus.OK:
        raise OSError(f"HTTP Error {status}: {HTTPStatus(status).phrase}")
    return [topic_status(row) for row in json.loads(body)]


def topic_status(row: Mapping[str, Any]) -> TopicStatus:
    """Return the status in one row of `/geoemu/v1/topics`."""
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
        last_entry=int(row["last_position"].rpartition(":")[2]),
    )


@dataclass(frozen=True, slots=True)
class ReplicationSurvey:
    """The responses of several regions, requested at about the same time."""

    silent: tuple[str, ...]
    """A sentence for each region without a response."""
    topics: Mapping[str, Mapping[str, TopicStatus]]
    """Status of each topic, by region, then by topic."""

    def unreplicated(self, topic: str, *, except_to: Collection[str] = ()) -> Iterator[str]:
        """Yield a sentence for each replication backlog of a topic; ignores backlogs for the regions in `except_to`."""
        for region, known in self.topics.items():
            if topic in known:
                for remote, entries in known[topic].backlogs.items():
                    if entries and remote not in except_to:
                        yield f"{entries} entries of {topic} not replicated from {region} to {remote}"

    def missing_topics(self, topic: str, regions: Iterable[str]) -> Iterator[str]:
        """Yield a sentence for each of these regions that does not have the topic."""
        return (
            f"{region} does not have topic {topic}" for region in regions if topic not in self.topics[region]
        )

    def unacknowledged_in(self, region: str, topic: str, subscription: str) -> Iterator[str]:
        """Yield a sentence if a subscription has unacknowledged messages in a region."""
        if region not in self.topics:
            yield f"{subscription} is consumed in {region}, which is lost: move its consumer"
        elif not self.has_subscription(region, topic, subscription):
            yield f"{region} does not have subscription {subscription}"
        elif messages := self.topics[region][topic].unacknowledged[subscription]:
            yield f"{subscription} has not acknowledged {messages} messages in {region}"

    def reasons(self, subscription: str) -> Iterator[str]:
        """Yield the reasons that regions give why a subscription's position is not replicated."""
        for region, known in self.topics.items():
            for status in known.values():
                if reason := status.why_not_replicated.get(subscription):
                    yield f"reason from {region}: {reason}"

    def has_subscription(self, region: str, topic: str, subscription: str) -> bool:
        status = self.topics.get(region, {}).get(topic)
        return status is not None and subscription in status.unacknowledged


async def survey(regions: Iterable[RegionStatus], read_topics: ReadTopics) -> ReplicationSurvey:
    """Request the status of all topics from these regions concurrently."""
    silent: list[str] = []
    topics: dict[str, dict[str, TopicStatus]] = {}

    async def request(region: RegionStatus) -> None:
        if region.state != "running":
            silent.append(f"{region.name} is {region.state}")
            return
        try:
            topics[region.name] = {status.topic: status for status in await read_topics(region)}
        except OSError as error:
            silent.append(f"{region.name} does not respond: {error}")

    await asyncio.gather(*map(request, regions))
    return ReplicationSurvey(tuple(sorted(silent)), topics)
